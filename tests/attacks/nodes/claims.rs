//! A node says itself which addresses it has: that neither harms other nodes nor makes it an API server.

use super::{REQUESTS, ask, node_at, server};
use coracle_tests::caller::Caller;
use coracle_tests::etcd::Etcd;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use serde_json::json;
use std::time::Duration;

fn node(server: &Server, name: &str) -> Caller {
    Caller::certified(server, &format!("system:node:{name}"), &["system:nodes"])
}

/// Waits until a request is denied for this reason.
fn denied(admin: &Caller, request: &str, reason: &str) {
    eventually("the request is denied", Duration::from_secs(30), || {
        let request = admin.get(&format!("{REQUESTS}/{request}")).1;
        let condition = &request["status"]["conditions"][0];
        condition["type"] == "Denied" && condition["reason"] == reason
    });
}

#[test]
fn a_node_cannot_keep_another_from_its_certificate() {
    let server = server();
    let admin = Caller::admin(&server);
    let (evil, good) = (node(&server, "evil"), node(&server, "good"));
    node_at(&evil, "evil", "192.0.2.7", 10250);
    node_at(&good, "good", "192.0.2.7", 10250);
    let dir = tempfile::tempdir().unwrap();
    // An answer, after which the agent asks without the address; a request that waits would be none.
    denied(&admin, &ask(&good, dir.path(), "good", "DNS:good,IP:192.0.2.7"), "ClaimedName");
    let own = ask(&good, dir.path(), "good", "DNS:good");
    eventually("its own name is certified", Duration::from_secs(30), || {
        admin.get(&format!("{REQUESTS}/{own}")).1["status"]["certificate"].is_string()
    });
}

#[test]
fn a_node_cannot_be_certified_as_another_api_server() {
    let server = server();
    let admin = Caller::admin(&server);
    let slice = json!({"metadata": {"name": "kubernetes-2", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.50"]}],
        "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]});
    admin.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice);
    let evil = node(&server, "evil");
    node_at(&evil, "evil", "192.0.2.50", 10250);
    let dir = tempfile::tempdir().unwrap();
    denied(&admin, &ask(&evil, dir.path(), "evil", "DNS:evil,IP:192.0.2.50"), "ReservedName");
}

#[test]
fn a_node_cannot_be_certified_under_a_name_of_any_api_server() {
    let etcd = Etcd::start();
    let store = format!("etcd://{}", etcd.address);
    let first = Server::with(&["--datastore", &store, "--disable-admission-plugins", "ServiceAccount"]);
    let mut other =
        first.beside(&["--api-only", "--datastore", &store, "--tls-san", "api-2.example,192.0.2.60"]);
    let admin = Caller::admin(&first);
    let evil = node(&first, "evil");
    node_at(&evil, "evil", "192.0.2.60", 10250);
    let dir = tempfile::tempdir().unwrap();
    denied(&admin, &ask(&evil, dir.path(), "evil", "DNS:evil,DNS:api-2.example"), "ReservedName");
    // A server that died may come back.
    other.kill();
    denied(&admin, &ask(&evil, dir.path(), "evil", "DNS:evil,IP:192.0.2.60"), "ReservedName");
}

/// Roles that let a component elect its leader are common in `kube-system`; they do not make it an API server.
#[test]
fn who_may_write_leases_cannot_publish_an_api_server() {
    let server = server();
    let admin = Caller::admin(&server);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system";
    let rules = json!([{"verbs": ["*"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}]);
    admin.create(&format!("{rbac}/roles"), &json!({"metadata": {"name": "elector"}, "rules": rules}));
    admin.create(
        &format!("{rbac}/rolebindings"),
        &json!({"metadata": {"name": "elector"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "elector"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "elector"}}),
    );
    let elector = Caller::certified(&server, "elector", &[]);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver"});
    let claim = json!({"metadata": {"name": "apiserver-x", "labels": labels,
        "annotations": {"coracle.dev/advertise-address": "192.0.2.66:6443"}}, "spec": {"holderIdentity": "x"}});
    eventually("the role is in force", Duration::from_secs(10), || elector.get(leases).0 == 200);
    let (code, answer) = elector.send("POST", leases, Some(&claim));
    let why = answer["message"].as_str().unwrap_or_default();
    assert!(code == 403 && why.contains("belong to API servers"), "{code} {answer}");
    elector.create(leases, &json!({"metadata": {"name": "mine"}, "spec": {"holderIdentity": "x"}}));
    let (code, answer) =
        elector.send("PATCH", &format!("{leases}/mine"), Some(&json!({"metadata": {"labels": labels}})));
    assert_eq!(code, 403, "{answer}");
    let found =
        elector.get(&format!("{leases}?labelSelector=apiserver.kubernetes.io/identity%3Dkube-apiserver")).1;
    let name = found["items"][0]["metadata"]["name"].as_str().expect("the lease of the server").to_owned();
    assert_eq!(elector.send("DELETE", &format!("{leases}/{name}"), None).0, 403);
    assert_eq!(elector.send("DELETE", leases, None).0, 403, "nor all of them at once");
}
