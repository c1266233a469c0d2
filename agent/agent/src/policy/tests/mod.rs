#![allow(clippy::unwrap_used)]

use coracle_cni::nft::{Base, Expr, Meta, Verdict, reg};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::ControlFlow;

// Policies that are meant to do harm by their size.
mod limits;
// Policies that the kernel refuses.
mod bisect;

use super::compile::{Compiled, compile};
use super::direction::Direction;
use super::input::PolicyInput;
use super::model::{Pod, Policy, name_server};
use super::ruleset::{Ruleset, always, rebuild, update};
use crate::cluster::{FromWire, Name, Namespace};

/// Where the node answers questions.
const DNS: &str = "10.96.0.10";

/// A cluster of labelled pods: `namespace/name address label` and policies.
struct World {
    pods: BTreeMap<Name, Pod>,
    namespaces: BTreeMap<Name, Namespace>,
    policies: BTreeMap<Name, Policy>,
}

fn name(text: &str) -> Name {
    let (namespace, name) = text.split_once('/').unwrap();
    Name::new(namespace, name)
}

fn pod(ips: &[&str], app: &str) -> Pod {
    let ips: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    let wire = json!({"metadata": {"name": "x", "labels": {"app": app}},
        "spec": {"containers": [{"ports": [{"name": "web", "containerPort": 8080}, {"containerPort": 9}]}]},
        "status": {"podIPs": ips}});
    Pod::from_wire(serde_json::from_value(wire).unwrap()).unwrap()
}

fn policy(spec: Value) -> Policy {
    Policy::from_wire(serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap())
        .unwrap()
}

impl World {
    fn new(policies: &[(&str, Value)]) -> Self {
        let pods = [
            ("a/web", pod(&["10.0.0.1", "fd00::1"], "web")),
            ("a/db", pod(&["10.0.0.2"], "db")),
            ("b/web", pod(&["10.0.1.1"], "web")),
            ("b/other", pod(&["10.0.1.2"], "other")),
        ];
        let namespaces = ["a", "b"].map(|of| {
            let labels = BTreeMap::from([("team".to_owned(), of.to_owned())]);
            (Name::new("", of), Namespace { labels })
        });
        World {
            pods: pods.into_iter().map(|(of, pod)| (name(of), pod)).collect(),
            namespaces: namespaces.into_iter().collect(),
            policies: policies.iter().map(|(of, spec)| (name(of), policy(spec.clone()))).collect(),
        }
    }

    fn compile(&self) -> Ruleset {
        self.compiled().rules
    }

    fn compiled(&self) -> Compiled {
        self.without(&BTreeSet::new())
    }

    /// Compiled without the rules of some policies.
    fn without(&self, refused: &BTreeSet<Name>) -> Compiled {
        let local: BTreeSet<Name> = self.pods.keys().cloned().collect();
        compile(&PolicyInput {
            policies: &self.policies.iter().map(|(name, policy)| (name.clone(), policy)).collect(),
            pods: &self.pods.iter().map(|(name, pod)| (name.clone(), pod)).collect(),
            local: &local,
            namespaces: &self.namespaces.iter().map(|(name, of)| (name.clone(), of)).collect(),
            dns: &[DNS.parse().unwrap()],
            refused,
        })
    }
}

/// A first packet of a connection.
#[derive(Clone, Copy)]
struct Packet {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    port: u16,
}

/// The kernel's part, as far as our rules use it.
struct Kernel<'a>(&'a Ruleset);

impl Kernel<'_> {
    fn passes(&self, packet: Packet) -> bool {
        let octets = coracle_cni::route::octets;
        [(Direction::Out, packet.from), (Direction::In, packet.to)].into_iter().all(|(way, own)| {
            let v4 = own.is_ipv4();
            let same = self.0.sets.get(if v4 { "self4" } else { "self6" });
            let pair = [octets(packet.from), octets(packet.to)].concat();
            if same.is_some_and(|(_, keys)| keys.contains(&pair)) {
                return true;
            }
            let chain = self.0.maps.get(&way.map(v4)).and_then(|map| map.get(&octets(own)));
            chain.is_none_or(|chain| self.chain(chain, packet) != Some(false))
        })
    }

    fn chain(&self, name: &str, packet: Packet) -> Option<bool> {
        let walked = self.0.chains[name].rules.iter().try_for_each(|rule| self.rule(rule, packet));
        walked.break_value().flatten()
    }

    /// Breaks where the chain ends: with a verdict, or back to where it was called from.
    fn rule(&self, rule: &[Expr], packet: Packet) -> ControlFlow<Option<bool>> {
        let mut registers = [0_u8; 64];
        let at = |register: u32| ((register - reg(0)) * 4) as usize;
        for expr in rule {
            let mut load = |to: u32, bytes: &[u8]| {
                let from = at(to);
                let padded = bytes.len().next_multiple_of(4);
                registers[from..from + padded].fill(0);
                registers[from..from + bytes.len()].copy_from_slice(bytes);
            };
            match expr {
                Expr::Meta { key: Meta::NfProto, to } => {
                    load(*to, &[if packet.from.is_ipv4() { 2 } else { 10 }])
                }
                Expr::Meta { key: Meta::L4Proto, to } => load(*to, &[packet.protocol]),
                Expr::Payload { base: Base::Transport, offset: 2, len: 2, to } => {
                    load(*to, &packet.port.to_be_bytes())
                }
                Expr::Payload { base: Base::Network, offset: 12 | 8, to, .. } => {
                    load(*to, &coracle_cni::route::octets(packet.from));
                }
                Expr::Payload { base: Base::Network, offset: 16 | 24, to, .. } => {
                    load(*to, &coracle_cni::route::octets(packet.to));
                }
                Expr::Mask { at: register, mask } => {
                    let from = at(*register);
                    registers[from..].iter_mut().zip(mask).for_each(|(byte, mask)| *byte &= mask);
                }
                Expr::Compare { from, equal, value } => {
                    let found = &registers[at(*from)..at(*from) + value.len()];
                    if (found == value) != *equal {
                        return ControlFlow::Continue(());
                    }
                }
                Expr::Range { register, from, to } => {
                    let found = &registers[at(*register)..at(*register) + from.len()];
                    if found < &from[..] || found > &to[..] {
                        return ControlFlow::Continue(());
                    }
                }
                Expr::InSet { set, from, inverted: false } => {
                    let (_, keys) = &self.0.sets[set];
                    if !keys.iter().any(|key| registers[at(*from)..].starts_with(key)) {
                        return ControlFlow::Continue(());
                    }
                }
                Expr::Verdict(Verdict::Accept) => return ControlFlow::Break(Some(true)),
                Expr::Verdict(Verdict::Drop) => return ControlFlow::Break(Some(false)),
                Expr::Verdict(Verdict::Return) => return ControlFlow::Break(None),
                Expr::Verdict(Verdict::Jump(chain)) => {
                    return match self.chain(chain, packet) {
                        Some(verdict) => ControlFlow::Break(Some(verdict)),
                        None => ControlFlow::Continue(()),
                    };
                }
                other => panic!("{other:?}"),
            }
        }
        ControlFlow::Continue(())
    }
}

/// What passes, as `from>to:port` of all pairs of pods and an address outside, on TCP 80 and 8080.
fn passing(world: &World) -> Vec<String> {
    let rules = world.compile();
    let mut ends: Vec<(String, IpAddr)> =
        world.pods.iter().map(|(name, pod)| (name.to_string(), pod.ips[0])).collect();
    ends.push(("out".into(), "192.0.2.7".parse().unwrap()));
    let mut passing = Vec::new();
    for (from, source) in &ends {
        for (to, target) in &ends {
            for port in [80, 8080] {
                let packet = Packet { from: *source, to: *target, protocol: 6, port };
                if from != to && Kernel(&rules).passes(packet) {
                    passing.push(format!("{from}>{to}:{port}"));
                }
            }
        }
    }
    passing
}

/// Of what passes without policies, what is stopped, by who is talked to or talks.
fn stopped(policies: &[(&str, Value)]) -> Vec<String> {
    let all = passing(&World::new(&[]));
    let left = passing(&World::new(policies));
    all.into_iter().filter(|path| !left.contains(path)).collect()
}

fn to(whom: &str, except: &[&str]) -> Vec<String> {
    let all = passing(&World::new(&[]));
    all.into_iter()
        .filter(|path| path.split('>').nth(1).unwrap().starts_with(&format!("{whom}:")))
        .filter(|path| !except.contains(&path.as_str()))
        .collect()
}

fn from(whom: &str, except: &[&str]) -> Vec<String> {
    let all = passing(&World::new(&[]));
    all.into_iter()
        .filter(|path| path.starts_with(&format!("{whom}>")))
        .filter(|path| !except.contains(&path.as_str()))
        .collect()
}

#[test]
fn nothing_is_stopped_without_policies() {
    assert_eq!(World::new(&[]).compile(), Ruleset::default());
    assert_eq!(passing(&World::new(&[])).len(), 5 * 4 * 2);
}

#[test]
fn each_kind_of_rule() {
    let web = json!({"matchLabels": {"app": "web"}});
    let all = json!({});
    for (what, spec, want) in [
        ("deny all in", json!({"podSelector": web, "policyTypes": ["Ingress"]}), to("a/web", &[])),
        ("deny all out", json!({"podSelector": web, "policyTypes": ["Egress"]}), from("a/web", &[])),
        ("allow all", json!({"podSelector": web, "policyTypes": ["Ingress"], "ingress": [{}]}), vec![]),
        (
            "pods of its namespace",
            json!({"podSelector": web, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]}),
            to("a/web", &["a/db>a/web:80", "a/db>a/web:8080"]),
        ),
        (
            "all pods of other namespaces",
            json!({"podSelector": web, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]}]}),
            to("a/web", &["b/web>a/web:80", "b/web>a/web:8080", "b/other>a/web:80", "b/other>a/web:8080"]),
        ),
        (
            "some pods of other namespaces",
            json!({"podSelector": web, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}},
                "podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}}]}]}),
            to("a/web", &["b/other>a/web:80", "b/other>a/web:8080"]),
        ),
        (
            "a block with a hole",
            json!({"podSelector": web, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.1.0/31"]}}]}]}),
            to("a/web", &["a/db>a/web:80", "a/db>a/web:8080", "b/other>a/web:80", "b/other>a/web:8080"]),
        ),
        (
            "everybody but",
            json!({"podSelector": web, "ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["192.0.2.0/24"]}}]}]}),
            vec!["out>a/web:80".into(), "out>a/web:8080".into()],
        ),
        (
            "a port",
            json!({"podSelector": web, "ingress": [{"ports": [{"port": 80}]}]}),
            to("a/web", &["a/db>a/web:80", "b/web>a/web:80", "b/other>a/web:80", "out>a/web:80"]),
        ),
        (
            "another protocol",
            json!({"podSelector": web, "ingress": [{"ports": [{"protocol": "UDP"}]}]}),
            to("a/web", &[]),
        ),
        ("a protocol", json!({"podSelector": web, "ingress": [{"ports": [{"protocol": "TCP"}]}]}), vec![]),
        (
            "a range",
            json!({"podSelector": web, "ingress": [{"ports": [{"port": 81, "endPort": 8080}]}]}),
            to("a/web", &["a/db>a/web:8080", "b/web>a/web:8080", "b/other>a/web:8080", "out>a/web:8080"]),
        ),
        (
            "a named port",
            json!({"podSelector": web, "ingress": [{"ports": [{"port": "web"}]}]}),
            to("a/web", &["a/db>a/web:8080", "b/web>a/web:8080", "b/other>a/web:8080", "out>a/web:8080"]),
        ),
        (
            "a name nobody has",
            json!({"podSelector": web, "ingress": [{"ports": [{"port": "x"}]}]}),
            to("a/web", &[]),
        ),
        (
            "out to a named port of some",
            json!({"podSelector": web, "policyTypes": ["Egress"], "egress": [{"ports": [{"port": "web"}],
                "to": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]}]}),
            from("a/web", &["a/web>b/web:8080", "a/web>b/other:8080"]),
        ),
        (
            "out to a block",
            json!({"podSelector": web, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "192.0.2.7/32"}}]}]}),
            from("a/web", &["a/web>out:80", "a/web>out:8080"]),
        ),
        ("nobody it is about", json!({"podSelector": {"matchLabels": {"app": "none"}}}), vec![]),
        (
            "rules of a way it is not about",
            json!({"podSelector": web, "policyTypes": ["Ingress"], "ingress": [{}], "egress": []}),
            vec![],
        ),
        (
            "peer and port together",
            json!({"podSelector": web, "ingress": [{"from": [{"podSelector": all}], "ports": [{"port": 80}]}]}),
            to("a/web", &["a/db>a/web:80"]),
        ),
    ] {
        assert_eq!(stopped(&[("a/p", spec)]), want, "{what}");
    }
}

#[test]
fn policies_add_up() {
    let both = [
        ("a/deny", json!({"podSelector": {}})),
        (
            "a/db",
            json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {}}]}]}),
        ),
        ("a/out", json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}]})),
    ];
    let mut want = to("a/db", &["out>a/db:80", "out>a/db:8080"]);
    want.extend(to("a/web", &["a/db>a/web:80", "a/db>a/web:8080", "out>a/web:80", "out>a/web:8080"]));
    want.sort();
    let mut got = stopped(&both);
    got.sort();
    assert_eq!(got, want);
}

#[test]
fn no_pod_is_kept_from_itself() {
    let world = World::new(&[("a/deny", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}))]);
    let rules = world.compile();
    for ip in ["10.0.0.1", "fd00::1"] {
        let ip: IpAddr = ip.parse().unwrap();
        assert!(Kernel(&rules).passes(Packet { from: ip, to: ip, protocol: 6, port: 80 }));
    }
    let packet =
        Packet { from: "fd00::9".parse().unwrap(), to: "fd00::1".parse().unwrap(), protocol: 6, port: 80 };
    assert!(!Kernel(&rules).passes(packet), "both families are kept");
}

#[test]
fn what_cannot_be_read_allows_nothing() {
    for spec in [
        json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "nonsense"}}]}]}),
        json!({"podSelector": {}, "ingress": [{"from": [{}]}]}),
        json!({"podSelector": {}, "ingress": [{"ports": [{"port": 700_000}]}]}),
        json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Bad"}]}}),
    ] {
        let stopped = stopped(&[("a/p", spec.clone())]);
        assert_eq!(stopped.len(), to("a/web", &[]).len() + to("a/db", &[]).len(), "{spec}");
    }
}

#[test]
fn a_pod_that_comes_changes_only_elements() {
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}},
        "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": "web"}]}]});
    let mut world = World::new(&[("a/p", spec)]);
    let before = world.compile();
    world.pods.insert(name("a/web-2"), pod(&["10.0.0.9"], "web"));
    let after = world.compile();
    assert_eq!(before.chains, after.chains);
    assert_ne!(before, after);
    assert!(!update(&before, &after).is_empty() && !rebuild(&after).is_empty());
    assert!(update(&after, &after).is_empty());
    assert_eq!(always().len(), 2);
}

/// The DNS of the node is to a policy what people write in it: a pod of `kube-system`, an address, or a port.
#[test]
fn names_are_asked_as_policies_say() {
    let kube_system = json!({"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}});
    let kube_dns = json!({"matchLabels": {"k8s-app": "kube-dns"}});
    let another = json!({"matchLabels": {"k8s-app": "x"}});
    for (what, egress, want) in [
        ("nothing", json!([]), [false, false]),
        ("everything", json!([{}]), [true, true]),
        (
            "what most write",
            json!([{"to": [{"namespaceSelector": kube_system, "podSelector": kube_dns}],
                "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}]),
            [true, true],
        ),
        (
            "by name, of UDP only",
            json!([{"to": [{"namespaceSelector": {}}], "ports": [{"protocol": "UDP", "port": "dns"}]}]),
            [true, false],
        ),
        ("another app", json!([{"to": [{"namespaceSelector": {}, "podSelector": another}]}]), [false, false]),
        ("pods of its own namespace", json!([{"to": [{"podSelector": {}}]}]), [false, false]),
        ("its address", json!([{"to": [{"ipBlock": {"cidr": "10.96.0.10/32"}}]}]), [true, true]),
        ("another address", json!([{"to": [{"ipBlock": {"cidr": "10.96.0.11/32"}}]}]), [false, false]),
        ("a port", json!([{"ports": [{"protocol": "UDP", "port": 53}]}]), [true, false]),
    ] {
        let spec = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": egress});
        let mut world = World::new(&[("a/p", spec)]);
        let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), "kube-system".to_owned())]);
        world.namespaces.insert(Name::new("", "kube-system"), Namespace { labels });
        let dns: IpAddr = DNS.parse().unwrap();
        world.pods.extend([name_server(&[dns])]);
        let rules = world.compile();
        assert_eq!(rules.sets["dns4"].1, BTreeSet::from([coracle_cni::route::octets(dns)]), "asked at");
        let asks = [17, 6].map(|protocol| {
            let packet = Packet { from: "10.0.0.1".parse().unwrap(), to: dns, protocol, port: 53 };
            Kernel(&rules).passes(packet)
        });
        assert_eq!(asks, want, "{what}: UDP, TCP");
    }
}
