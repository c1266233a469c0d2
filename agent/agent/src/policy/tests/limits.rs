use super::super::limits;
use super::*;

/// The kernel takes 128; ours need far fewer.
const EXPRESSIONS: usize = 12;

fn size(rules: &Ruleset) -> usize {
    rules.chains.values().map(|chain| chain.rules.len()).sum()
}

fn longest(rules: &Ruleset) -> usize {
    rules.chains.values().flat_map(|chain| &chain.rules).map(Vec::len).max().unwrap_or_default()
}

fn web(entry: Value) -> Value {
    json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": [entry]})
}

/// Addresses of 172.16.0.0/12, one per number.
fn address(number: usize) -> String {
    format!("172.{}.{}.{}/32", 16 + (number >> 16), (number >> 8) & 0xff, number & 0xff)
}

/// Whether `a/web` may be talked to from an address on a port of TCP.
fn reaches(rules: &Ruleset, from: &str, port: u16) -> bool {
    let packet = Packet { from: from.parse().unwrap(), to: "10.0.0.1".parse().unwrap(), protocol: 6, port };
    Kernel(rules).passes(packet)
}

#[test]
fn many_exceptions_do_not_make_a_rule_long() {
    let except: Vec<String> = (0..1_000).map(address).collect();
    let block = json!({"ipBlock": {"cidr": "172.16.0.0/12", "except": except}});
    for ports in [json!([]), json!([{"port": 80}]), json!([{"port": 80}, {"port": 90, "endPort": 99}])] {
        let compiled = World::new(&[("a/p", web(json!({"from": [block], "ports": ports})))]).compiled();
        assert!(compiled.denied.is_empty());
        let rules = compiled.rules;
        assert!(longest(&rules) <= EXPRESSIONS, "{ports}: {} expressions", longest(&rules));
        assert!(size(&rules) < 1_100, "{ports}: {} rules", size(&rules));
        for (from, want) in
            [("172.16.0.0", false), ("172.16.3.231", false), ("172.16.3.232", true), ("192.0.2.7", false)]
        {
            assert_eq!(reaches(&rules, from, 80), want, "{ports}: {from}");
        }
    }
}

/// What one peer leaves out another one may allow.
#[test]
fn an_exception_is_only_of_its_own_peer() {
    let but = json!({"ipBlock": {"cidr": "172.16.0.0/12", "except": ["172.16.0.0/16"]}});
    let yet = json!({"ipBlock": {"cidr": "172.16.5.0/24"}});
    let nobody = json!({"ipBlock": {"cidr": "0.0.0.0/0", "except": ["0.0.0.0/0"]}});
    for ports in [json!([]), json!([{"port": 80}, {"port": 82}])] {
        let entry = json!({"from": [but, yet, nobody], "ports": ports});
        let rules = World::new(&[("a/p", web(entry))]).compile();
        for (from, want) in
            [("172.17.0.1", true), ("172.16.0.1", false), ("172.16.5.1", true), ("192.0.2.7", false)]
        {
            assert_eq!(reaches(&rules, from, 80), want, "{ports}: {from}");
        }
        assert_eq!(reaches(&rules, "172.17.0.1", 81), ports == json!([]), "{ports}");
    }
}

#[test]
fn peers_and_ports_add_up_instead_of_multiplying() {
    const MANY: usize = 4_000;
    let peers: Vec<Value> = (0..MANY).map(|at| json!({"ipBlock": {"cidr": address(at)}})).collect();
    let ports: Vec<Value> = (0..MANY).map(|at| json!({"port": 2 * at + 1})).collect();
    let compiled = World::new(&[("a/p", web(json!({"from": peers, "ports": ports})))]).compiled();
    assert!(compiled.denied.is_empty());
    let rules = compiled.rules;
    assert!(size(&rules) < 2 * MANY + 20, "{} rules", size(&rules));
    assert!(longest(&rules) <= EXPRESSIONS);
    let jumps = rules.chains.values().flat_map(|chain| &chain.rules).filter(
        |rule| matches!(rule.last(), Some(Expr::Verdict(Verdict::Jump(chain))) if chain.ends_with("-peers")),
    );
    assert_eq!(jumps.count(), 1, "the kernel checks a chain again for every jump to it");
    for (from, port, want) in [
        ("172.16.0.0", 1, true),
        ("172.16.15.159", 7_999, true),
        ("172.16.15.160", 7_999, false),
        ("172.16.0.0", 2, false),
        ("172.16.0.0", 8_001, false),
        ("172.16.0.0", 0, false),
        ("10.0.0.2", 1, false),
    ] {
        assert_eq!(reaches(&rules, from, port), want, "{from}:{port}");
    }
}

/// Ports of every kind, behind several peers.
#[test]
fn ports_in_a_step_of_their_own_mean_the_same() {
    let peers = json!([{"podSelector": {}}, {"ipBlock": {"cidr": "172.16.0.0/12"}}]);
    for (what, ports, want) in [
        ("numbers", json!([{"port": 80}, {"port": 82}]), [true, false, false, false]),
        (
            "ranges",
            json!([{"port": 79, "endPort": 81}, {"port": 81, "endPort": 100}]),
            [true, true, false, false],
        ),
        ("a name", json!([{"port": "web"}, {"port": 81}]), [false, true, true, false]),
        ("names", json!([{"port": "web"}, {"port": "x"}]), [false, false, true, false]),
        ("a protocol", json!([{"protocol": "TCP"}, {"port": 80}]), [true, true, true, false]),
        (
            "another one",
            json!([{"protocol": "UDP"}, {"protocol": "SCTP", "port": 80}]),
            [false, false, false, true],
        ),
        ("both", json!([{"protocol": "UDP", "port": 80}, {"port": 81}]), [false, true, false, true]),
    ] {
        let rules = World::new(&[("a/p", web(json!({"from": peers, "ports": ports})))]).compile();
        for from in ["10.0.0.2", "172.16.0.1"] {
            let packet = |protocol, port| Packet {
                from: from.parse().unwrap(),
                to: "10.0.0.1".parse().unwrap(),
                protocol,
                port,
            };
            let got = [packet(6, 80), packet(6, 81), packet(6, 8080), packet(17, 80)]
                .map(|packet| Kernel(&rules).passes(packet));
            assert_eq!(got, want, "{what} from {from}");
        }
        assert!(!reaches(&rules, "192.0.2.7", 80) && !reaches(&rules, "10.0.1.1", 8080), "{what}");
        for (name, chain) in rules.chains.iter().filter(|(name, _)| name.ends_with("-ports")) {
            let last = chain.rules.last().unwrap();
            assert_eq!(last[0], Expr::destination_port(reg(0)), "{name}: nothing without a port passes");
        }
    }
}

#[test]
fn a_policy_that_is_too_large_allows_nothing_and_others_stay() {
    let except: Vec<String> = (0..=limits::POLICY).map(address).collect();
    let large = web(json!({"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": except}}]}));
    let small =
        json!({"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{"ports": [{"port": 80}]}]});
    let compiled = World::new(&[("a/large", large.clone()), ("a/small", small.clone())]).compiled();
    assert_eq!(compiled.denied, BTreeSet::from([name("a/large")]));
    assert!(size(&compiled.rules) < 20);
    let mut want = to("a/web", &[]);
    want.extend(to("a/db", &["a/web>a/db:80", "b/web>a/db:80", "b/other>a/db:80", "out>a/db:80"]));
    want.sort();
    let mut got = stopped(&[("a/large", large), ("a/small", small)]);
    got.sort();
    assert_eq!(got, want);
}

#[test]
fn a_namespace_cannot_take_the_node_by_many_policies() {
    let holes = limits::POLICY - 10;
    let except: Vec<String> = (0..holes).map(address).collect();
    let large = web(json!({"from": [{"ipBlock": {"cidr": "172.16.0.0/12", "except": except}}]}));
    let policies = [("a/1", large.clone()), ("a/2", large.clone()), ("a/3", large.clone()), ("b/1", large)];
    let compiled = World::new(&policies).compiled();
    assert_eq!(compiled.denied, BTreeSet::from([name("a/3")]), "another namespace has its own budget");
    assert!(size(&compiled.rules) < 3 * holes + 100);
}

/// Policies that grow and shrink again leave nothing behind.
#[test]
fn chains_of_peers_and_ports_come_and_go() {
    let peers =
        json!([{"podSelector": {}}, {"ipBlock": {"cidr": "172.16.0.0/12", "except": ["172.16.0.0/16"]}}]);
    let ports = json!([{"port": 80}, {"port": "web"}]);
    let large = World::new(&[("a/p", web(json!({"from": peers, "ports": ports})))]).compile();
    let small = World::new(&[("a/p", web(json!({"ports": [{"port": 80}]})))]).compile();
    assert!(large.chains.len() > small.chains.len());
    assert_eq!(small.chains.len(), 2);
    for (before, after) in [(&large, &small), (&small, &large)] {
        assert!(!update(before, after).is_empty());
    }
    assert!(update(&large, &large).is_empty());
}
