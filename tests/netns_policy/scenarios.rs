//! Policies, one kind of rule after the other, and together.

use super::model::allowed;
use super::packets::{self, path};
use super::{Field, NODES};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long rules may take to be in place.
const WAIT: Duration = Duration::from_secs(90);

/// Some policies: name, namespace, spec.
pub struct Scenario {
    what: &'static str,
    policies: Vec<(&'static str, Value)>,
}

/// Every kind of rule.
pub fn all() -> Vec<Scenario> {
    let a = || json!({"matchLabels": {"pod": "a"}});
    let one = |what, spec| Scenario { what, policies: vec![("x", spec)] };
    vec![
        Scenario { what: "no policy", policies: vec![] },
        one("deny all in", json!({"podSelector": {}, "policyTypes": ["Ingress"]})),
        one("deny all out", json!({"podSelector": {}, "policyTypes": ["Egress"]})),
        one("deny all", json!({"podSelector": a(), "policyTypes": ["Ingress", "Egress"]})),
        one("allow all in", json!({"podSelector": {}, "ingress": [{}]})),
        one(
            "from pods of the namespace",
            json!({"podSelector": a(), "ingress": [{"from": [{"podSelector": {"matchLabels": {"pod": "b"}}}]}]}),
        ),
        one(
            "from a namespace",
            json!({"podSelector": a(), "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"ns": "z"}}}]}]}),
        ),
        one(
            "from some pods of a namespace",
            json!({"podSelector": a(), "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"ns": "z"}},
                "podSelector": {"matchExpressions": [{"key": "pod", "operator": "NotIn", "values": ["a"]}]}}]}]}),
        ),
        one(
            "from pods, or a namespace",
            json!({"podSelector": {"matchExpressions": [{"key": "pod", "operator": "In", "values": ["a", "c"]}]},
                "ingress": [{"from": [{"podSelector": a()}, {"namespaceSelector": {"matchExpressions": [{"key": "ns", "operator": "In", "values": ["z"]}]}}]}]}),
        ),
        one(
            "from a block",
            json!({"podSelector": a(), "ingress": [{"from": [{"ipBlock": {"cidr": "10.89.0.0/24"}}]}]}),
        ),
        one(
            "from everywhere but a block",
            json!({"podSelector": a(), "ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.89.0.0/28"]}}]}]}),
        ),
        one(
            "from a block of IPv6, or all of IPv4 but a part",
            json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "fd89::/64"}},
                {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.244.0.0/24"]}}], "ports": [{"port": 80}]}]}),
        ),
        one("a port", json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]})),
        one(
            "a port of UDP",
            json!({"podSelector": {}, "ingress": [{"ports": [{"protocol": "UDP", "port": 80}]}]}),
        ),
        one("a protocol", json!({"podSelector": {}, "ingress": [{"ports": [{"protocol": "TCP"}]}]})),
        one("a range", json!({"podSelector": {}, "ingress": [{"ports": [{"port": 81, "endPort": 90}]}]})),
        one("a named port", json!({"podSelector": a(), "ingress": [{"ports": [{"port": "two"}]}]})),
        one(
            "a named port of UDP",
            json!({"podSelector": a(), "ingress": [{"ports": [{"port": "ask", "protocol": "UDP"}, {"port": "nobody"}]}]}),
        ),
        one(
            "a port from some, another from others",
            json!({"podSelector": a(), "ingress": [
                {"from": [{"podSelector": {}}], "ports": [{"port": 80}]},
                {"from": [{"namespaceSelector": {"matchLabels": {"ns": "z"}}}], "ports": [{"port": 81}, {"protocol": "UDP", "port": 80}]}]}),
        ),
        one(
            "out to pods",
            json!({"podSelector": a(), "policyTypes": ["Egress"], "egress": [{"to": [{"podSelector": {}}]}]}),
        ),
        one(
            "out to a named port",
            json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"namespaceSelector": {}}], "ports": [{"port": "one"}]}]}),
        ),
        one(
            "out to a block",
            json!({"podSelector": a(), "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "10.89.0.1/32"}}], "ports": [{"port": 80}]}]}),
        ),
        Scenario {
            what: "policies of both ends add up",
            policies: vec![
                ("x", json!({"podSelector": {}})),
                (
                    "x",
                    json!({"podSelector": a(), "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"ns": "z"}}}]}]}),
                ),
                (
                    "x",
                    json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.89.0.1/32"}}], "ports": [{"port": 81}]}]}),
                ),
                (
                    "z",
                    json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"namespaceSelector": {"matchLabels": {"ns": "x"}},
                    "podSelector": a()}], "ports": [{"port": 80}]}]}),
                ),
            ],
        },
    ]
}

/// Puts the policies there, tries every path, and takes them away.
pub fn check(field: &Field, scenario: &Scenario) {
    apply(field, scenario);
    expect(field, scenario.what, &specs(scenario));
    if !scenario.policies.is_empty() {
        field.kubectl.run("delete networkpolicy --all --all-namespaces");
    }
}

fn specs(scenario: &Scenario) -> Vec<(String, Value)> {
    scenario.policies.iter().map(|(namespace, spec)| ((*namespace).to_owned(), spec.clone())).collect()
}

fn apply(field: &Field, scenario: &Scenario) {
    let items = scenario.policies.iter().enumerate().map(|(n, (namespace, spec))| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": format!("p{n}"), "namespace": namespace}, "spec": spec})
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items.collect::<Vec<_>>()});
    if !scenario.policies.is_empty() {
        field.kubectl.run_with("apply -f -", &list.to_string());
    }
}

/// Waits until exactly those paths are open that the model says.
pub fn expect(field: &Field, what: &str, policies: &[(String, Value)]) {
    let mut want = BTreeSet::new();
    for (from, to, protocol, port, v4) in field.paths() {
        if allowed(policies, (&from.spot, &to.spot), protocol, port, v4) {
            want.insert(path(&from.spot, &to.spot, protocol, port, v4));
        }
    }
    let begun = Instant::now();
    loop {
        let got = packets::open(field);
        if got == want {
            println!("{what}: {} of {} paths open, as they should be", want.len(), field.paths().len());
            return;
        }
        if begun.elapsed() > WAIT {
            let extra: Vec<&String> = got.difference(&want).collect();
            let missing: Vec<&String> = want.difference(&got).collect();
            let list = ["nft", "list", "table", "inet", "coracle_policy"];
            let rules: String = NODES.iter().map(|(node, _)| field.cluster.inside(node, &list)).collect();
            panic!(
                "{what}: open and should not be: {extra:?}; closed and should not be: {missing:?}\n{rules}"
            );
        }
    }
}

/// A pod that is given another label, and a namespace that is.
pub fn labels_change(field: &Field) {
    let spec = json!({"podSelector": {"matchLabels": {"pod": "a"}},
        "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "red"}}}]}]});
    apply(field, &Scenario { what: "", policies: vec![("x", spec.clone())] });
    let nobody = json!({"podSelector": {"matchLabels": {"pod": "a"}}});
    expect(field, "a namespace without the label", &[("x".into(), nobody)]);
    field.kubectl.run("label namespace z team=red");
    let of_z = json!({"podSelector": {"matchLabels": {"pod": "a"}},
        "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"ns": "z"}}}]}]});
    expect(field, "a namespace that got the label", &[("x".into(), of_z)]);
    field.kubectl.run("label pod -n x a pod=q --overwrite");
    expect(field, "a pod that lost the label", &[]);
    field.kubectl.run("label pod -n x a pod=a --overwrite");
    field.kubectl.run("label namespace z team-");
    field.kubectl.run("delete networkpolicy --all -n x");
    expect(field, "no policy any more", &[]);
}
