//! Many Services, endpoints that do not rest, and noise.

use super::{Lab, answers};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
    let got: Vec<&str> = text.lines().filter(|line| !line.starts_with(';')).collect();
    let want: Vec<String> = (0..1000).map(|n| format!("10.96.{}.{}", 100 + n / 250, 1 + n % 250)).collect();
    assert_eq!(got, want);
    println!("1,000 names of 1,000 Services, one after the other by dig: {:?}", begun.elapsed());
    assert_eq!(lab.short("-x 10.96.102.17"), "s516.default.svc.cluster.local.");
}

/// Endpoints change all the time: every answer is one that was right, and none is missing.
pub fn churn(lab: &Lab) {
    let slice = |from: usize| {
        let endpoints: Vec<String> =
            (from..from + 3).map(|n| format!("{{addresses: [203.0.113.{}]}}", 1 + n % 200)).collect();
        lab.apply(&format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: churn-1, labels: {{kubernetes.io/service-name: churn}}}}, \
             addressType: IPv4, endpoints: [{}]}}",
            endpoints.join(", ")
        ));
    };
    lab.apply("{apiVersion: v1, kind: Service, metadata: {name: churn}, spec: {clusterIP: None}}");
    slice(0);
    let name = "churn.default.svc.cluster.local";
    answers(lab, name, "203.0.113.1 203.0.113.2 203.0.113.3");
    let stop = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !stop.load(Ordering::Relaxed) {
                seen.insert(lab.short(name));
            }
            seen
        });
        (1..30).for_each(slice);
        stop.store(true, Ordering::Relaxed);
        asker.join().unwrap()
    });
    let right: BTreeSet<String> = (0..30)
        .map(|from| {
            let mut three: Vec<String> = (from..from + 3).map(|n| format!("203.0.113.{}", 1 + n)).collect();
            three.sort_unstable();
            three.join(" ")
        })
        .collect();
    assert!(seen.is_subset(&right), "{:?}", seen.difference(&right).collect::<Vec<_>>());
    println!("{} of 30 states were seen", seen.len());
    answers(lab, name, "203.0.113.30 203.0.113.31 203.0.113.32");
}

/// Noise of every kind from the node's own network; the next question is answered as if nothing had been.
pub fn garbage(lab: &Lab) {
    let agent = lab.cluster.agent_pid("node-1");
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
            answers(lab, "+tcp web.default.svc.cluster.local", "10.96.7.7");
        });
    });
    // What is left of the noise may fill the socket's queue for a moment.
    answers(lab, "+time=2 web.default.svc.cluster.local", "10.96.7.7");
    assert_eq!(lab.cluster.agent_pid("node-1"), agent, "the agent still runs");
}
