//! Names that are not the cluster's: stub domains, everything else, and what is kept of it.

use super::{Lab, WAIT, answers};
use coracle_tests::eventually;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A server in the node's network that gives every name the same address, and remembers what it was asked.
struct Other {
    asked: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Other {
    fn start(netns: PathBuf, port: u16, address: [u8; 4]) -> Self {
        let (asked, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (note, end) = (asked.clone(), stop.clone());
        let (ready, up) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let file = std::fs::File::open(netns).unwrap();
            nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            ready.send(()).unwrap();
            let mut buffer = [0; 1500];
            while !end.load(Ordering::SeqCst) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                note.lock().unwrap().push(name(&buffer[..length]));
                let _ = socket.send_to(&reply(&buffer[..length], address), from);
            }
        });
        up.recv().unwrap();
        Other { asked, stop, thread: Some(thread) }
    }

    /// How often it was asked for a name.
    fn asked(&self, of: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|name| *name == of).count()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().map(JoinHandle::join);
    }
}

/// The name in question, in lower case.
fn name(query: &[u8]) -> String {
    let (mut labels, mut at) = (Vec::new(), 12);
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).to_lowercase());
        at = end;
    }
    labels.join(".")
}

/// The question back with one address; for names that begin with `none`, that there is no such name; for those that
/// begin with `slow`, after a while.
fn reply(query: &[u8], address: [u8; 4]) -> Vec<u8> {
    let end = query[12..].iter().position(|byte| *byte == 0).unwrap() + 12 + 5;
    let none = query[13..].starts_with(b"none");
    if query[13..].starts_with(b"slow") {
        std::thread::sleep(Duration::from_millis(300));
    }
    let mut reply = query[..end].to_vec();
    reply[2..12].copy_from_slice(&[
        0x81,
        if none { 0x83 } else { 0x80 },
        0,
        1,
        0,
        u8::from(!none),
        0,
        0,
        0,
        0,
    ]);
    let is_a = query[end - 4..end - 2] == [0, 1];
    if none || !is_a {
        reply[6..8].copy_from_slice(&[0, 0]);
        return reply;
    }
    reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
    reply.extend(address);
    reply
}

pub fn others_are_asked(lab: &Lab) {
    let holder = lab.cluster.node("node-1")["holder"]["pid"].to_string();
    let netns = PathBuf::from(format!("/proc/{holder}/ns/net"));
    let stub = Other::start(netns.clone(), 5353, [192, 0, 2, 53]);
    let other = Other::start(netns, 5354, [192, 0, 2, 80]);
    answers(lab, "www.acme.test", "192.0.2.53");
    assert!(stub.asked("www.acme.test") > 0 && other.asked("www.acme.test") == 0);
    answers(lab, "www.example.org", "192.0.2.80");
    assert!(other.asked("www.example.org") > 0 && stub.asked("www.example.org") == 0);
    // Kept, in any case of letters.
    let before = other.asked("www.example.org");
    assert_eq!(lab.short("WWW.Example.org"), "192.0.2.80");
    assert_eq!(other.asked("www.example.org"), before);
    eventually("that there is no such name is kept", WAIT, || {
        assert!(lab.dig("none.example.org").contains("NXDOMAIN"));
        let before = other.asked("none.example.org");
        lab.dig("none.example.org").contains("NXDOMAIN") && other.asked("none.example.org") == before
    });
    // Asked once however many want to know; a server that the machine gave no time may be asked again.
    let mut round = 0;
    eventually("asked once for eight", WAIT, || {
        round += 1;
        let name = format!("slow-{round}.example.org");
        let got: Vec<String> = std::thread::scope(|scope| {
            let askers: Vec<_> = (0..8).map(|_| scope.spawn(|| lab.short(&name))).collect();
            askers.into_iter().map(|asker| asker.join().unwrap()).collect()
        });
        got.iter().all(|answer| answer == "192.0.2.80") && other.asked(&name) == 1
    });
    // An alias that leads out, and an address nobody in the cluster has.
    lab.apply("{apiVersion: v1, kind: Service, metadata: {name: out}, spec: {type: ExternalName, externalName: www.acme.test}}");
    answers(lab, "out.default.svc.cluster.local A", "192.0.2.53 www.acme.test.");
    eventually("somebody else is asked for the address", WAIT, || {
        lab.dig("-x 198.18.0.1");
        other.asked("1.0.18.198.in-addr.arpa") > 0
    });
    drop(other);
    // Nobody there: a clear failure before a client's patience of five seconds ends.
    let text = lab.dig("gone.example.net");
    let taken = text.lines().find_map(|line| line.strip_prefix(";; Query time: ")?.strip_suffix(" msec"));
    let taken: u64 = taken.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
    assert!(text.contains("SERVFAIL") && taken < 5000, "{text}");
}
