//! Answers: the spans of a write, what is said when there is none, and answers that go on.

use super::{
    MAPS, SPAN, TRACE, config_map, create_pod, eventually, question, span, spans, trace, traceparent,
};
use coracle_tests::caller::Caller;
use coracle_tests::etcd::Etcd;
use coracle_tests::server::Server;
use serde_json::{Value, json};

#[test]
fn a_write_is_explained_from_the_request_to_the_disk() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let made = admin.header(&traceparent()).create(MAPS, &config_map("one"));
    let answer = trace(&admin, "configmaps", "one");
    assert_eq!((&answer["kind"], &answer["apiVersion"]), (&json!("Trace"), &json!("coracle/v1")));
    assert_eq!((&answer["trace"], &answer["remoteParent"]), (&json!(TRACE), &json!(SPAN)));
    let (object, metadata) = (&answer["object"], &made["metadata"]);
    assert_eq!((&object["name"], &object["exists"]), (&json!("one"), &json!(true)));
    assert_eq!(object["uid"], metadata["uid"]);
    assert_eq!(answer["state"], "ready");
    let (request, write) = (span(&answer, "request"), span(&answer, "write"));
    assert_eq!(request["name"], "POST /api/v1/namespaces/default/configmaps");
    assert_eq!((&request["code"], &request["parent"]), (&json!(201), &Value::Null));
    assert_eq!((&write["parent"], &write["name"]), (&request["id"], &json!("create")));
    assert_eq!(write["revision"].to_string(), metadata["resourceVersion"].as_str().unwrap());
    // Parts follow one another within the write, and the disk is among them.
    for stage in ["mutating", "validation", "store", "store-sync", "publish"] {
        let part = span(&answer, stage);
        let (start, end) = (part["start"].as_u64().unwrap(), part["end"].as_u64().unwrap());
        assert!(start <= end && end <= request["end"].as_u64().unwrap(), "{stage}: {part}");
    }
    assert!(!spans(&answer, "authn").is_empty() && !spans(&answer, "authz").is_empty());
    // The answer is made after the write, whose time is not told again.
    let (time, respond) = (|span: &Value, end: &str| span[end].as_u64().unwrap(), span(&answer, "respond"));
    assert!(time(write, "end") <= time(respond, "start") && time(respond, "end") <= time(request, "end"));
    assert_eq!((&respond["parent"], spans(&answer, "handle").len()), (&request["id"], 0));
    let pieces = answer["critical"].as_array().unwrap();
    let sum: u64 = pieces.iter().map(|p| p["end"].as_u64().unwrap() - p["start"].as_u64().unwrap()).sum();
    assert_eq!(sum, answer["summary"]["total"].as_u64().unwrap(), "pieces sum up to the total");
    assert!(answer["summary"]["covered"].as_f64().unwrap() > 0.9, "{}", answer["summary"]);
    // Nothing of it is in the object.
    assert!(metadata.get("annotations").is_none(), "{made}");
}

/// Nothing was written: the stages of the request follow one another, and no two are at the same time.
#[test]
fn a_request_that_wrote_nothing_has_the_time_of_its_handler() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server).header(&traceparent());
    let (code, _) = admin.get(&format!("{MAPS}/nothing"));
    assert_eq!(code, 404);
    let (code, answer) = Caller::admin(&server).get(&format!("/coracle/v1/trace?trace={TRACE}"));
    assert_eq!(code, 200, "{answer}");
    let request = span(&answer, "request");
    let mut at = request["start"].as_u64().unwrap();
    for stage in ["authn", "authz", "handle"] {
        let part = span(&answer, stage);
        assert_eq!(part["parent"], request["id"], "{stage}");
        assert!(at <= part["start"].as_u64().unwrap(), "{stage}: {answer:#}");
        at = part["end"].as_u64().unwrap();
    }
    assert!(at <= request["end"].as_u64().unwrap());
}

#[test]
fn controllers_continue_what_a_request_began() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    let labels = json!({"app": "web"});
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    admin.header(&traceparent()).create("/apis/apps/v1/namespaces/default/deployments", &deployment);
    let path = question("deployments.apps", "web");
    let made = |trace: &Value, resource: &str| {
        let objects = trace["objects"].as_array().into_iter().flatten();
        objects.filter(|object| object["resource"] == resource).count()
    };
    let answer = eventually(&admin, &path, "pods are in the tree", |answer| {
        made(answer, "pods") == 2 && !spans(answer, "unschedulable").is_empty()
    });
    assert_eq!(made(&answer, "replicasets.apps"), 1);
    // No node is there.
    assert_eq!(answer["state"], "stuck", "{answer:#}");
    let reconciles = spans(&answer, "reconcile");
    assert!(reconciles.iter().any(|span| span["text"] == "default/web"), "{reconciles:?}");
    // From a pod up to the request.
    let by_id = |id: &Value| answer["spans"].as_array().unwrap().iter().find(|span| span["id"] == *id);
    let objects = answer["objects"].as_array().unwrap();
    let is_pod =
        |span: &&&Value| span["object"].as_u64().is_some_and(|at| objects[at as usize]["resource"] == "pods");
    let writes = spans(&answer, "write");
    let mut at = *writes.iter().find(is_pod).unwrap();
    let mut stages = Vec::new();
    while let Some(above) = by_id(&at["parent"]) {
        stages.push(above["stage"].as_str().unwrap());
        at = above;
    }
    assert_eq!(stages, ["reconcile", "write", "reconcile", "write", "request"]);
    // The same from the pod's side, and by the trace.
    let pod = objects.iter().find(|object| object["resource"] == "pods").unwrap();
    let of_pod = trace(&admin, "pods", pod["name"].as_str().unwrap());
    assert_eq!((&of_pod["trace"], made(&of_pod, "pods")), (&json!(TRACE), 1));
    let (code, by_trace) = admin.get(&format!("/coracle/v1/trace?trace={TRACE}"));
    assert_eq!((code, &by_trace["object"]["name"]), (200, &json!("web")));
    let (_, list) = admin.get("/coracle/v1/traces?namespace=default&since=10m");
    let items = list["items"].as_array().unwrap();
    assert!(items.iter().any(|item| item["name"] == "web" && item["verb"] == "create"), "{list:#}");
}

#[test]
fn a_job_is_done_when_it_says_so_and_the_newest_operation_is_last() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    for (name, done, state) in [("good", "Complete", "complete"), ("bad", "Failed", "failed")] {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
        admin.create(jobs, &json!({"metadata": {"name": name}, "spec": {"template": {"spec": pod}}}));
        assert_eq!(trace(&admin, "jobs.batch", name)["state"], "running");
        let (time, before) =
            ("2026-11-17T04:00:00Z", if name == "good" { "SuccessCriteriaMet" } else { "FailureTarget" });
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": time, "lastTransitionTime": time});
        let mut status = json!({"startTime": time, "conditions": [condition(before), condition(done)]});
        if name == "good" {
            status["completionTime"] = json!(time);
        }
        let (code, answer) =
            admin.send("PATCH", &format!("{jobs}/{name}/status"), Some(&json!({"status": status})));
        assert_eq!(code, 200, "{answer}");
        let (_, list) = admin.get(&format!("{}&last=5", question("jobs.batch", name)));
        let verbs: Vec<&Value> =
            list["items"].as_array().unwrap().iter().map(|item| &span(item, "write")["name"]).collect();
        assert_eq!(verbs, ["create", "patch"], "the newest last");
        assert_eq!(list["items"][0]["state"], state);
    }
}

#[test]
fn it_is_said_why_there_is_no_answer() {
    let mut server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    admin.create(MAPS, &config_map("old"));
    let cause = |admin: &Caller, resource: &str, name: &str| {
        let (code, status) = admin.get(&question(resource, name));
        assert_eq!((code, &status["kind"]), (404, &json!("Status")), "{status}");
        (status["details"]["causes"][0]["reason"].clone(), status["message"].as_str().unwrap().to_owned())
    };
    let (reason, message) = cause(&admin, "configmaps", "never");
    assert_eq!(reason, "never");
    assert!(
        message.starts_with("no configmaps \"never\" in default, and none was written since 20"),
        "{message}"
    );
    assert_eq!(cause(&admin, "boats.example.com", "b").0, "unknown-resource");
    // What is kept is gone, the object is not.
    server.stop();
    std::fs::remove_dir_all(server.data_dir().join("trace")).unwrap();
    server.restart();
    let admin = Caller::admin(&server);
    let (reason, message) = cause(&admin, "configmaps", "old");
    assert_eq!(reason, "expired", "{message}");
    for (query, words) in [
        ("", "must be given"),
        ("name=a", "given together"),
        ("trace=1", "32 hexadecimal digits"),
        ("uid=a&since=soon", "a time or a duration"),
        ("uid=a&last=many", "a number"),
        ("uid=a&follow=perhaps", "true or false"),
    ] {
        let (code, status) = admin.get(&format!("/coracle/v1/trace?{query}"));
        assert_eq!(code, 400, "{query}: {status}");
        assert!(status["message"].as_str().unwrap().contains(words), "{query}: {status}");
    }
    assert_eq!(admin.get("/coracle/v1/nothing").0, 404);
    assert_eq!(admin.send("POST", "/coracle/v1/trace", Some(&json!({}))).0, 405);
    server.stop();
    server.restart_with(&["--trace-size", "0"]);
    assert_eq!(Caller::admin(&server).get(&question("configmaps", "old")).0, 404);
}

#[test]
fn an_answer_goes_on_until_nothing_happens_any_more() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    admin.create(jobs, &json!({"metadata": {"name": "one"}, "spec": {"template": {"spec": pod}}}));
    let file = server.data_dir().join("followed");
    let mut followed = admin.watch_into(&format!("{}&follow=true", question("jobs.batch", "one")), &file);
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let limit = std::time::Duration::from_secs(30);
    coracle_tests::eventually("the answer begins", limit, || !lines().is_empty());
    assert!(!followed.over(), "the Job is not done: {:?}", lines());
    let time = "2026-11-17T04:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": time, "lastTransitionTime": time});
    let conditions = [condition("SuccessCriteriaMet"), condition("Complete")];
    let status = json!({"startTime": time, "completionTime": time, "conditions": conditions});
    let (code, answer) = admin.send("PATCH", &format!("{jobs}/one/status"), Some(&json!({"status": status})));
    assert_eq!(code, 200, "{answer}");
    coracle_tests::eventually("the answer ends", limit, || followed.over());
    let lines = lines();
    assert!(lines.len() >= 2, "{lines:?}");
    assert_eq!((&lines[0]["type"], &lines[0]["trace"]["object"]["name"]), (&json!("trace"), &json!("one")));
    assert_eq!(lines[0]["trace"]["state"], "running");
    assert!(lines[1..].iter().all(|line| line["type"] == "spans" || line["type"] == "alive"), "{lines:?}");
    let last = lines.iter().rfind(|line| line["type"] == "spans");
    assert_eq!(last.map(|line| &line["state"]), Some(&json!("complete")), "{lines:?}");
}

#[test]
fn an_open_answer_does_not_keep_the_server_from_ending() {
    let mut server = Server::start();
    let admin = Caller::admin(&server);
    create_pod(&admin, "waits", "");
    eventually(&admin, &question("pods", "waits"), "the pod waits", |answer| answer["state"] == "stuck");
    let mut open = admin.watch(&format!("{}&follow=true", question("pods", "waits")));
    assert!(!open.over());
    server.stop();
    assert!(!server.log().contains("within the shutdown time"), "{}", server.log());
}

/// The stages of the spans, in order.
fn stages(answer: &Value) -> Vec<String> {
    let spans = answer["spans"].as_array().into_iter().flatten();
    let mut stages: Vec<String> = spans.map(|span| span["stage"].to_string()).collect();
    stages.sort_unstable();
    stages
}

#[test]
fn a_server_answers_with_the_spans_of_the_others() {
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let mut first = Server::with(&["--api-only", "--datastore", &store]);
    let second = first.beside(&["--api-only", "--datastore", &store]);
    let (one, two) = (Caller::admin(&first), Caller::admin(&second));
    create_pod(&one, "shared", "");
    let path = question("pods", "shared");
    // They find each other by their Leases, which the second server may not have seen yet.
    let limit = std::time::Duration::from_secs(60);
    coracle_tests::eventually("both have the spans of the first server", limit, || {
        let (own, elsewhere) = (stages(&one.get(&path).1), stages(&two.get(&path).1));
        !own.is_empty() && own == elsewhere
    });
    let answer = trace(&two, "pods", "shared");
    let (request, write) = (span(&answer, "request"), span(&answer, "write"));
    assert_eq!(request["name"], "POST /api/v1/namespaces/default/pods");
    assert_eq!((&write["parent"], &write["name"]), (&request["id"], &json!("create")));
    assert!(!answer["notes"].to_string().contains("are missing"), "{answer:#}");
    // What was written through both, from either.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, _) = two.send("PATCH", "/api/v1/namespaces/default/pods/shared", Some(&labels));
    assert_eq!(code, 200);
    for caller in [&one, &two] {
        let (_, list) = caller.get(&format!("{path}&last=5"));
        let items = list["items"].as_array().unwrap();
        let verbs: Vec<&Value> = items.iter().map(|item| &span(item, "write")["name"]).collect();
        assert_eq!(verbs, ["create", "patch"], "{list:#}");
    }
    // Each server decides for its own users; between servers nothing is left out, which is for nobody else.
    let spans_of_all = "/coracle/v1/spans";
    assert_eq!(one.get(spans_of_all).0, 405);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([{"nonResourceURLs": ["/coracle/v1/*"], "verbs": ["*"]}]);
    two.create(&format!("{rbac}/clusterroles"), &json!({"metadata": {"name": "spans"}, "rules": rules}));
    let binding = json!({"metadata": {"name": "spans"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "spans"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"}]});
    two.create(&format!("{rbac}/clusterrolebindings"), &binding);
    for (user, groups) in [("ann", &[][..]), ("system:node:n1", &["system:nodes"])] {
        let caller = Caller::certified(&second, user, groups);
        assert_ne!(caller.get(&path).0, 200, "{user}");
        assert_eq!(caller.send("POST", spans_of_all, Some(&json!({}))).0, 403, "{user}");
    }
    // The Lease of a server that died stays.
    let gone = first.url().replace("https://", "");
    first.kill();
    let (code, answer) = two.get(&format!("{path}&last=5"));
    assert_eq!(code, 200, "{answer:#}");
    let note = format!("spans of server {gone} are missing: it cannot be reached");
    assert!(answer.to_string().contains(&note), "{note}: {answer:#}");
}

#[test]
fn what_was_deleted_is_gone_and_stays_known() {
    let mut server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let made = admin.create(MAPS, &config_map("short"));
    let (code, answer) = admin.send("DELETE", &format!("{MAPS}/short"), None);
    assert_eq!(code, 200, "{answer}");
    let check = |admin: &Caller| {
        let answer = trace(admin, "configmaps", "short");
        let object = &answer["object"];
        assert_eq!((&answer["state"], &object["exists"]), (&json!("gone"), &json!(false)), "{answer:#}");
        assert_eq!((&object["name"], &object["uid"]), (&json!("short"), &made["metadata"]["uid"]));
        assert_eq!(span(&answer, "write")["name"], "delete");
        let (_, list) = admin.get(&format!("{}&last=5", question("configmaps", "short")));
        let items = list["items"].as_array().unwrap();
        let verbs: Vec<&Value> = items.iter().map(|item| &span(item, "write")["name"]).collect();
        assert_eq!(verbs, ["create", "delete"], "the newest last");
        (answer["trace"].clone(), answer["spans"].as_array().unwrap().len())
    };
    let before = check(&admin);
    server.stop();
    server.restart();
    assert_eq!(check(&Caller::admin(&server)), before, "the same after a restart");
}
