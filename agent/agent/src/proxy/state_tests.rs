#![allow(clippy::unwrap_used)]
use super::super::pick::NodeTopology;
use super::super::plan::{Empty, plan_service};
use super::*;
use crate::cluster::{Endpoint, External, Port, Service, Slice, SlicePort};

fn endpoint(ip: &str, node: &str) -> Endpoint {
    Endpoint {
        ip: ip.parse().unwrap(),
        ready: true,
        serving: true,
        terminating: false,
        node: Some(node.into()),
        hostname: None,
        zones: Box::default(),
        nodes: Box::default(),
    }
}

fn ending(ip: &str, node: &str) -> Endpoint {
    Endpoint { ready: false, terminating: true, ..endpoint(ip, node) }
}

fn slice(endpoints: Vec<Endpoint>) -> Slice {
    Slice {
        service: "web".into(),
        ports: [SlicePort { name: "http".into(), protocol: Protocol::Tcp, port: 8080 }].into(),
        endpoints: endpoints.into(),
    }
}

fn service(external: Option<External>) -> Service {
    let port = Port { name: "http".into(), protocol: Protocol::Tcp, port: 80, node_port: 30080 };
    let node_port = if external.is_some() { 30080 } else { 0 };
    Service {
        ips: ["10.96.0.9".parse().unwrap()].into(),
        ports: [Port { node_port, ..port }].into(),
        external: external.map(Box::new),
        ..Service::default()
    }
}

const HERE: NodeTopology<'_> = NodeTopology { node: "n1", zone: "z1", answers_itself: &[] };

fn plan(service: &Service, slice: &Slice) -> Plan {
    plan_service(&Name::new("a", "web"), service, &[slice], &HERE)
}

fn ips(group: &Group) -> Vec<String> {
    group.targets.iter().map(|target| target.ip.to_string()).collect()
}

#[test]
fn a_change_is_as_small_as_it_can_be() {
    let name = Name::new("a", "web");
    let (mut state, mut change) = (State::default(), Change::default());
    let three =
        slice(vec![endpoint("10.0.0.1", "n1"), endpoint("10.0.0.2", "n2"), endpoint("10.0.0.3", "n3")]);
    state.update(&name, plan(&service(None), &three), &mut change);
    // Three endpoints, the address, the cluster address, one that may be led to itself.
    assert_eq!((change.len(), change.classes.len()), (6, 1));

    let mut change = Change::default();
    state.update(&name, plan(&service(None), &three), &mut change);
    assert_eq!(change.len(), 0);

    let mut change = Change::default();
    let swapped =
        slice(vec![endpoint("10.0.0.4", "n2"), endpoint("10.0.0.3", "n3"), endpoint("10.0.0.1", "n1")]);
    state.update(&name, plan(&service(None), &swapped), &mut change);
    assert_eq!((change.len(), change.classes.len()), (2, 0), "one endpoint takes another's place");

    let mut change = Change::default();
    state.update(&name, Plan::default(), &mut change);
    assert_eq!(change.removed.values().map(Vec::len).sum::<usize>(), 6);
    assert!(state.names().is_empty() && state.owners.is_empty() && state.hairpins.is_empty());
}

#[test]
fn a_key_has_one_owner_and_an_heir() {
    let external = || Some(External { ips: ["192.0.2.9".parse().unwrap()].into(), ..External::default() });
    let (first, second) = (Name::new("a", "web"), Name::new("b", "web"));
    let other = Service { ips: ["10.96.0.10".parse().unwrap()].into(), ..service(external()) };
    let other = Service { ports: [Port { node_port: 30081, ..other.ports[0].clone() }].into(), ..other };
    let endpoints = slice(vec![endpoint("10.0.0.1", "n1")]);
    let (mut state, mut change) = (State::default(), Change::default());
    state.update(&first, plan(&service(external()), &endpoints), &mut change);
    state.update(&second, plan(&other, &endpoints), &mut change);
    let shared =
        Key::Address { outside: false, ip: "192.0.2.9".parse().unwrap(), protocol: Protocol::Tcp, port: 80 };
    assert_eq!(state.owners[&shared], first);
    let mut change = Change::default();
    state.update(&first, Plan::default(), &mut change);
    assert_eq!(change.again, BTreeSet::from([second.clone()]));
    state.update(&second, plan(&other, &endpoints), &mut change);
    assert_eq!(state.owners[&shared], second);
}

#[test]
fn local_policies_stay_on_the_node() {
    let local = Some(External { local: true, health_port: 31000, ..External::default() });
    let far = slice(vec![endpoint("10.0.0.2", "n2")]);
    let planned = plan(&service(local.clone()), &far);
    let group = |plan: &Plan, key: &dyn Fn(&Key) -> bool| {
        let entry = plan.entries.iter().find(|entry| key(&entry.key)).unwrap();
        plan.groups[entry.group].clone()
    };
    let outside = |key: &Key| matches!(key, Key::Node { outside: true, .. });
    let inside = |key: &Key| matches!(key, Key::Node { outside: false, .. });
    assert_eq!(group(&planned, &outside).empty, Empty::Drop);
    assert!(group(&planned, &outside).targets.is_empty());
    assert_eq!(ips(&group(&planned, &inside)), ["10.0.0.2"]);
    assert_eq!(planned.health, Some((31000, 0)));
    let both = slice(vec![endpoint("10.0.0.1", "n1"), endpoint("10.0.0.2", "n2")]);
    let planned = plan(&service(local), &both);
    assert_eq!(ips(&group(&planned, &outside)), ["10.0.0.1"]);
    assert_eq!(planned.health, Some((31000, 1)));
    let internal = Service { internal_local: true, ..service(None) };
    let cluster_ip = |key: &Key| matches!(key, Key::Address { .. });
    assert_eq!(ips(&group(&plan(&internal, &both), &cluster_ip)), ["10.0.0.1"]);
}

#[test]
fn endpoints_that_end_are_the_last_resort() {
    for (endpoints, want) in [
        (vec![endpoint("10.0.0.1", "n2"), ending("10.0.0.2", "n2")], vec!["10.0.0.1"]),
        (vec![ending("10.0.0.1", "n2"), ending("10.0.0.2", "n2")], vec!["10.0.0.1", "10.0.0.2"]),
        (vec![Endpoint { serving: false, ..ending("10.0.0.1", "n2") }], vec![]),
    ] {
        let planned = plan(&service(None), &slice(endpoints));
        assert_eq!(ips(&planned.groups[0]), want);
        assert_eq!(planned.groups[0].empty, Empty::Refuse);
    }
}

#[test]
fn hints_count_when_all_have_them_and_some_are_for_here() {
    let hinted = |ip: &str, zone: &str| Endpoint { zones: [zone.into()].into(), ..endpoint(ip, "n2") };
    for (endpoints, want) in [
        (vec![hinted("10.0.0.1", "z1"), hinted("10.0.0.2", "z2")], vec!["10.0.0.1"]),
        (vec![hinted("10.0.0.1", "z1"), endpoint("10.0.0.2", "n2")], vec!["10.0.0.1", "10.0.0.2"]),
        (vec![hinted("10.0.0.1", "z3"), hinted("10.0.0.2", "z2")], vec!["10.0.0.1", "10.0.0.2"]),
    ] {
        assert_eq!(ips(&plan(&service(None), &slice(endpoints)).groups[0]), want);
    }
}

#[test]
fn what_somebody_else_answers_is_left_alone() {
    let dns: [IpAddr; 1] = ["10.96.0.9".parse().unwrap()];
    let place = NodeTopology { answers_itself: &dns, ..HERE };
    let name = Name::new("kube-system", "kube-dns");
    assert!(plan_service(&name, &service(None), &[&slice(vec![])], &place).entries.is_empty());
    let headless = Service { headless: true, ips: Box::default(), ..service(None) };
    assert_eq!(plan_service(&name, &headless, &[], &HERE), Plan::default());
    assert_eq!(plan_service(&name, &Service { foreign: true, ..service(None) }, &[], &HERE), Plan::default());
}

#[test]
fn clients_with_affinity_follow_zone_hints_too() {
    let hinted = |ip: &str, zone: &str| Endpoint { zones: [zone.into()].into(), ..endpoint(ip, "n2") };
    let near = slice(vec![hinted("10.0.0.1", "z1"), hinted("10.0.0.2", "z2")]);
    for affinity in [None, Some(10800)] {
        let plan = plan(&Service { affinity, ..service(None) }, &near);
        assert_eq!(ips(&plan.groups[0]), ["10.0.0.1"], "{affinity:?}");
    }
}
