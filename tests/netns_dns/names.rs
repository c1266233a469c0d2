//! What names answer, and what happens to them when the cluster changes.

use super::{Lab, WAIT, answers};
use coracle_tests::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// A cluster nobody has touched yet.
pub fn out_of_the_box(lab: &Lab) {
    answers(lab, "kubernetes.default.svc.cluster.local A", "10.96.0.1");
    assert_eq!(
        lab.short("_https._tcp.kubernetes.default.svc.cluster.local SRV"),
        "0 100 443 kubernetes.default.svc.cluster.local."
    );
    assert_eq!(lab.short("-x 10.96.0.1"), "kubernetes.default.svc.cluster.local.");
    assert_eq!(lab.short("kube-dns.kube-system.svc.cluster.local"), "10.96.0.10");
    assert_eq!(lab.short("dns-version.cluster.local TXT"), "\"1.1.0\"");
    assert_eq!(lab.short("cluster.local NS"), "ns.dns.cluster.local.");
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
    answers(lab, "early.default.svc.cluster.local A", "192.0.2.9");
    let zone = "default.svc.cluster.local";
    for (question, want) in [
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
        assert_eq!(lab.short(&question), want, "{question}");
    }
    for (question, status) in [
        (format!("web.{zone} MX"), "NOERROR"),
        (format!("web.{zone} AAAA"), "NOERROR"),
        (format!("192-0-2-3.bare.{zone} A"), "NXDOMAIN"),
        (format!("none.{zone} A"), "NXDOMAIN"),
        (format!("_none._tcp.web.{zone} SRV"), "NXDOMAIN"),
        (format!("web.{zone}.{zone} A"), "NXDOMAIN"),
        ("svc.cluster.local A".into(), "NOERROR"),
        ("default.svc.cluster.local A".into(), "NOERROR"),
        ("nowhere.svc.cluster.local A".into(), "NXDOMAIN"),
    ] {
        let text = lab.dig(&question);
        assert!(
            text.contains(&format!("status: {status}")) && text.contains("ANSWER: 0"),
            "{question}: {text}"
        );
        assert!(text.contains("SOA\tns.dns.cluster.local."), "{question}: {text}");
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
    lab.kubectl.run("rollout status statefulset store --timeout=60s");
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
    assert!(lab.dig("store-0.store.default.svc.cluster.local").contains("NXDOMAIN"));
}

/// The resolver that a pod is given leads here, and short names work.
pub fn a_pod_asks_itself(lab: &Lab) {
    let script = "grep -q '^nameserver 10.96.0.10$' /etc/resolv.conf && wget -q -T 5 -O /dev/null http://web/ 2>&1 | head -1; \
        nslookup kubernetes.default.svc.cluster.local && echo found; sleep 3600";
    lab.kubectl.run(&format!("run self --image=busybox --command -- sh -c '{}'", script.replace('\'', "")));
    eventually("a pod resolves by itself", WAIT, || {
        let logs = lab.cluster.data_dir().join("node-1/logs");
        let pods = std::fs::read_dir(logs).into_iter().flatten().flatten();
        let own = pods.filter(|entry| entry.file_name().to_string_lossy().starts_with("default_self_"));
        let text: String =
            own.filter_map(|entry| std::fs::read_to_string(entry.path().join("self/0.log")).ok()).collect();
        text.contains("10.96.0.1\n") && text.contains("found")
    });
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
    eventually("the name goes with its Service", WAIT, || {
        lab.dig("moving.default.svc.cluster.local").contains("NXDOMAIN")
    });
}

pub fn a_thousand_services(lab: &Lab) {
    let mut yaml = String::new();
    for n in 0..1000 {
        writeln!(
            yaml,
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: s{n}}}, spec: {{clusterIP: 10.96.{}.{}, ports: [{{name: p, port: 80}}]}}}}",
            100 + n / 250,
            1 + n % 250
        )
        .unwrap();
    }
    lab.kubectl.run_with("create --validate=false -f -", &yaml);
    answers(lab, "s999.default.svc.cluster.local", "10.96.103.250");
    let questions = lab.cluster.data_dir().join("questions");
    let names: String = (0..1000).map(|n| format!("s{n}.default.svc.cluster.local A\n")).collect();
    std::fs::write(&questions, names).unwrap();
    let begun = Instant::now();
    let text = lab.dig(&format!("+short -f {}", questions.display()));
    let got: Vec<&str> = text.lines().collect();
    let want: Vec<String> = (0..1000).map(|n| format!("10.96.{}.{}", 100 + n / 250, 1 + n % 250)).collect();
    assert_eq!(got, want);
    println!("1,000 names of 1,000 Services, one after the other by dig: {:?}", begun.elapsed());
    assert_eq!(lab.short("-x 10.96.102.17"), "s516.default.svc.cluster.local.");
}

/// Noise of every kind from the node's own network; the next question is answered as if nothing had been.
pub fn garbage(lab: &Lab) {
    let agent = lab.cluster.node("node-1")["agent"]["pid"].clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = std::fs::File::open(&lab.netns).unwrap();
            nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let mut state = 88_172_645_463_325_252_u64;
            let mut random = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            for round in 0..5000_u32 {
                let mut packet: Vec<u8> = (0..random() % 300).map(|_| random() as u8).collect();
                if round % 2 == 0 && packet.len() > 12 {
                    packet[2..12].copy_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, (random() % 2) as u8]);
                }
                let _ = socket.send_to(&packet, "10.96.0.10:53");
            }
            let mut open = Vec::new();
            for length in [0_u16, 1, 11, 12, 600, 65535] {
                let mut stream = TcpStream::connect("10.96.0.10:53").unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                stream.write_all(&length.to_be_bytes()).unwrap();
                let body: Vec<u8> = (0..length.min(600)).map(|_| random() as u8 & 0x7f).collect();
                stream.write_all(&body).unwrap();
                if length <= 600 {
                    let _ = stream.read(&mut [0; 512]);
                }
                open.push(stream);
            }
            // Streams that say nothing do not keep others out.
            open.extend((0..100).filter_map(|_| TcpStream::connect("10.96.0.10:53").ok()));
            assert_eq!(lab.short("+tcp web.default.svc.cluster.local"), "10.96.7.7");
        });
    });
    assert_eq!(lab.short("web.default.svc.cluster.local"), "10.96.7.7");
    assert_eq!(lab.cluster.node("node-1")["agent"]["pid"], agent);
    assert!(std::path::Path::new(&format!("/proc/{agent}")).exists(), "the agent still runs");
}

fn state(lab: &Lab, of: &str) -> i32 {
    let state = std::fs::read(lab.cluster.data_dir().join("up.json")).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    state[of]["pid"].as_i64().unwrap() as i32
}

/// The API server away changes nothing.
pub fn without_the_server(lab: &Lab) {
    kill(Pid::from_raw(state(lab, "server")), Signal::SIGKILL).unwrap();
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
    let agent = lab.cluster.node("node-1")["agent"]["pid"].as_i64().unwrap();
    kill(Pid::from_raw(agent as i32), Signal::SIGKILL).unwrap();
    lab.cluster.up(1);
    answers(lab, "+tries=1 +time=1 web.default.svc.cluster.local", "10.96.7.7");
}
