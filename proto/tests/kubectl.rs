//! Protobuf bodies as kubectl 1.33 sends them (`tests/kubectl/*.pb`), against what the same command prints as JSON.
#![allow(clippy::unwrap_used)]

use coracle_proto::{protobuf, schema};
use serde_json::{Value, json};

fn read(name: &str) -> Value {
    let path = format!("{}/tests/kubectl/{name}.pb", env!("CARGO_MANIFEST_DIR"));
    let body = std::fs::read(&path).unwrap();
    let envelope = protobuf::open(&body).unwrap();
    let (group, version) = envelope.meta.group_version();
    let kind = schema::kind_type(group, version, &envelope.meta.kind).unwrap();
    protobuf::read(kind, envelope.raw).unwrap()
}

#[test]
fn bodies_of_kubectl_create() {
    assert_eq!(
        read("configmap"),
        json!({"data": {"color": "blue", "empty": ""}, "metadata": {"name": "settings"}})
    );
    assert_eq!(read("secret"), json!({"data": {"password": "czNjcmV0"}, "metadata": {"name": "keys"}}));
    assert_eq!(
        read("deployment"),
        json!({"metadata": {"labels": {"app": "web"}, "name": "web"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "strategy": {},
                "template": {"metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"image": "nginx:1.27", "name": "nginx", "ports": [{"containerPort": 80}],
                        "resources": {}}]}}},
            "status": {}})
    );
    assert_eq!(
        read("service"),
        json!({"metadata": {"labels": {"app": "web"}, "name": "web"},
            "spec": {"ports": [{"name": "80-8080", "nodePort": 30080, "port": 80, "protocol": "TCP", "targetPort": 8080}],
                "selector": {"app": "web"}, "type": "NodePort"},
            "status": {"loadBalancer": {}}})
    );
    assert_eq!(
        read("job"),
        json!({"metadata": {"name": "once"},
            "spec": {"template": {"metadata": {}, "spec": {"containers": [{"command": ["echo", "hi"], "image": "busybox",
                "name": "once", "resources": {}}], "restartPolicy": "Never"}}},
            "status": {}})
    );
    assert_eq!(read("cronjob")["spec"]["schedule"], json!("0 3 * * *"));
    assert_eq!(
        read("ingress")["spec"],
        json!({"ingressClassName": "nginx", "rules": [{"host": "example.com", "http": {"paths": [
            {"backend": {"service": {"name": "web", "port": {"number": 80}}}, "path": "/", "pathType": "Prefix"}]}}]})
    );
    assert_eq!(read("pdb")["spec"]["minAvailable"], json!("50%"));
    assert_eq!(read("quota")["spec"]["hard"], json!({"cpu": "1500m", "memory": "1536Mi", "pods": "10"}));
    assert_eq!(
        read("rolebinding")["subjects"],
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"},
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "ops"}])
    );
    assert_eq!(read("token")["spec"], json!({"audiences": ["api"], "expirationSeconds": 600}));
    assert_eq!(
        read("priorityclass"),
        json!({"metadata": {"name": "high"}, "preemptionPolicy": "Never", "value": 1000})
    );
    assert_eq!(
        read("review")["spec"],
        json!({"resourceAttributes": {"namespace": "default", "resource": "pods", "verb": "list"}})
    );
}

#[test]
fn broken_envelopes_are_refused() {
    for (body, why) in [
        (&b""[..], "empty data"),
        (b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b"k8s\0", "empty body"),
        (b"k8s\0\x0a\xff", "unexpected EOF"),
        (b"k8s\0\x0a\x05ab", "unexpected EOF"),
    ] {
        assert_eq!(protobuf::open(body).unwrap_err().to_string(), why);
    }
}
