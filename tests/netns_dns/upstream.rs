//! Names that are not the cluster's: stub domains, everything else, and what is kept of it.

use super::{Lab, answers};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A server in the node's network that gives every name the same address, and counts.
struct Other {
    asked: Arc<AtomicUsize>,
    stop: Arc<AtomicUsize>,
}

impl Other {
    fn start(netns: PathBuf, port: u16, address: [u8; 4]) -> Self {
        let (asked, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, end) = (asked.clone(), stop.clone());
        let (ready, up) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let file = std::fs::File::open(netns).unwrap();
            nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            ready.send(()).unwrap();
            let mut buffer = [0; 1500];
            while end.load(Ordering::SeqCst) == 0 {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let _ = socket.send_to(&reply(&buffer[..length], address), from);
            }
        });
        up.recv().unwrap();
        Other { asked, stop }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.stop.store(1, Ordering::SeqCst);
    }
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
    assert_eq!(lab.short("www.acme.test"), "192.0.2.53");
    assert_eq!((stub.asked(), other.asked()), (1, 0));
    assert_eq!(lab.short("www.example.org"), "192.0.2.80");
    assert_eq!((stub.asked(), other.asked()), (1, 1));
    // Kept, in any case of letters.
    assert_eq!(lab.short("WWW.Example.org"), "192.0.2.80");
    assert!(lab.dig("none.example.org").contains("NXDOMAIN"));
    assert!(lab.dig("none.example.org").contains("NXDOMAIN"));
    assert_eq!(other.asked(), 2);
    // Asked once however many want to know.
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..8).map(|_| scope.spawn(|| lab.short("slow.example.org"))).collect();
        askers.into_iter().for_each(|asker| assert_eq!(asker.join().unwrap(), "192.0.2.80"));
    });
    assert!(other.asked() <= 4, "{}", other.asked());
    // An alias that leads out, and an address nobody in the cluster has.
    lab.apply("{apiVersion: v1, kind: Service, metadata: {name: out}, spec: {type: ExternalName, externalName: www.acme.test}}");
    answers(lab, "out.default.svc.cluster.local A", "192.0.2.53 www.acme.test.");
    let before = other.asked();
    lab.dig("-x 198.18.0.1");
    assert_eq!(other.asked(), before + 1);
    drop(other);
    std::thread::sleep(Duration::from_millis(300));
    // Nobody there: a clear failure before the client's patience ends, and at once the next time.
    assert!(lab.dig("gone.example.net").contains("SERVFAIL"));
    let begun = Instant::now();
    assert!(lab.dig("gone.example.net").contains("SERVFAIL"));
    assert!(begun.elapsed() < Duration::from_secs(1));
}
