//! SCTP. Few kernels have sockets for it, so both ends are raw packets here; conntrack and nftables know it as they know
//! TCP.

use coracle_tests::eventually;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::place::Place;
use crate::world::{WAIT, World};

const INIT: u8 = 1;
const INIT_ACK: u8 = 2;

/// A raw socket; the standard library's calls on it are those of any datagram socket.
#[allow(unsafe_code)]
fn raw(place: &Place) -> UdpSocket {
    let fd = place.within(|| {
        // SAFETY: the call has no pointers; the descriptor is ours alone.
        let fd =
            unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_SCTP) };
        assert!(fd >= 0, "a raw socket: {}", std::io::Error::last_os_error());
        // SAFETY: just made, and owned by nobody else.
        unsafe { OwnedFd::from_raw_fd(fd) }
    });
    let socket = UdpSocket::from(fd);
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    socket
}

/// CRC-32C, least bit first.
fn checksum(bytes: &[u8]) -> u32 {
    let byte =
        |crc: u32, byte: &u8| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 }
            })
        };
    !bytes.iter().fold(!0, byte)
}

/// A packet with one INIT or INIT ACK chunk.
fn packet(ports: (u16, u16), verification: u32, kind: u8, tag: u32) -> Vec<u8> {
    let mut bytes = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    bytes.extend(verification.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend([kind, 0, 0, 20]);
    bytes.extend(tag.to_be_bytes());
    bytes.extend(0x0001_0000_u32.to_be_bytes());
    bytes.extend([0, 1, 0, 1]);
    bytes.extend(tag.to_be_bytes());
    let sum = checksum(&bytes);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// What came: who sent it, its ports, the chunk's kind and tag. Packets with wrong checksums never came.
fn received(socket: &UdpSocket) -> Option<(Ipv4Addr, (u16, u16), u8, u32)> {
    let mut buffer = [0; 256];
    let (length, _) = socket.recv_from(&mut buffer).ok()?;
    let header = usize::from(buffer[0] & 0xf) * 4;
    let from = Ipv4Addr::new(buffer[12], buffer[13], buffer[14], buffer[15]);
    let bytes = &mut buffer[header..length];
    if bytes.len() < 20 {
        return None;
    }
    let sum = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    bytes[8..12].fill(0);
    if sum != checksum(bytes) {
        return None;
    }
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let tag = u32::from_be_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
    Some((from, (port(0), port(2)), bytes[12], tag))
}

/// Begins an association from a port of its own; the tag of who answered, from the address that was asked.
fn begin(place: &Place, to: SocketAddr, own: u16) -> Option<u32> {
    let socket = raw(place);
    socket.send_to(&packet((own, to.port()), 0, INIT, 0x1000_0000 | u32::from(own)), (to.ip(), 0)).ok()?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        match received(&socket) {
            Some((from, ports, INIT_ACK, tag)) if from == to.ip() && ports == (to.port(), own) => {
                return Some(tag);
            }
            _ => {}
        }
    }
    None
}

pub fn services(world: &World) {
    // Without it the kernel leads associations by address only.
    let knows = Path::new("/proc/sys/net/netfilter/nf_conntrack_sctp_timeout_established").exists();
    let target = if knows { 9132 } else { 132 };
    world.apply(&format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: sctp}}, spec: {{type: NodePort, selector: {{app: web}}, \
         ports: [{{port: 132, targetPort: {target}, protocol: SCTP}}]}}}}"
    ));
    let service = world.json("get service sctp");
    let node_port = service["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    let pods = world.pods("web");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (number, pod) in pods.iter().enumerate() {
            let (socket, stop) = (raw(&pod.place), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Some((from, (source, to), INIT, tag)) = received(&socket)
                        && to == target
                    {
                        let answer = packet((to, source), tag, INIT_ACK, number as u32 + 1);
                        let _ = socket.send_to(&answer, (from, 0));
                    }
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let cluster = format!("{}:132", service["spec"]["clusterIP"].as_str().unwrap());
            let mut ways = vec![(pods[0].place.clone(), cluster.clone()), (world.node("node-3"), cluster)];
            if knows {
                ways.push((world.hub.clone(), format!("{}:{node_port}", world.address("node-2"))));
            }
            let mut own = 40_000;
            for (place, to) in ways {
                let mut seen = BTreeSet::new();
                eventually(&format!("every pod answers by SCTP at {to}"), WAIT, || {
                    own += 1;
                    seen.extend(begin(&place, to.parse().unwrap(), own));
                    seen.len() == 3
                });
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    world.k.run("delete service sctp");
}
