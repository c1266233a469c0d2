//! Clients in network namespaces of nodes that try something again and again until it works.

use crate::world::unix_now;
use std::fs::File;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// How long an attempt may take: one that is late because the machine is busy has not failed.
const PATIENCE: Duration = Duration::from_secs(1);

/// When something began to work, in nanoseconds of unix time.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// When the last attempt began that failed.
    pub last_failure: u64,
    /// When the first one ended that succeeded.
    pub first_success: u64,
}

/// Runs something on a thread in the network namespace of a process.
pub fn within<T: Send>(pid: u32, work: impl FnOnce() -> T + Send) -> T {
    let namespace = File::open(format!("/proc/{pid}/ns/net")).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            nix::sched::setns(&namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

/// Tries until it works.
pub fn until(limit: Duration, mut attempt: impl FnMut() -> bool) -> Change {
    let begun = Instant::now();
    let mut last_failure = 0;
    loop {
        let began = unix_now();
        if attempt() {
            return Change { last_failure, first_success: unix_now() };
        }
        last_failure = began;
        assert!(begun.elapsed() < limit, "it does not work within {limit:?}");
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Whether somebody takes connections.
pub fn connects(to: SocketAddr) -> bool {
    TcpStream::connect_timeout(&to, PATIENCE).is_ok()
}

/// Whether a DNS server has an address for a name.
pub fn resolves(server: SocketAddr, name: &str) -> bool {
    let attempt = || -> std::io::Result<bool> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send_to(&query(name), server)?;
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer)?;
        // No error, and at least one answer.
        Ok(length > 12 && answer[3] & 0x0f == 0 && u16::from_be_bytes([answer[6], answer[7]]) > 0)
    };
    attempt().unwrap_or(false)
}

/// A question for the IPv4 address of a name.
fn query(name: &str) -> Vec<u8> {
    let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        packet.push(label.len() as u8);
        packet.extend_from_slice(label.as_bytes());
    }
    packet.extend_from_slice(&[0, 0, 1, 0, 1]);
    packet
}
