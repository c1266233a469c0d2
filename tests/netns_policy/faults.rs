//! What policies do not touch, and who cannot get around them.

use super::scenarios::expect;
use super::{Field, NODES};
use coracle_tests::eventually;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(120);

fn deny(field: &Field, kind: &str) {
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny", "namespace": "x"},
        "spec": {"podSelector": {}, "policyTypes": [kind]}});
    field.kubectl.run_with("apply -f -", &policy.to_string());
}

fn allow(field: &Field) {
    field.kubectl.run("delete networkpolicy --all -n x");
}

/// Policies that make no sense are refused, and say why.
pub fn nonsense_is_refused(field: &Field) {
    for (spec, want) in [
        (
            json!({"ingress": [{"ports": [{"port": 90, "endPort": 80}]}]}),
            "must be greater than or equal to `port`",
        ),
        (
            json!({"ingress": [{"ports": [{"endPort": 80}]}]}),
            "may not be specified when `port` is not specified",
        ),
        (
            json!({"ingress": [{"ports": [{"port": "web", "endPort": 80}]}]}),
            "may not be specified when `port` is non-numeric",
        ),
        (json!({"ingress": [{"ports": [{"port": 70000}]}]}), "must be between 1 and 65535, inclusive"),
        (
            json!({"ingress": [{"ports": [{"port": 80, "protocol": "ICMP"}]}]}),
            "supported values: \"TCP\", \"UDP\", \"SCTP\"",
        ),
        (json!({"egress": [{"to": [{}]}]}), "must specify a peer"),
        (
            json!({"egress": [{"to": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]}]}),
            "may not specify both ipBlock and another peer",
        ),
        (
            json!({"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}]}]}),
            "must be a strict subset of `cidr`",
        ),
        (json!({"policyTypes": ["Sideways"]}), "supported values: \"Ingress\", \"Egress\""),
    ] {
        let mut policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "bad", "namespace": "x"},
            "spec": spec});
        policy["spec"]["podSelector"] = json!({});
        let refused = field.kubectl.try_with("create --validate=false -f -", &policy.to_string());
        assert!(!refused.ok && refused.err.contains(want), "{policy}: {refused:?}");
    }
}

/// The node's DNS is to policies what people write: forbidden with everything else, open to who names `kube-dns`.
pub fn names_are_asked_as_policies_say(field: &Field) {
    let place = field.place("x/a");
    let ips = field.kubectl.run("get service -n kube-system kube-dns -o jsonpath={.spec.clusterIPs[*]}");
    let servers: Vec<IpAddr> = ips.split_whitespace().map(|ip| ip.parse().unwrap()).collect();
    assert_eq!(servers.len(), 2, "one of each family: {ips}");
    let answered = || -> Vec<bool> { servers.iter().map(|server| place.within(|| asks(*server))).collect() };
    eventually("names are answered without policies", WAIT, || answered() == [true, true]);
    deny(field, "Egress");
    eventually("nobody is asked when nothing may leave", WAIT, || answered() == [false, false]);
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "dns", "namespace": "x"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{
            "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}],
            "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}]}});
    field.kubectl.run_with("apply -f -", &policy.to_string());
    eventually("the one that may be asked is", WAIT, || answered() == [true, true]);
    assert!(!place.reaches(&field.place("z/a").spot, "TCP", 80), "and nobody else");
    allow(field);
    eventually("all as before", WAIT, || place.reaches(&field.place("z/a").spot, "TCP", 80));
}

/// Whether a server answers a question by UDP.
fn asks(server: IpAddr) -> bool {
    let mut question = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in "kubernetes.default.svc.cluster.local".split('.') {
        question.push(label.len() as u8);
        question.extend(label.bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
    socket.send_to(&question, (server, 53)).is_ok() && socket.recv_from(&mut [0; 512]).is_ok()
}

/// A connection that was there before a policy goes on; new ones do not begin.
pub fn a_connection_goes_on(field: &Field) {
    let (from, to) = (field.place("x/b"), field.place("x/a"));
    let mut stream = from.within(|| TcpStream::connect((to.spot.ip, 80)).unwrap());
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut ping = || {
        stream.write_all(b"ping").unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
    };
    ping();
    deny(field, "Ingress");
    eventually("new connections are stopped", WAIT, || !from.reaches(&to.spot, "TCP", 80));
    ping();
    allow(field);
    eventually("new connections are let through", WAIT, || from.reaches(&to.spot, "TCP", 80));
}

/// Pods that send with their first instruction, while everything that leaves is forbidden.
pub fn no_first_packet(field: &Field) {
    let to = field.place("z/a");
    let listener = to.within(|| TcpListener::bind((to.spot.ip, 9999)).unwrap());
    listener.set_nonblocking(true).unwrap();
    deny(field, "Egress");
    eventually("nothing leaves", WAIT, || !field.place("x/a").reaches(&to.spot, "TCP", 80));
    let shout = |name: &str| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "x"},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "busybox",
                "command": ["sh", "-c", format!("for i in 1 2 3; do echo hello | nc -w 1 {} 9999; done; true", to.spot.ip)]}]}});
        field.kubectl.run_with("apply --validate=false -f -", &pod.to_string());
    };
    for n in 0..4 {
        shout(&format!("shout-{n}"));
    }
    for n in 0..4 {
        field.kubectl.run(&format!(
            "wait -n x --for=jsonpath={{.status.phase}}=Succeeded pod/shout-{n} --timeout=240s"
        ));
    }
    assert!(listener.accept().is_err(), "a packet got out before the policy was in place");
    allow(field);
    eventually("everything leaves again", WAIT, || field.place("x/a").reaches(&to.spot, "TCP", 80));
    shout("heard");
    eventually("the same pod is heard without the policy", WAIT, || listener.accept().is_ok());
    field.kubectl.run("delete pod -n x shout-0 shout-1 shout-2 shout-3 heard --wait=true");
}

/// Somebody with `nft` removes our table.
pub fn rules_removed_come_back(field: &Field) {
    deny(field, "Ingress");
    let (from, to) = (field.place("x/b"), field.place("x/a"));
    eventually("the policy is in place", WAIT, || !from.reaches(&to.spot, "TCP", 80));
    for what in [
        "delete table inet coracle_policy",
        "flush chain inet coracle_policy entering",
        "flush table inet coracle_policy",
        "flush ruleset",
    ] {
        let mut words = vec!["nft"];
        words.extend(what.split(' '));
        assert_eq!(field.cluster.inside("node-1", &words), "", "nft {what}");
        let begun = Instant::now();
        eventually("the rules come back", WAIT, || !from.reaches(&to.spot, "TCP", 80));
        println!("closed again, and found so, {:.0?} after nft {what}", begun.elapsed());
    }
}

/// With the policy of the test before: the rules stay while nobody keeps them, and after.
pub fn a_killed_agent_changes_nothing(field: &Field) {
    let (from, to) = (field.place("x/b"), field.place("x/a"));
    let (other, free) = (field.place("z/b"), field.place("z/a"));
    field.cluster.kill_agent("node-1");
    let held = || {
        assert!(!from.reaches(&to.spot, "TCP", 80), "closed stays closed");
        assert!((0..5).any(|_| other.reaches(&free.spot, "TCP", 80)), "open stays open");
    };
    held();
    field.cluster.up(NODES.len());
    held();
    allow(field);
    expect(field, "the new agent follows", &[]);
    deny(field, "Ingress");
    eventually("and denies", WAIT, || !from.reaches(&to.spot, "TCP", 80));
    allow(field);
}

/// Without policies there are no rules.
pub fn nothing_is_left(field: &Field) {
    for (node, _) in NODES {
        eventually("no table without policies", WAIT, || {
            !field.cluster.inside(node, &["nft", "list", "tables"]).contains("coracle_policy")
        });
    }
}
