//! What names answer, and what happens to them when the cluster changes.

use super::{Lab, WAIT, answers, prints};
use coracle_tests::eventually;
use std::time::{Duration, Instant};

/// A cluster nobody has touched yet.
pub fn out_of_the_box(lab: &Lab) {
    for (question, want) in [
        ("kubernetes.default.svc.cluster.local A", "10.96.0.1"),
        (
            "_https._tcp.kubernetes.default.svc.cluster.local SRV",
            "0 100 443 kubernetes.default.svc.cluster.local.",
        ),
        ("-x 10.96.0.1", "kubernetes.default.svc.cluster.local."),
        ("kube-dns.kube-system.svc.cluster.local", "10.96.0.10"),
        ("dns-version.cluster.local TXT", "\"1.1.0\""),
        ("cluster.local NS", "ns.dns.cluster.local."),
    ] {
        answers(lab, question, want);
    }
    assert!(lab.short("cluster.local SOA").starts_with("ns.dns.cluster.local. hostmaster.cluster.local. "));
    // The node itself can ask too.
    let node = lab
        .cluster
        .inside("node-1", &["dig", "+short", "@10.96.0.10", "kubernetes.default.svc.cluster.local"]);
    assert_eq!(node.trim(), "10.96.0.1");
}

/// Every kind of Service, and what is not there.
pub fn services(lab: &Lab) {
    lab.apply(
        "apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.7.7, ports: [{name: http, port: 80}, {name: q, port: 53, protocol: UDP}]}}
- {apiVersion: v1, kind: Service, metadata: {name: bare}, spec: {clusterIP: None, ports: [{name: db, port: 5432}]}}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: bare-1, labels: {kubernetes.io/service-name: bare}}, addressType: IPv4,
   ports: [{name: db, port: 15432, protocol: TCP}],
   endpoints: [{addresses: [192.0.2.1]}, {addresses: [192.0.2.2], hostname: two}, {addresses: [192.0.2.3], conditions: {ready: false}}]}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: bare-6, labels: {kubernetes.io/service-name: bare}}, addressType: IPv6,
   ports: [{name: db, port: 15432, protocol: TCP}], endpoints: [{addresses: ['2001:db8::1'], hostname: two}]}
- {apiVersion: v1, kind: Service, metadata: {name: early}, spec: {clusterIP: None, publishNotReadyAddresses: true}}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: early-1, labels: {kubernetes.io/service-name: early}}, addressType: IPv4,
   endpoints: [{addresses: [192.0.2.9], conditions: {ready: false}}]}
- {apiVersion: v1, kind: Service, metadata: {name: inner}, spec: {type: ExternalName, externalName: web.default.svc.cluster.local}}
",
    );
    // Services and endpoints come by watches of their own: each name is waited for.
    let zone = "default.svc.cluster.local";
    for (question, want) in [
        (format!("early.{zone} A"), "192.0.2.9"),
        (format!("web.{zone} A"), "10.96.7.7"),
        (format!("WeB.{zone} A"), "10.96.7.7"),
        (format!("_http._tcp.web.{zone} SRV"), "0 100 80 web.default.svc.cluster.local."),
        (format!("_q._udp.web.{zone} SRV"), "0 100 53 web.default.svc.cluster.local."),
        ("-x 10.96.7.7".into(), "web.default.svc.cluster.local."),
        (format!("bare.{zone} A"), "192.0.2.1 192.0.2.2"),
        (format!("bare.{zone} AAAA"), "2001:db8::1"),
        (format!("two.bare.{zone} A"), "192.0.2.2"),
        (format!("two.bare.{zone} AAAA"), "2001:db8::1"),
        (format!("192-0-2-1.bare.{zone} A"), "192.0.2.1"),
        (
            format!("_db._tcp.bare.{zone} SRV"),
            "0 33 15432 192-0-2-1.bare.default.svc.cluster.local. 0 33 15432 two.bare.default.svc.cluster.local.",
        ),
        ("-x 192.0.2.2".into(), "two.bare.default.svc.cluster.local."),
        ("-x 2001:db8::1".into(), "two.bare.default.svc.cluster.local."),
        (format!("inner.{zone} CNAME"), "web.default.svc.cluster.local."),
        (format!("inner.{zone} A"), "10.96.7.7 web.default.svc.cluster.local."),
        ("10-1-2-3.default.pod.cluster.local A".into(), "10.1.2.3"),
    ] {
        answers(lab, &question, want);
    }
    for (question, status) in [
        (format!("web.{zone} MX"), "NOERROR"),
        (format!("web.{zone} AAAA"), "NOERROR"),
        (format!("192-0-2-3.bare.{zone} A"), "NXDOMAIN"),
        (format!("none.{zone} A"), "NXDOMAIN"),
        ("10-1-2-3.nobody.pod.cluster.local A".into(), "NXDOMAIN"),
        (format!("_none._tcp.web.{zone} SRV"), "NXDOMAIN"),
        (format!("web.{zone}.{zone} A"), "NXDOMAIN"),
        ("svc.cluster.local A".into(), "NOERROR"),
        ("default.svc.cluster.local A".into(), "NOERROR"),
        ("nowhere.svc.cluster.local A".into(), "NXDOMAIN"),
    ] {
        let status = format!("status: {status}");
        prints(lab, &question, &[&status, "ANSWER: 0", "SOA\tns.dns.cluster.local."]);
    }
}

/// `hostname.subdomain` of a StatefulSet's pods.
pub fn stateful_pods(lab: &Lab) {
    lab.apply(
        "apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: store}, spec: {clusterIP: None, selector: {app: store}, ports: [{name: p, port: 7}]}}
- {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: store}, spec: {serviceName: store, replicas: 2, selector: {matchLabels: {app: store}},
   template: {metadata: {labels: {app: store}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: busybox, command: [sleep, '3600']}]}}}}
",
    );
    lab.kubectl.run("rollout status statefulset store --timeout=180s");
    let mut ips = Vec::new();
    for pod in ["store-0", "store-1"] {
        let ip = lab.kubectl.run(&format!("get pod {pod} -o jsonpath={{.status.podIP}}"));
        answers(lab, &format!("{pod}.store.default.svc.cluster.local A"), &ip);
        answers(lab, &format!("-x {ip}"), &format!("{pod}.store.default.svc.cluster.local."));
        ips.push(ip);
    }
    ips.sort();
    answers(lab, "store.default.svc.cluster.local A", &ips.join(" "));
    lab.kubectl.run("delete statefulset store --wait");
    answers(lab, "store.default.svc.cluster.local A", "");
    prints(lab, "store-0.store.default.svc.cluster.local", &["NXDOMAIN"]);
}

/// The resolver that a pod is given leads here, and short names work.
pub fn a_pod_asks_itself(lab: &Lab) {
    let script = "grep -qx 'nameserver 10.96.0.10' /etc/resolv.conf && echo the right server; \
        until curl -sv -m 20 -o /dev/null http://web/ 2>&1 | grep 10.96.7.7; do sleep 1; done; \
        until dig +short +search kubernetes.default | grep -x 10.96.0.1; do sleep 1; done; echo found; sleep 3600";
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "self"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "self", "image": "coracle.local/tools", "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", script]}]}});
    lab.apply(&pod.to_string());
    let told = || {
        let logs = lab.cluster.data_dir().join("node-1/logs");
        let pods = std::fs::read_dir(logs).into_iter().flatten().flatten();
        let own = pods.filter(|entry| entry.file_name().to_string_lossy().starts_with("default_self_"));
        own.filter_map(|entry| std::fs::read_to_string(entry.path().join("self/0.log")).ok())
            .collect::<String>()
    };
    let begun = Instant::now();
    while !["the right server", "10.96.7.7", "10.96.0.1\n", "found"].iter().all(|part| told().contains(part))
    {
        assert!(begun.elapsed() < WAIT, "a pod does not resolve by itself:\n{}", told());
        std::thread::sleep(Duration::from_millis(100));
    }
    lab.kubectl.run("delete pod self --wait=false");
}

/// A hundred addresses do not fit a datagram.
pub fn long_answers_come_by_tcp(lab: &Lab) {
    let endpoints: Vec<String> = (1..=100).map(|n| format!("{{addresses: [198.51.100.{n}]}}")).collect();
    lab.apply(&format!(
        "apiVersion: v1
kind: List
items:
- {{apiVersion: v1, kind: Service, metadata: {{name: many}}, spec: {{clusterIP: None}}}}
- {{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: many-1, labels: {{kubernetes.io/service-name: many}}}}, addressType: IPv4, endpoints: [{}]}}
",
        endpoints.join(", ")
    ));
    let name = "many.default.svc.cluster.local";
    eventually("a hundred addresses", WAIT, || lab.short(name).split(' ').count() == 100);
    for (how, limit) in [("+noedns", 512), ("+bufsize=700", 700), ("+bufsize=4096", 1232)] {
        let cut = lab.dig(&format!("+ignore {how} {name}"));
        let size =
            cut.lines().find_map(|line| line.strip_prefix(";; MSG SIZE  rcvd: ")?.parse::<usize>().ok());
        assert!(cut.contains(" tc") && size.is_some_and(|size| size <= limit), "{how}: {cut}");
    }
    let whole = lab.dig(&format!("+tcp {name}"));
    assert!(whole.contains("ANSWER: 100") && !whole.contains(" tc"), "{whole}");
}

/// Changes are answered as soon as they are made.
pub fn records_follow_endpoints(lab: &Lab) {
    lab.apply("{apiVersion: v1, kind: Service, metadata: {name: moving}, spec: {clusterIP: None}}");
    let mut slowest = Duration::ZERO;
    for round in 1..=20 {
        lab.apply(&format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: moving-1, labels: {{kubernetes.io/service-name: moving}}}}, \
             addressType: IPv4, endpoints: [{{addresses: [203.0.113.{round}]}}]}}"
        ));
        let written = Instant::now();
        answers(lab, "moving.default.svc.cluster.local", &format!("203.0.113.{round}"));
        slowest = slowest.max(written.elapsed());
    }
    println!("from endpoint written to name answered, as kubectl and dig see it: at most {slowest:?}");
    lab.kubectl.run("delete service moving");
    prints(lab, "moving.default.svc.cluster.local", &["NXDOMAIN"]);
}

/// The API server away changes nothing.
pub fn without_the_server(lab: &Lab) {
    lab.cluster.kill_server();
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        assert_eq!(lab.short("web.default.svc.cluster.local"), "10.96.7.7");
        assert!(lab.dig("none.default.svc.cluster.local").contains("NXDOMAIN"));
    }
    lab.cluster.up(1);
    lab.apply("{apiVersion: v1, kind: Service, metadata: {name: later}, spec: {clusterIP: 10.96.9.9, ports: [{port: 80}]}}");
    answers(lab, "later.default.svc.cluster.local", "10.96.9.9");
}

/// A new agent takes the address over.
pub fn after_the_agent_was_killed(lab: &Lab) {
    lab.cluster.kill_agent("node-1");
    lab.cluster.up(1);
    answers(lab, "+time=2 web.default.svc.cluster.local", "10.96.7.7");
}
