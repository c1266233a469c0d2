//! A node says itself which addresses it has: that neither harms other nodes nor makes it an API server.

use super::{REQUESTS, ask, node_at, server};
use coracle_tests::caller::Caller;
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
