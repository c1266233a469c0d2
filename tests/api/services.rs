//! Addresses and ports of Services: who gets which, and what is refused.

use crate::on_both_stores;
use coracle_tests::eventually;
use coracle_tests::kubectl::{Kubectl, newest};
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::Duration;

fn service(name: &str, spec: Value) -> String {
    let mut spec = spec;
    if spec["ports"].is_null() {
        spec["ports"] = json!([{"port": 80}]);
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}).to_string()
}

fn refused(kubectl: &Kubectl, spec: Value, want: &str) {
    let answer = kubectl.try_with("create --validate=false -f -", &service("bad", spec.clone()));
    assert!(!answer.ok && answer.err.contains(want), "{spec}: {want:?} in {answer:?}");
}

#[test]
fn addresses_and_ports_have_one_owner() {
    on_both_stores(|server: &Server| {
        let kubectl = newest(&server.kubeconfig());
        let node_port =
            json!({"type": "NodePort", "clusterIP": "10.96.3.3", "ports": [{"port": 80, "nodePort": 30333}]});
        kubectl.run_with("create -f -", &service("first", node_port));
        let local =
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30444});
        kubectl.run_with("create -f -", &service("local", local.clone()));
        for (spec, want) in [
            (
                json!({"clusterIP": "192.0.2.7"}),
                "failed to allocate IP 192.0.2.7: the provided network does not match the current range",
            ),
            (
                json!({"clusterIP": "10.96.3.3"}),
                "failed to allocate IP 10.96.3.3: provided IP is already allocated",
            ),
            (json!({"clusterIP": "10.96.0.1"}), "provided IP is already allocated"),
            (json!({"clusterIP": "300.1.2.3"}), "must be a valid IP address"),
            (
                json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30333}]}),
                "spec.ports[0].nodePort: Invalid value: 30333: provided port is already allocated",
            ),
            (
                json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 95536}]}),
                "spec.ports[0].nodePort: Invalid value: 95536: provided port is not in the valid range",
            ),
            (
                json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
                "provided port is not in the valid range. The range of valid ports is 30000-32767",
            ),
            (local, "provided port is already allocated"),
            (
                json!({"ipFamilyPolicy": "RequireDualStack"}),
                "this cluster is not configured for dual-stack services",
            ),
            (json!({"ipFamilies": ["IPv6"]}), "not configured on this cluster"),
            (json!({"sessionAffinity": "Maybe"}), "supported values: \"ClientIP\", \"None\""),
            (json!({"ports": [{"port": 0}]}), "must be between 1 and 65535, inclusive"),
            (json!({"ports": [{"port": 80}, {"port": 81}]}), "spec.ports[0].name: Required value"),
        ] {
            refused(&kubectl, spec, want);
        }
        // What is given back can be had again; what was refused took nothing.
        kubectl.run("delete service first local");
        let again =
            json!({"type": "NodePort", "clusterIP": "10.96.3.3", "ports": [{"port": 80, "nodePort": 30333}]});
        kubectl.run_with("create -f -", &service("second", again));
        kubectl.run_with(
            "create -f -",
            &service("other", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30444}]})),
        );
    });
}

#[test]
fn a_manifest_without_an_address_changes_none() {
    on_both_stores(|server: &Server| {
        let kubectl = newest(&server.kubeconfig());
        let empty = |port: u16| {
            service(
                "chart",
                json!({"type": "NodePort", "clusterIP": "", "ports": [{"name": "http", "port": port}]}),
            )
        };
        let shown = || {
            let path = "{.spec.clusterIP} {.spec.clusterIPs[*]} {.spec.ports[*].nodePort}";
            kubectl.run(&format!("get service chart -o 'jsonpath={path}'"))
        };
        kubectl.run_with("apply -f -", &empty(80));
        let first = shown();
        assert_eq!(first.split(' ').count(), 3, "{first}");
        for (args, body) in [
            ("apply -f -", empty(81)),
            ("replace -f -", empty(82)),
            ("apply --server-side --force-conflicts -f -", empty(82)),
            ("patch service chart -p '{\"spec\":{\"clusterIP\":\"\"}}'", String::new()),
            ("patch service chart --type=merge -p '{\"spec\":{\"clusterIP\":null}}'", String::new()),
            ("patch service chart --type=merge -p '{\"spec\":{\"clusterIPs\":null}}'", String::new()),
        ] {
            let answer = kubectl.try_with(args, &body);
            assert!(answer.ok, "{args}: {answer:?}");
            assert_eq!(shown(), first, "{args}");
        }
        let other = kubectl.try_with("patch service chart -p '{\"spec\":{\"clusterIP\":\"10.96.3.9\"}}'", "");
        assert!(!other.ok && other.err.contains("may not change once set"), "{other:?}");
    });
}

#[test]
fn services_of_two_families() {
    let ranges =
        ["--service-cidr", "10.96.0.0/16,fd00:96::/112", "--cluster-cidr", "10.244.0.0/16,fd00:244::/48"];
    let server = Server::with(&[&["--api-only"], &ranges[..]].concat());
    let kubectl = newest(&server.kubeconfig());
    let ips = |name: &str| kubectl.run(&format!("get service {name} -o jsonpath={{.spec.clusterIPs[*]}}"));
    kubectl.run_with("create -f -", &service("one", json!({})));
    assert!(!ips("one").contains(':'), "{}", ips("one"));
    let first = ips("one");
    kubectl.run("patch service one -p '{\"spec\":{\"ipFamilyPolicy\":\"RequireDualStack\"}}'");
    let both = ips("one");
    assert!(both.starts_with(&format!("{first} fd00:96::")), "{both}");
    kubectl.run("patch service one -p '{\"spec\":{\"ipFamilyPolicy\":\"SingleStack\"}}'");
    assert_eq!(ips("one"), first);
    // The second address is free again.
    let given = both.split(' ').nth(1).unwrap();
    kubectl.run_with("create -f -", &service("six", json!({"clusterIP": given, "clusterIPs": [given]})));
    kubectl.run_with(
        "create -f -",
        &service("six-first", json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]})),
    );
    assert!(
        ips("six-first").starts_with("fd00:96::") && ips("six-first").contains(" 10.96."),
        "{}",
        ips("six-first")
    );
}

#[test]
fn the_address_of_a_service_cannot_be_lost() {
    let server = Server::start();
    let kubectl = newest(&server.kubeconfig());
    kubectl.run_with("create -f -", &service("web", json!({"clusterIP": "10.96.7.7"})));
    let uid = || kubectl.try_with("get ipaddress 10.96.7.7 -o jsonpath={.metadata.uid}", "").out;
    let before = uid();
    kubectl.run("delete ipaddress 10.96.7.7");
    refused(&kubectl, json!({"clusterIP": "10.96.7.7"}), "provided IP is already allocated");
    eventually("it comes back", Duration::from_secs(60), || !uid().is_empty() && uid() != before);
    let parent = "get ipaddress 10.96.7.7 -o jsonpath={.spec.parentRef.namespace}/{.spec.parentRef.name}";
    assert_eq!(kubectl.run(parent), "default/web");
    let events = "get events --field-selector involvedObject.name=web,reason=ClusterIPNotAllocated \
                  -o jsonpath={.items[*].message}";
    eventually("an event says it", Duration::from_secs(60), || {
        kubectl.run(events) == "Cluster IP [IPv4]: 10.96.7.7 is not allocated; repairing"
    });
}
