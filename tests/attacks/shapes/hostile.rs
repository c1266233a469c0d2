//! Hostile objects of every kind, through every way to write. Most are refused; what is stored can be read and deleted.

use super::{APPLY, JSON, RESERVED, YAML, define, nested, protobuf};
use bytes::Bytes;
use coracle_tests::caller::Caller;
use coracle_tests::client::{Connection, Target};
use coracle_tests::server::Server;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How many objects there are at least.
const OBJECTS: usize = 200;

/// A resource that can be created.
struct Kind {
    path: String,
    name: String,
    version: String,
}

/// Every resource of the discovery documents that can be created, with the namespace `default`.
fn kinds(admin: &Caller) -> Vec<Kind> {
    let mut versions = vec![("/api/v1".to_owned(), "v1".to_owned())];
    for group in admin.get("/apis").1["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let version = version["groupVersion"].as_str().unwrap().to_owned();
            versions.push((format!("/apis/{version}"), version));
        }
    }
    let mut all = Vec::new();
    for (root, version) in versions {
        for resource in admin.get(&root).1["resources"].as_array().into_iter().flatten() {
            let plural = resource["name"].as_str().unwrap();
            let verbs: Vec<&str> =
                resource["verbs"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            // Reviews and bindings are answered, not stored.
            if plural.contains('/') || !verbs.contains(&"create") || !verbs.contains(&"delete") {
                continue;
            }
            let within = if resource["namespaced"] == true { "namespaces/default/" } else { "" };
            let name = resource["kind"].as_str().unwrap().to_owned();
            all.push(Kind { path: format!("{root}/{within}{plural}"), name, version: version.clone() });
        }
    }
    all
}

/// What makes most kinds valid.
fn spec(kind: &str) -> Value {
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let selector = json!({"matchLabels": {"a": "b"}});
    match kind {
        "Pod" => pod,
        "Deployment" | "ReplicaSet" | "DaemonSet" => json!({"selector": selector, "template": template}),
        "StatefulSet" => json!({"selector": selector, "template": template, "serviceName": "s"}),
        "Service" => json!({"ports": [{"port": 80}]}),
        "PersistentVolumeClaim" => {
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
        }
        "PodDisruptionBudget" => json!({"minAvailable": 1}),
        _ => json!({}),
    }
}

/// Texts of objects, each hostile in its own way. The name is `h`.
fn texts(kind: &Kind) -> Vec<String> {
    let base = |meta: &str, rest: &str| {
        let (version, name, spec) = (&kind.version, &kind.name, spec(&kind.name));
        format!(
            r#"{{"apiVersion":"{version}","kind":"{name}","metadata":{{"name":"h"{meta}}},"spec":{spec}{rest}}}"#
        )
    };
    let owned = |depth: usize| {
        format!(
            r#","managedFields":[{{"manager":"m","operation":"Update","fieldsType":"FieldsV1","apiVersion":"{}","time":"2026-01-01T00:00:00Z","fieldsV1":{}}}]"#,
            kind.version,
            nested(depth)
        )
    };
    let big = "k".repeat(50_000);
    vec![
        // Odd text in places where any text is allowed.
        base(r#","annotations":{"a":"\u0000\ufeff\u202e e\u0301\u0301\u0301 \ud83d\ude00"}"#, ""),
        base(&owned(90), r#","data":{"a":"b"},"x":{"y":[1e300,-0.0,18446744073709551615]}"#),
        base(&owned(108), ""),
        base(&owned(120), &format!(r#","data":{}"#, nested(120))),
        base("", &format!(r#","data":{{"{big}":"{big}"}},"{big}":1"#)),
        base(&format!(r#","labels":{{"{big}":"x"}}"#), ""),
        base("", &format!(r#","list":[{}]"#, vec!["{}"; 5000].join(","))),
        base(r#","labels":{"a":"\ud800"}"#, ""),
        base(r#","generation":1e400"#, r#","replicas":9223372036854775808"#),
        base(
            r#","name":"h","labels":null,"finalizers":[null,1,"\u0000"],"ownerReferences":[null,{}]"#,
            r#","spec":[],"status":7"#,
        ),
        base(r#","managedFields":{},"labels":[],"annotations":"x""#, ""),
        base("", &format!(r#","data":{{"{RESERVED}":"[[["}},"status":{{"{RESERVED}":1}}"#)),
        format!("\u{feff}{}", base("", "")),
        format!(r#"{{"apiVersion":"{}","kind":"{}","metadata":["h"]}}"#, kind.version, kind.name),
        "[".repeat(100_000),
        r#"["h"]"#.to_owned(),
    ]
}

struct World {
    runtime: tokio::runtime::Runtime,
    target: Target,
    connection: Connection,
}

impl World {
    fn new(server: &Server) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let target = Target::new(server.data_dir(), &server.url()).unwrap();
        let connection = runtime.block_on(target.connect()).unwrap();
        Self { runtime, target, connection }
    }

    /// One request; the answer's code and text.
    fn send(&mut self, method: &str, path: &str, content_type: &str, body: &[u8]) -> (u16, Bytes) {
        let body = Bytes::copy_from_slice(body);
        let connection = &mut self.connection;
        let asked = async {
            let answer = connection.open_as(method, path, content_type, body).await?;
            let code = answer.status().as_u16();
            anyhow::Ok((code, answer.into_body().collect().await?.to_bytes()))
        };
        match self.runtime.block_on(asked) {
            Ok(answer) => answer,
            Err(error) => {
                // The server may end a connection; it must not end.
                self.connection = self
                    .runtime
                    .block_on(self.target.connect())
                    .unwrap_or_else(|e| panic!("{path}: {error}, {e}"));
                (0, Bytes::new())
            }
        }
    }
}

/// Sends one object every way there is. Codes of the server's own failure are errors, except of a body it cannot store.
fn attack(world: &mut World, kind: &Kind, text: &str, number: usize) {
    let one = format!("{}/h", kind.path);
    let applied = format!("{one}?fieldManager=m&force=true");
    let added = json!([{"op": "add", "path": "/metadata/annotations", "value": {"\u{0}": "\u{202e}"}},
        {"op": "add", "path": "/data", "value": nested(100)}, {"op": "copy", "from": "/data", "path": format!("/data{}", "/f:a".repeat(60))}]);
    let mut ways: Vec<(&str, &str, &str, Vec<u8>)> = vec![
        ("POST", &kind.path, JSON, text.into()),
        ("PUT", &one, JSON, text.into()),
        ("PATCH", &one, "application/merge-patch+json", text.into()),
        ("PATCH", &one, "application/strategic-merge-patch+json", text.into()),
        ("PATCH", &one, "application/json-patch+json", added.to_string().into()),
        ("PATCH", &applied, APPLY, text.into()),
    ];
    // YAML reads large texts slowly in a debug build.
    if text.len() < 50_000 {
        ways.push(("POST", &kind.path, YAML, text.into()));
    }
    if number.is_multiple_of(4) {
        let owned = nested(60 + number % 60).to_string();
        ways.push((
            "POST",
            &kind.path,
            "application/vnd.kubernetes.protobuf",
            protobuf(&kind.name, "h", &owned),
        ));
    }
    for (method, path, content_type, body) in ways {
        let (code, answer) = world.send(method, path, content_type, &body);
        // As upstream, apply answers 500 to fields that the kind does not have.
        let upstream =
            code == 500 && String::from_utf8_lossy(&answer).contains("failed to create typed patch object");
        let shown: String = text.chars().take(300).collect();
        assert!(
            code != 0 && code < 500 || upstream,
            "{method} {path} {content_type}: {code} {answer:?}\n{shown}"
        );
    }
}

#[test]
fn two_hundred_hostile_objects_leave_the_server_as_it_was() {
    let mut server = Server::start();
    let admin = Caller::admin(&server);
    define(&admin);
    let all = kinds(&admin);
    assert!(all.len() > 50, "only {} kinds", all.len());
    let mut world = World::new(&server);
    let mut sent = 0;
    for (i, kind) in all.iter().enumerate() {
        let texts = texts(kind);
        // Every kind gets some, the one that keeps everything gets all.
        for (j, text) in texts.iter().enumerate() {
            if kind.name == "Deep" || kind.name == "ConfigMap" || (i + j).is_multiple_of(4) {
                attack(&mut world, kind, text, sent);
                sent += 1;
            }
        }
    }
    assert!(sent >= OBJECTS, "only {sent} objects");
    assert_eq!(admin.get("/readyz").0, 200);
    assert!(!server.log().contains("panicked"), "{}", server.log());
    server.kill();
    server.restart();
    let mut world = World::new(&server);
    let (mut stored, mut seen) = (0, BTreeSet::new());
    for kind in &all {
        let (code, list) = world.send("GET", &kind.path, JSON, b"");
        assert_eq!(code, 200, "{}", kind.path);
        assert!(serde_json::from_slice::<Value>(&list).is_ok(), "{} cannot be listed", kind.path);
        let one = format!("{}/h", kind.path);
        let (code, _) = world.send("GET", &one, JSON, b"");
        assert!(matches!(code, 200 | 404), "GET {one}: {code}");
        if code == 200 {
            stored += 1;
            seen.insert(kind.name.clone());
            let (code, answer) = world.send("DELETE", &format!("{one}?gracePeriodSeconds=0"), JSON, b"");
            assert!(matches!(code, 200 | 202 | 404), "DELETE {one}: {code} {answer:?}");
        }
    }
    assert!(stored > 20 && seen.contains("Deep"), "only {stored} were stored: {seen:?}");
    super::all_is_well(&server, &admin, "after");
}
