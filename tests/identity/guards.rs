//! Impersonation, the audit log, encryption at rest, CORS, and authorizers other than the usual.

use crate::caller::{Caller, account_token};
use coracle_tests::etcd::Etcd;
use coracle_tests::https::Https;
use coracle_tests::kms::Kms;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const KEYS: [&str; 2] =
    ["MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="];

#[test]
fn impersonation_is_asked_for_and_everything_is_written_down() {
    let files = tempfile::tempdir().unwrap();
    let (log, policy) = (files.path().join("audit.log"), files.path().join("policy"));
    std::fs::write(
        &policy,
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n  resources: [{resources: [secrets]}]\n- level: RequestResponse\n  resources: [{resources: [configmaps]}]\n- level: Metadata\n",
    )
    .unwrap();
    // A webhook that takes no batch the first time.
    let (sent, tries) = (Arc::new(Mutex::new(Vec::new())), AtomicUsize::new(0));
    let took = sent.clone();
    let https = Https::start(move |asked| {
        if !asked.certified || asked.body["kind"] != "EventList" || tries.fetch_add(1, Ordering::SeqCst) == 0
        {
            return (500, Value::Null);
        }
        took.lock().unwrap().extend(asked.body["items"].as_array().unwrap().iter().cloned());
        (200, Value::Null)
    });
    let server = Server::with(&[
        "--api-only",
        "--audit-webhook-config-file",
        &https.kubeconfig(files.path(), "auditor"),
        "--audit-log-path",
        &log.display().to_string(),
        "--audit-policy-file",
        &policy.display().to_string(),
        "--cors-allowed-origins",
        "^https://ui[.]example$",
    ]);
    let (admin, ann) = (Caller::admin(&server), Caller::certified(&server, "ann", &[]));
    let as_bob = |caller: &Caller| caller.header("Impersonate-User: bob").header("Impersonate-Group: dev");
    let (name, groups) = as_bob(&admin).whoami().unwrap();
    assert_eq!((name.as_str(), groups), ("bob", vec!["dev".to_owned(), "system:authenticated".to_owned()]));
    assert_eq!(as_bob(&ann).whoami(), Err(403), "without the right");
    let (name, groups) = admin.header("Impersonate-User: Zoë").whoami().unwrap();
    assert_eq!((name.as_str(), groups.len()), ("Zoë", 1), "no letter makes a request that of who sends it");
    assert_eq!(admin.header("Impersonate-Group: dev").whoami(), Err(400), "a group of nobody");
    let (code, body) = ann.header("Impersonate-User: system:admin").get("/api/v1/pods");
    assert_eq!(code, 403);
    let missing = "cannot impersonate-on:user-info:list resource \"pods\"";
    assert!(body["message"].as_str().unwrap().contains(missing), "{body}");
    // What the server is and how it was started is for operators.
    for path in ["/statusz", "/flagz", "/flagz/", "/statusz/x"] {
        assert_eq!(ann.get(path).0, 403, "{path}");
        assert_eq!(Caller::nobody(&server).get(path).0, 401, "{path}");
    }
    let form = |page: &str| format!("Accept: application/json;as={page};g=config.k8s.io;v=v1beta1");
    let (code, status) = admin.header(&form("Statusz")).get("/statusz");
    assert_eq!(
        (code, &status["kind"], &status["emulationVersion"]),
        (200, &json!("Statusz"), &json!("1.36"))
    );
    let (code, flags) = admin.header(&form("Flagz")).get("/flagz");
    assert_eq!(
        (code, &flags["flags"]["api-only"], &flags["flags"]["token"]),
        (200, &json!("true"), &json!(""))
    );
    let yaml = admin.header("Accept: application/yaml;as=Statusz;v=v1beta1;g=config.k8s.io").get("/statusz");
    assert!(yaml.0 == 200 && yaml.1.as_str().unwrap().contains("kind: Statusz\n"), "{yaml:?}");
    assert_eq!(admin.header("Accept: application/json").get("/flagz").0, 406);
    assert_eq!(admin.send("POST", "/flagz", None).0, 405);
    // Who may list pods as bob may do nothing else as bob, and nothing as others.
    let rbac = "/apis/rbac.authorization.k8s.io/v1/";
    let rules = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "resourceNames": ["bob"], "verbs": ["impersonate:user-info"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:list"]},
    ]);
    admin.create(&format!("{rbac}clusterroles"), &json!({"metadata": {"name": "as-bob"}, "rules": rules}));
    let binding = json!({"metadata": {"name": "as-bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "as-bob"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]});
    admin.create(&format!("{rbac}clusterrolebindings"), &binding);
    let said = |header: &str, more: &str, path: &str| {
        let (code, body) = ann.header(header).header(more).get(path);
        (code, body["message"].as_str().unwrap_or_default().to_owned())
    };
    let (list, get) = ("/api/v1/pods", "/api/v1/namespaces/default/pods/p");
    coracle_tests::eventually("the role counts", std::time::Duration::from_secs(20), || {
        let (code, message) = said("Impersonate-User: bob", "X-None: x", list);
        code == 403 && message.contains("User \"bob\" cannot list resource \"pods\"")
    });
    for (header, more, path) in [
        ("Impersonate-User: bob", "X-None: x", get),
        ("Impersonate-User: bob", "X-None: x", "/api/v1/secrets"),
        ("Impersonate-User: bob", "Impersonate-Group: system:masters", list),
        ("Impersonate-User: carl", "X-None: x", list),
        ("Impersonate-User: system:node:bob", "X-None: x", list),
    ] {
        let (code, message) = said(header, more, path);
        assert!(
            code == 403 && message.contains("User \"ann\" cannot impersonate"),
            "{header}, {more}, {path}: {message}"
        );
    }
    // Who acts as somebody has their rights and no more.
    assert_eq!(as_bob(&admin).get("/api/v1/namespaces/default/secrets").0, 403);

    let secret = json!({"metadata": {"name": "s"}, "stringData": {"key": "hush-hush"}});
    admin.create("/api/v1/namespaces/default/secrets", &secret);
    // A ConfigMap "p" in protobuf, and strangers with and without something to show.
    let protobuf = files.path().join("protobuf");
    let envelope = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x05\x0a\x03\x0a\x01p";
    std::fs::write(&protobuf, envelope).unwrap();
    let body = format!("@{}", protobuf.display());
    let header = "Content-Type: application/vnd.kubernetes.protobuf";
    let (code, answer) = admin.header(header).with(&["--data-binary", &body]).send(
        "POST",
        "/api/v1/namespaces/default/configmaps",
        None,
    );
    assert_eq!(code, 201, "{answer}");
    assert_eq!(Caller::bearer(&server, "made-up").get("/api/v1/namespaces/hidden/pods?limit=3").0, 401);
    assert_eq!(Caller::nobody(&server).get("/api/v1/namespaces/hidden/pods").0, 401);
    let map = json!({"metadata": {"name": "m"}, "data": {"key": "well-known"}});
    admin.create("/api/v1/namespaces/default/configmaps", &map);
    let mut events: Vec<Value> = Vec::new();
    coracle_tests::eventually("events are written", std::time::Duration::from_secs(20), || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        events = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        events.iter().any(|e| {
            e["objectRef"]["resource"] == "configmaps"
                && e["objectRef"]["namespace"] == "default"
                && e["requestObject"]["metadata"]["name"] == "m"
        })
    });
    assert!(events.iter().all(|e| e["requestURI"].as_str().unwrap().starts_with('/')), "{events:?}");
    let binary = events.iter().find(|e| e["requestObject"]["metadata"]["name"] == "p").unwrap();
    assert_eq!(binary["requestObject"]["kind"], "ConfigMap", "{binary}");
    let unknown: Vec<&Value> = events.iter().filter(|e| e["objectRef"]["namespace"] == "hidden").collect();
    for (event, tried) in unknown.iter().zip(["attempted: bearer", "no credentials provided"]) {
        let status = &event["responseStatus"];
        assert_eq!((&event["user"], &event["stage"]), (&json!({}), &json!("ResponseStarted")), "{event}");
        assert_eq!((&status["code"], &status["reason"]), (&json!(401), &json!("Unauthorized")), "{event}");
        assert_eq!(status["message"], format!("Authentication failed, {tried}"), "{event}");
    }
    assert_eq!(
        (unknown.len(), &unknown[0]["requestURI"]),
        (2, &json!("/api/v1/namespaces/hidden/pods?limit=3"))
    );
    let find = |resource: &str, verb: &str| {
        let of = |e: &&Value| {
            e["objectRef"]["resource"] == resource
                && e["verb"] == verb
                && e["user"]["username"] == "kubernetes-admin"
        };
        events.iter().rfind(of).unwrap().clone()
    };
    let secret = find("secrets", "create");
    assert_eq!((&secret["level"], &secret["stage"]), (&json!("Metadata"), &json!("ResponseComplete")));
    assert!(!secret.to_string().contains("hush-hush") && secret["requestObject"].is_null());
    let map = find("configmaps", "create");
    assert_eq!(map["requestObject"]["data"]["key"], "well-known");
    assert_eq!(map["responseObject"]["data"]["key"], "well-known");
    assert_eq!(
        (&map["responseStatus"]["code"], &map["annotations"]["authorization.k8s.io/decision"]),
        (&json!(201), &json!("allow"))
    );
    coracle_tests::eventually("the webhook gets the same", std::time::Duration::from_secs(60), || {
        let sent = sent.lock().unwrap();
        [&secret, &map].iter().all(|event| sent.iter().any(|other| other["auditID"] == event["auditID"]))
    });
    let acting = events.iter().find(|e| e["impersonatedUser"]["username"] == "bob").unwrap();
    assert_eq!(acting["user"]["username"], "kubernetes-admin");
    let by_mode = |e: &&Value| e["impersonatedUser"]["username"] == "bob" && e["user"]["username"] == "ann";
    let by_mode = events.iter().find(by_mode).unwrap();
    assert_eq!(by_mode["authenticationMetadata"]["impersonationConstraint"], "impersonate:user-info");
    let forbidden = events.iter().find(|e| e["responseStatus"]["code"] == 403).unwrap();
    assert_eq!(forbidden["responseStatus"]["reason"], "Forbidden");

    let preflight = |origin: &str| {
        Caller::nobody(&server).header(&format!("Origin: {origin}")).send("OPTIONS", "/api", None).0
    };
    assert_eq!((preflight("https://ui.example"), preflight("https://evil.example")), (204, 401));
}

#[test]
fn other_authorizers_decide_in_their_order() {
    let files = tempfile::tempdir().unwrap();
    let policies = files.path().join("policies");
    let policy = |spec: &str| {
        format!(
            r#"{{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{spec}}}"#
        )
    };
    let lines = [
        policy(r#"{"user":"ann","namespace":"default","resource":"pods","readonly":true}"#),
        policy(r#"{"group":"ops","namespace":"*","resource":"*","apiGroup":"apps"}"#),
        policy(r#"{"user":"mon","nonResourcePath":"/metrics","readonly":true}"#),
    ];
    std::fs::write(&policies, lines.join("\n")).unwrap();
    let reviews = Arc::new(AtomicUsize::new(0));
    let count = reviews.clone();
    let https = Https::start(move |asked| {
        count.fetch_add(1, Ordering::SeqCst);
        let spec = &asked.body["spec"];
        let status = match spec["user"].as_str() {
            _ if !asked.certified => return (401, Value::Null),
            Some("carl") if spec["resourceAttributes"]["resource"] == "pods" => json!({"allowed": true}),
            Some("fay") if spec["nonResourceAttributes"]["path"] == "/metrics" => json!({"allowed": true}),
            Some("eve") => json!({"allowed": false, "denied": true, "reason": "not on a Sunday"}),
            Some("gus") => return (500, Value::Null),
            _ => json!({"allowed": false}),
        };
        (
            200,
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status}),
        )
    });
    let hook = https.kubeconfig(files.path(), "hook");
    let server = Server::with(&[
        "--api-only",
        "--authorization-mode",
        "ABAC,Webhook,RBAC",
        "--authorization-policy-file",
        &policies.display().to_string(),
        "--authorization-webhook-config-file",
        &hook,
    ]);
    let pods = |user: &str, method: &str| {
        let body = (method == "POST").then(|| json!({}));
        Caller::certified(&server, user, &[]).send(method, "/api/v1/namespaces/default/pods", body.as_ref())
    };
    assert_eq!(pods("ann", "GET").0, 200, "by policy");
    assert_eq!(pods("ann", "POST").0, 403, "read only");
    let get = |user: &str, groups: &[&str], path: &str| Caller::certified(&server, user, groups).get(path).0;
    assert_eq!(get("ann", &[], "/api/v1/namespaces/kube-system/pods"), 403, "another namespace");
    assert_eq!(get("ann", &[], "/api/v1/namespaces/default/secrets"), 403, "another resource");
    assert_eq!(get("olga", &["ops"], "/apis/apps/v1/deployments"), 200, "by a group");
    assert_eq!(get("olga", &["ops"], "/api/v1/pods"), 403, "another API group");
    assert_eq!(get("mon", &[], "/metrics"), 200, "by a path");
    assert_eq!(get("ann", &[], "/metrics"), 403, "somebody else's path");
    let carl = Caller::certified(&server, "carl", &[]);
    assert_eq!(carl.get("/api/v1/namespaces/default/pods").0, 200, "by webhook");
    let asked = reviews.load(Ordering::SeqCst);
    assert_eq!(carl.get("/api/v1/namespaces/default/pods").0, 200);
    assert_eq!(reviews.load(Ordering::SeqCst), asked, "an answer is kept");
    assert_eq!(get("carl", &[], "/api/v1/namespaces/default/secrets"), 403, "the webhook has no opinion");
    assert_eq!(get("fay", &[], "/metrics"), 200, "a path by webhook");
    assert_eq!(get("gus", &[], "/api/v1/pods"), 500, "the webhook fails, and no other authorizer decides");
    let (code, body) = pods("eve", "GET");
    assert_eq!(code, 403);
    assert!(
        body["message"].as_str().unwrap().ends_with("in the namespace \"default\": not on a Sunday"),
        "{body}"
    );
    assert_eq!(Caller::certified(&server, "dora", &[]).get("/api").0, 200, "RBAC, the last one");
    assert_eq!(Caller::admin(&server).get("/api/v1/nodes").0, 200, "masters always may");
    // Reviews agree with the chain.
    let review = |user: &str, resource: &str| {
        let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": user,
            "resourceAttributes": {"verb": "list", "resource": resource, "namespace": "default", "version": "v1"}}});
        Caller::admin(&server).create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &body)["status"]
            .clone()
    };
    assert_eq!(review("ann", "pods")["allowed"], true);
    assert_eq!(review("ann", "secrets")["allowed"], false);
    assert_eq!(review("carl", "pods")["allowed"], true);
    let eve = review("eve", "pods");
    assert_eq!((&eve["denied"], &eve["reason"]), (&json!(true), &json!("not on a Sunday")));
    drop(server);
    let closed = Server::with(&["--api-only", "--authorization-mode", "AlwaysDeny"]);
    assert_eq!(Caller::certified(&closed, "dora", &[]).get("/api").0, 403);
    assert_eq!(Caller::admin(&closed).get("/api/v1/nodes").0, 200, "masters always may");
    drop(closed);
    let (issuer, keys) = ("https://id.example.com", "https://keys.example.com/jwks");
    let open = Server::with(&[
        "--api-only",
        "--authorization-mode",
        "AlwaysAllow",
        "--anonymous-auth",
        "--service-account-issuer",
        issuer,
        "--service-account-jwks-uri",
        keys,
    ]);
    let somebody = Caller::certified(&open, "somebody", &[]);
    assert_eq!(somebody.get("/api/v1/namespaces/default/secrets").0, 200);
    let stranger = Caller::nobody(&open).get("/api/v1/namespaces/default/secrets").0;
    assert_eq!(stranger, 401, "everything for everybody needs a name at least");
    let (_, document) = somebody.get("/.well-known/openid-configuration");
    assert_eq!((&document["issuer"], &document["jwks_uri"]), (&json!(issuer), &json!(keys)));
    let token = account_token(&open, "default", "robot", json!({}));
    let (name, _) = Caller::bearer(&open, &token).whoami().unwrap();
    assert_eq!(name, "system:serviceaccount:default:robot", "tokens of another issuer");
}

#[test]
fn options_that_make_no_sense_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admission.yaml").display().to_string();
    let refused = |flags: &[&str], plugins: &str, words: &[&str]| {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
        std::fs::write(&file, format!("{head}plugins: [{plugins}]\n")).unwrap();
        let data = dir.path().join("data");
        let output = std::process::Command::new(coracle_tests::program("coracle"))
            .args(["server", "--api-only", "--bind", "127.0.0.1:0", "--data-dir"])
            .arg(&data)
            .args(flags)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{flags:?}: {said}");
        assert!(words.iter().all(|words| said.contains(words)), "{words:?}: {said}");
    };
    let together = "--oidc-issuer-url and --oidc-client-id must be specified together";
    refused(&["--oidc-client-id", "x"], "", &[together]);
    refused(&["--authorization-policy-file", &file], "", &["without mode ABAC"]);
    refused(
        &["--enable-admission-plugins", "X"],
        "",
        &["--enable-admission-plugins: unknown admission plugin: X"],
    );
    refused(
        &["--enable-admission-plugins", "EventRateLimit"],
        "",
        &["Error: --enable-admission-plugins", "couldn't init admission plugin \"EventRateLimit\": limits"],
    );
    let admission = "--admission-control-config-file";
    let configured = ["--admission-control-config-file", file.as_str()];
    let field = format!("{file}: plugins[0].configuration: ");
    refused(
        &configured,
        "{name: PodSecurity, configuration: {defaults: {}}}",
        &[admission, &field, "apiVersion: must be"],
    );
    refused(&configured, "{name: Priority, configuration: {a: 1}}", &[admission, &field, "no settings"]);
}

#[test]
fn secrets_are_sealed_on_both_stores_and_keys_rotate() {
    let etcd = Etcd::start();
    for datastore in ["embedded".to_owned(), format!("etcd://{}", etcd.address)] {
        let files = tempfile::tempdir().unwrap();
        let config = files.path().join("encryption");
        let write = |providers: &str| {
            let text = format!(
                "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: {providers}\n"
            );
            std::fs::write(&config, text).unwrap();
        };
        let [old, new] = KEYS;
        let aes = format!("{{aesgcm: {{keys: [{{name: old, secret: {old}}}]}}}}");
        let sealed = format!("{{secretbox: {{keys: [{{name: new, secret: {new}}}]}}}}");
        write("[{identity: {}}]");
        let flags = [
            "--api-only",
            "--datastore",
            &datastore,
            "--encryption-provider-config",
            &config.display().to_string(),
        ];
        let mut server = Server::with(&flags);
        let plain = "c3RpbGwtYS1zZWNyZXQ=";
        let path = "/api/v1/namespaces/default/secrets";
        Caller::admin(&server).create(path, &json!({"metadata": {"name": "s"}, "data": {"key": plain}}));
        // Sealed when the key comes, opened by the old key while the new one seals, and by the new one alone at last.
        for providers in
            [format!("[{aes}, {{identity: {{}}}}]"), format!("[{sealed}, {aes}]"), format!("[{sealed}]")]
        {
            write(&providers);
            server.kill();
            server.restart();
            let (code, body) = Caller::admin(&server).get(&format!("{path}/s"));
            assert_eq!((code, &body["data"]["key"]), (200, &json!(plain)), "{datastore} {providers}");
        }
        if datastore.starts_with("etcd") {
            let raw = etcd.get("/registry/secrets/default/s");
            assert!(raw.contains("k8s:enc:secretbox:v1:new:") && !raw.contains(plain), "{raw}");
        }
        // Without any key the server does not pretend.
        write(&format!("[{aes}]"));
        server.kill();
        assert!(!server.starts(), "{datastore}: values that cannot be opened are not lost silently");
        let said = server.log();
        assert!(
            said.contains("--encryption-provider-config") && said.contains("/registry/secrets/default/s: "),
            "{said}"
        );
    }
}

#[test]
fn a_key_management_service_seals_on_both_stores() {
    let etcd = Etcd::start();
    for datastore in ["embedded".to_owned(), format!("etcd://{}", etcd.address)] {
        let files = tempfile::tempdir().unwrap();
        let kms = Kms::start(files.path());
        let config = files.path().join("encryption");
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - kms: {{apiVersion: v2, name: vault, endpoint: 'unix://{}', timeout: 2s}}\n  - identity: {{}}\n",
            kms.socket.display()
        );
        std::fs::write(&config, text).unwrap();
        let config = config.display().to_string();
        let mut server = Server::with(&["--api-only", "--datastore", &datastore]);
        let (path, plain) = ("/api/v1/namespaces/default/secrets", "c3RpbGwtYS1zZWNyZXQ=");
        let secret = |name: &str| json!({"metadata": {"name": name}, "data": {"key": plain}});
        let reads = |server: &Server, name: &str| {
            let (code, body) = Caller::admin(server).get(&format!("{path}/{name}"));
            assert_eq!((code, &body["data"]["key"]), (200, &json!(plain)), "{datastore} {name}");
        };
        let raw = |name: &str| etcd.get(&format!("/registry/secrets/default/{name}"));
        let on_etcd = datastore.starts_with("etcd");
        Caller::admin(&server).create(path, &secret("before"));
        // The service comes: what is there is sealed, by a seed that it sealed once.
        server.kill();
        server.restart_with(&["--encryption-provider-config", &config]);
        reads(&server, "before");
        Caller::admin(&server).create(path, &secret("after"));
        assert_eq!(kms.state.sealed.load(Ordering::SeqCst), 1, "one seed for all values");
        for name in ["before", "after"].into_iter().filter(|_| on_etcd) {
            let raw = raw(name);
            assert!(
                raw.contains("k8s:enc:kms:v2:vault:") && raw.contains("key-0") && !raw.contains(plain),
                "{raw}"
            );
        }
        // Without the configuration nobody takes the Secrets for gone.
        server.kill();
        assert!(!server.starts(), "{datastore}: sealed values and no key");
        let said = server.log();
        assert!(
            said.contains("--encryption-provider-config")
                && said.contains("/registry/secrets/default/after is encrypted"),
            "{said}"
        );
        // It rotates its key: a new seed, and what the old one sealed is sealed anew at the next start.
        kms.state.key.store(1, Ordering::SeqCst);
        server.restart_with(&["--encryption-provider-config", &config]);
        for name in ["before", "after"] {
            reads(&server, name);
            assert!(!on_etcd || raw(name).contains("key-1"), "{name}");
        }
        assert!(kms.state.opened.load(Ordering::SeqCst) >= 1, "seeds are opened by the service");
        // It goes away: the server goes on with what it has, and does not start without it.
        kms.state.away.store(true, Ordering::SeqCst);
        Caller::admin(&server).create(path, &secret("meanwhile"));
        reads(&server, "meanwhile");
        server.kill();
        assert!(!server.starts_with(&["--encryption-provider-config", &config]), "{datastore}");
        kms.state.away.store(false, Ordering::SeqCst);
        server.restart_with(&["--encryption-provider-config", &config]);
        reads(&server, "meanwhile");
    }
}

#[test]
fn what_admission_thinks_of_pods_is_written_down() {
    let files = tempfile::tempdir().unwrap();
    let (log, admission) = (files.path().join("audit.log"), files.path().join("admission"));
    std::fs::write(
        &admission,
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: PodSecurity\n  configuration:\n    apiVersion: pod-security.admission.config.k8s.io/v1\n    kind: PodSecurityConfiguration\n    defaults: {enforce: baseline, audit: restricted, warn: restricted}\n    exemptions: {usernames: [trusted], namespaces: [kube-system], runtimeClasses: [vm]}\n",
    )
    .unwrap();
    let server = Server::with(&[
        "--api-only",
        "--audit-log-path",
        &log.display().to_string(),
        "--admission-control-config-file",
        &admission.display().to_string(),
        "--disable-admission-plugins",
        "ServiceAccount",
    ]);
    let admin = Caller::admin(&server);
    let class = json!({"metadata": {"name": "vm"}, "handler": "vm"});
    admin.create("/apis/node.k8s.io/v1/runtimeclasses", &class);
    let pod = |name: &str, spec: Value| {
        let mut pod =
            json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        pod
    };
    let host = || json!({"hostPID": true});
    let send = |caller: &Caller, namespace: &str, pod: Value| {
        caller.send("POST", &format!("/api/v1/namespaces/{namespace}/pods"), Some(&pod)).0
    };
    assert_eq!(send(&admin, "default", pod("plain", json!({}))), 201);
    assert_eq!(send(&admin, "default", pod("host", host())), 403, "the default level refuses");
    assert_eq!(send(&admin, "kube-system", pod("system", host())), 201, "an exempt namespace");
    let trusted = Caller::certified(&server, "trusted", &["system:masters"]);
    assert_eq!(send(&trusted, "default", pod("trusted", host())), 201, "an exempt user");
    let inside = json!({"hostPID": true, "runtimeClassName": "vm"});
    assert_eq!(send(&admin, "default", pod("inside", inside)), 201, "an exempt runtime class");
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template":
        {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    admin.create("/apis/apps/v1/namespaces/default/deployments", &deployment);

    let prefix = "pod-security.kubernetes.io";
    let mut notes = Vec::new();
    coracle_tests::eventually("events are written", std::time::Duration::from_secs(30), || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let made = events.filter(|e| {
            e["verb"] == "create"
                && matches!(e["objectRef"]["resource"].as_str(), Some("pods" | "deployments"))
        });
        notes = made.map(|event| event["annotations"].clone()).collect();
        notes.len() == 6
    });
    let [plain, host, system, trusted, inside, deployment] = &notes[..] else { panic!("{notes:?}") };
    let note = |of: &Value, key: &str| of[format!("{prefix}/{key}")].as_str().unwrap_or_default().to_owned();
    assert_eq!(note(plain, "enforce-policy"), "baseline:latest");
    let violations = note(plain, "audit-violations");
    assert!(
        violations.starts_with(
            "would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false"
        ),
        "{violations}"
    );
    assert_eq!(note(host, "enforce-policy"), "baseline:latest");
    assert!(note(host, "audit-violations").contains("host namespaces (hostPID=true)"), "{host}");
    for (of, why) in [(system, "namespace"), (trusted, "user"), (inside, "runtimeClass")] {
        assert_eq!((note(of, "exempt").as_str(), note(of, "audit-violations").as_str()), (why, ""), "{of}");
    }
    assert!(note(deployment, "audit-violations").contains("runAsNonRoot != true"), "{deployment}");
    assert_eq!(plain["authorization.k8s.io/decision"], "allow");
}
