//! Objects made to break whoever reads them: too deep for a parser, too wide for memory, with names that mean something else
//! when they are read back. One that is stored stops the scheduler, the watches and the next start of the server.

// 200 objects through every way to write.
mod hostile;

use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_proto::limits::RESERVED;
use coracle_store::{Durability, Write};
use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::https::Https;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::Duration;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const APPLY: &str = "application/apply-patch+yaml";
const CLAIMS: &str = "/api/v1/namespaces/team/persistentvolumeclaims";
const MAPS: &str = "/api/v1/namespaces/team/configmaps";
const DEEPS: &str = "/apis/example.com/v1/namespaces/team/deeps";

/// Objects inside each other.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({}), |inner, _| json!({"f:a": inner}))
}

/// A body from a file: some are longer than an argument may be.
fn sent(
    server: &Server,
    caller: &Caller,
    method: &str,
    path: &str,
    content_type: &str,
    body: &[u8],
) -> (u16, Value) {
    let file = server.data_dir().join("body");
    std::fs::write(&file, body).unwrap();
    let body = format!("@{}", file.display());
    let typed = format!("Content-Type: {content_type}");
    caller.with(&["-H", &typed, "--data-binary", &body]).send(method, path, None)
}

/// A claim with one set of owned fields.
fn claim(name: &str, owned: Value) -> Value {
    let entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z", "fieldsV1": owned});
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "managedFields": [entry]},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

/// YAML in which each of 200 lines holds the line before it.
fn aliased(head: &str, tail: &str) -> String {
    let mut text = format!("{head}\nx0: &x0 {{}}\n");
    for i in 1..200 {
        text.push_str(&format!("x{i}: &x{i} {{\"f:a\": *x{} }}\n", i - 1));
    }
    text + tail
}

/// The claim of the audit: 200 lines.
fn aliased_claim() -> String {
    aliased(
        "apiVersion: v1\nkind: PersistentVolumeClaim",
        "metadata:\n  name: aliases\n  managedFields:\n  - {manager: m, operation: Update, apiVersion: v1, \
         fieldsType: FieldsV1, time: '2026-01-01T00:00:00Z', fieldsV1: *x199 }\n\
         spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n",
    )
}

/// A length-delimited protobuf field.
fn field(number: usize, content: &[u8]) -> Vec<u8> {
    let varint = |mut n: usize| {
        let mut bytes = Vec::new();
        while n > 127 {
            bytes.push((n & 127) as u8 | 128);
            n >>= 7;
        }
        bytes.push(n as u8);
        bytes
    };
    [varint(number << 3 | 2), varint(content.len()), content.to_vec()].concat()
}

/// The protobuf form of an object with a name and one set of owned fields.
fn protobuf(kind: &str, name: &str, owned: &str) -> Vec<u8> {
    let entry = [
        field(1, b"m"),
        field(2, b"Update"),
        field(3, b"v1"),
        field(4, &[8, 1]),
        field(6, b"FieldsV1"),
        field(7, &field(1, owned.as_bytes())),
    ]
    .concat();
    let meta = [field(1, name.as_bytes()), field(17, &entry)].concat();
    let envelope = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &envelope), field(2, &field(1, &meta))].concat()
}

/// A kind of the cluster's own that keeps whatever it is sent.
fn define(admin: &Caller) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    admin.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "deeps.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "deeps", "singular": "deep", "kind": "Deep", "listKind": "DeepList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}}),
    );
    eventually("the kind is served", Duration::from_secs(20), || {
        admin.get("/apis/example.com/v1/namespaces/default/deeps").0 == 200
    });
}

/// The server answers, its parts are well, and the scheduler finds a node for a new pod.
fn all_is_well(server: &Server, admin: &Caller, pod: &str) {
    assert_eq!(admin.get("/readyz").0, 200, "{}", server.log());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    admin.send("POST", "/api/v1/nodes", Some(&node));
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    admin.send(
        "PATCH",
        "/api/v1/nodes/n/status",
        Some(&json!({"status": {"capacity": room, "allocatable": room}})),
    );
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "tolerations": [{"operator": "Exists"}]}});
    // The account that pods run as is made by a controller.
    eventually("a pod is made", Duration::from_secs(20), || {
        matches!(admin.send("POST", "/api/v1/namespaces/default/pods", Some(&body)).0, 201 | 409)
    });
    eventually("the pod gets a node", Duration::from_secs(20), || {
        admin.get(&format!("/api/v1/namespaces/default/pods/{pod}")).1["spec"]["nodeName"] == "n"
    });
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// Somebody who may edit the namespace `team` and nothing else.
fn editor(server: &Server, admin: &Caller) -> Caller {
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "team"}}));
    let bind = |name: &str, role: &str| {
        admin.create(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings",
            &json!({"metadata": {"name": name}, "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
                "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}}),
        );
    };
    bind("edit", "edit");
    let rules = json!([{"apiGroups": ["example.com"], "resources": ["*"], "verbs": ["*"]}]);
    admin.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        &json!({"metadata": {"name": "deeps"}, "rules": rules}),
    );
    bind("deeps", "deeps");
    Caller::certified(server, "eve", &[])
}

#[test]
fn a_namespace_editor_cannot_store_what_nobody_can_read() {
    // Adds, to whatever is made, a tree that is deeper than an object may be.
    let https = Https::start(|asked| {
        let deeper = nested(if asked.path.starts_with("/deep") { 105 } else { 60 });
        let mut patch = vec![json!({"op": "add", "path": "/spec", "value": deeper})];
        if asked.path.starts_with("/twice") {
            patch.push(
                json!({"op": "add", "path": format!("/spec{}", "/f:a".repeat(60)), "value": nested(90)}),
            );
        }
        let response = json!({"uid": asked.body["request"]["uid"], "allowed": true, "patchType": "JSONPatch",
            "patch": STANDARD.encode(Value::from(patch).to_string())});
        (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
    });
    let mut server = Server::start();
    let admin = Caller::admin(&server);
    define(&admin);
    let eve = editor(&server, &admin);
    all_is_well(&server, &admin, "before");
    let send = |method: &str, path: &str, content_type: &str, body: &[u8]| {
        sent(&server, &eve, method, path, content_type, body)
    };
    let deep = |name: &str, spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Deep", "metadata": {"name": name}, "spec": spec});
    assert_eq!(send("POST", CLAIMS, JSON, claim("good", nested(3)).to_string().as_bytes()).0, 201);
    assert_eq!(send("POST", DEEPS, JSON, deep("good", nested(90)).to_string().as_bytes()).0, 201);

    let deeper = json!([{"op": "add", "path": "/metadata/managedFields", "value": [{"fieldsV1": nested(90)}]},
        {"op": "add", "path": format!("/metadata/managedFields/0/fieldsV1{}", "/f:a".repeat(90)), "value": nested(90)}]);
    let owned = json!({"metadata": claim("good", nested(112))["metadata"]});
    let spec = json!({"spec": nested(110)});
    let map = format!("{MAPS}/good");
    let mut replaced = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    assert_eq!(send("POST", MAPS, JSON, json!({"metadata": {"name": "good"}}).to_string().as_bytes()).0, 201);
    replaced["metadata"] = claim("good", nested(112))["metadata"].clone();
    let (one, other) = (format!("{CLAIMS}/good"), format!("{DEEPS}/good"));
    let applied = format!("{DEEPS}/applied?fieldManager=m");
    let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "r"},
        "revision": 1, "data": nested(110)});
    let wide = json!({"apiVersion": "example.com/v1", "kind": "Deep", "metadata": {"name": "wide"},
        "spec": vec![json!({}); 300_000]});
    let attacks: Vec<(&str, &str, &str, &str, Vec<u8>)> = vec![
        ("aliases", "POST", CLAIMS, YAML, aliased_claim().into()),
        ("owned fields", "POST", CLAIMS, JSON, claim("json", nested(112)).to_string().into()),
        (
            "a reserved name",
            "POST",
            CLAIMS,
            JSON,
            claim("reserved", json!({RESERVED: "x"})).to_string().into(),
        ),
        ("PUT", "PUT", &map, JSON, replaced.to_string().into()),
        ("JSON patch", "PATCH", &one, "application/json-patch+json", deeper.to_string().into()),
        ("merge patch", "PATCH", &one, "application/merge-patch+json", owned.to_string().into()),
        (
            "strategic patch",
            "PATCH",
            &one,
            "application/strategic-merge-patch+json",
            owned.to_string().into(),
        ),
        (
            "protobuf",
            "POST",
            MAPS,
            "application/vnd.kubernetes.protobuf",
            protobuf("ConfigMap", "protobuf", &nested(120).to_string()),
        ),
        ("a custom resource", "POST", DEEPS, JSON, deep("json", nested(110)).to_string().into()),
        ("its merge patch", "PATCH", &other, "application/merge-patch+json", spec.to_string().into()),
        ("apply", "PATCH", &applied, APPLY, deep("applied", nested(110)).to_string().into()),
        (
            "apply with aliases",
            "PATCH",
            &applied,
            APPLY,
            aliased("apiVersion: example.com/v1\nkind: Deep\nmetadata: {name: applied}", "").into(),
        ),
        (
            "apply with a reserved name",
            "PATCH",
            &applied,
            APPLY,
            deep("applied", json!({RESERVED: "x"})).to_string().into(),
        ),
        ("many values", "POST", DEEPS, JSON, wide.to_string().into()),
        (
            "many bytes",
            "POST",
            DEEPS,
            JSON,
            deep("large", json!({"text": "x".repeat(1600 * 1024)})).to_string().into(),
        ),
        (
            "raw data",
            "POST",
            "/apis/apps/v1/namespaces/team/controllerrevisions",
            JSON,
            revision.to_string().into(),
        ),
    ];
    for (what, method, path, content_type, body) in &attacks {
        let (code, answer) = send(method, path, content_type, body);
        assert!(matches!(code, 400 | 403 | 413 | 422), "{what}: {code} {answer}");
    }
    // Who wrote it is told where it is too deep.
    let (code, answer) = send("POST", DEEPS, JSON, deep("json", nested(110)).to_string().as_bytes());
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(
        code == 422 && message.starts_with("Deep.example.com \"json\" is invalid: spec.f:a.f:a"),
        "{answer}"
    );
    assert!(message.ends_with("may not be nested more than 100 levels deep"), "{message}");

    for path in ["/deep", "/twice"] {
        let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "deepen"}, "webhooks": [{"name": "deepen.example.com", "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "clientConfig": {"url": https.url(path), "caBundle": STANDARD.encode(https.authority())},
            "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["deeps"], "operations": ["CREATE"]}]}]});
        let hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        admin.create(hooks, &hook);
        eventually("the webhook is called and refused", Duration::from_secs(10), || {
            let (code, answer) = send("POST", DEEPS, JSON, deep("hooked", json!({})).to_string().as_bytes());
            if code == 201 {
                let spec = answer["spec"].to_string().len();
                assert!(spec < 10, "the webhook stored a tree of {spec} bytes");
                eve.send("DELETE", &format!("{DEEPS}/hooked"), None);
            }
            code != 201
        });
        admin.send("DELETE", &format!("{hooks}/deepen"), None);
    }

    for (path, name) in [
        (CLAIMS, "aliases"),
        (CLAIMS, "json"),
        (CLAIMS, "reserved"),
        (MAPS, "protobuf"),
        (DEEPS, "json"),
        (DEEPS, "applied"),
        (DEEPS, "wide"),
        (DEEPS, "hooked"),
    ] {
        assert_eq!(eve.get(&format!("{path}/{name}")).0, 404, "{name} is stored");
    }
    all_is_well(&server, &admin, "after");
    server.kill();
    server.restart();
    all_is_well(&server, &admin, "again");
    for path in [&one, &other] {
        assert_eq!(eve.get(path).0, 200, "{path}");
        assert_eq!(eve.send("DELETE", path, None).0, 200, "{path}");
    }
}

/// What an older version stored, or somebody wrote into the store by hand.
fn write_by_hand(server: &Server, values: &[(&str, String)]) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store =
            coracle_store::open(&coracle_store::Datastore::Embedded, server.data_dir()).await.unwrap();
        for (key, value) in values {
            let expect = store.get(key).await.unwrap().map_or(0, |there| there.modified);
            let value = Some(value.clone().into());
            store
                .write(Write {
                    key: (*key).to_owned(),
                    expect,
                    value,
                    durability: Durability::Sync,
                    fence: None,
                })
                .await
                .unwrap();
        }
        store.flush().await.unwrap();
    });
}

#[test]
fn an_object_that_is_stored_and_unreadable_stops_nobody_and_can_be_deleted() {
    if std::env::var("CORACLE_DATASTORE").is_ok_and(|store| store != "embedded") {
        return coracle_tests::skipped(
            "attacks::an_object_that_is_stored_and_unreadable_stops_nobody_and_can_be_deleted",
            "it writes into the embedded store",
        );
    }
    let mut server = Server::start();
    let admin = Caller::admin(&server);
    all_is_well(&server, &admin, "before");
    // A dependent whose owner becomes unreadable: it is not garbage.
    let maps = "/api/v1/namespaces/default/configmaps";
    let owner = admin.create(maps, &json!({"metadata": {"name": "owner"}}));
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    admin.create(maps, &json!({"metadata": {"name": "dependent", "ownerReferences": [reference]}}));
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "doomed"}}));
    server.kill();
    let deep = format!("{}{}", r#"{"a":"#.repeat(5000) + "1", "}".repeat(5000));
    let claim = |owned: &str| {
        format!(
            r#"{{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{{"name":"deep","namespace":"default","managedFields":[{{"fieldsV1":{owned}}}]}},"spec":{{}}}}"#
        )
    };
    let broken = [
        ("/registry/persistentvolumeclaims/default/deep", claim(&deep), "persistentvolumeclaims/deep"),
        ("/registry/pods/default/garbage", "\u{1}no JSON".to_owned(), "pods/garbage"),
        ("/registry/secrets/default/blank", "{}".to_owned(), "secrets/blank"),
        (
            "/registry/configmaps/default/owner",
            format!(r#"{{"metadata":{{"name":"owner","namespace":"default"}},"data":{deep}}}"#),
            "configmaps/owner",
        ),
        (
            "/registry/configmaps/default/misplaced",
            r#"{"metadata":{"name":"kubernetes","namespace":"kube-system"}}"#.to_owned(),
            "configmaps/misplaced",
        ),
        (
            "/registry/services/default/reserved",
            format!(
                r#"{{"metadata":{{"name":"reserved","namespace":"default"}},"spec":{{"{RESERVED}":"x"}}}}"#
            ),
            "services/reserved",
        ),
        ("/registry/configmaps/doomed/left", "{}".to_owned(), ""),
    ];
    let values: Vec<(&str, String)> = broken.iter().map(|(key, value, _)| (*key, value.clone())).collect();
    write_by_hand(&server, &values);
    server.restart();
    all_is_well(&server, &admin, "after");
    let unreadable = || -> String {
        let page = admin.get("/metrics").1.as_str().unwrap_or_default().to_owned();
        page.lines()
            .find_map(|line| line.strip_prefix("coracle_unreadable_objects "))
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(unreadable(), broken.len().to_string());
    for (key, _, path) in broken.iter().filter(|(.., path)| !path.is_empty()) {
        let (plural, name) = path.split_once('/').unwrap();
        assert!(server.log().contains(key), "the log names {key}");
        let all = format!("/api/v1/namespaces/default/{plural}");
        let (code, list) = admin.get(&all);
        let names: Vec<&str> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["metadata"]["name"].as_str())
            .collect();
        assert!(code == 200 && !names.contains(&name), "{plural}: {code} {names:?}");
        let (code, answer) = admin.get(&format!("{all}/{name}"));
        assert!(
            code == 500 && answer["message"].as_str().is_some_and(|text| text.contains(key)),
            "{code} {answer}"
        );
        if *name == *"owner" {
            // As long as it is not known what the owner is, nothing of its goes.
            assert_eq!(admin.get(&format!("{maps}/dependent")).0, 200);
        }
        let (code, answer) = admin.send("DELETE", &format!("{all}/{name}"), None);
        assert_eq!(code, 200, "{path}: {answer}");
        assert_eq!(admin.get(&format!("{all}/{name}")).0, 404, "{path}");
    }
    admin.create(maps, &json!({"metadata": {"name": "misplaced"}}));
    // A namespace takes with it what cannot be read.
    assert_eq!(admin.send("DELETE", "/api/v1/namespaces/doomed", None).0, 200);
    eventually("the namespace is gone", Duration::from_secs(20), || {
        admin.get("/api/v1/namespaces/doomed").0 == 404
    });
    assert_eq!(unreadable(), "0");
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
