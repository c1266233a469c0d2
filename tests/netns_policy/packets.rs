//! Real packets: listeners and attempts in network namespaces.

use super::Field;
use super::model::{Spot, TRIED};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long an attempt may take that nothing stops, on a busy machine.
const PATIENCE: Duration = Duration::from_millis(700);

/// A network namespace with somebody in it.
pub struct Place {
    pub spot: Spot,
    netns: std::fs::File,
    pub listens: bool,
}

impl Place {
    /// One that answers on everything that is tried, for as long as the process lives.
    pub fn serving(spot: Spot, netns: PathBuf) -> Self {
        let place = Place { listens: true, ..Place::silent(spot, netns) };
        for (protocol, port) in TRIED {
            for v4 in [true, false] {
                place.serve(SocketAddr::new(place.spot.address(v4), port), protocol);
            }
        }
        place
    }

    fn serve(&self, at: SocketAddr, protocol: &str) {
        if protocol == "TCP" {
            let listener = self.within(|| TcpListener::bind(at).unwrap());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    std::thread::spawn(move || echo(stream));
                }
            });
            return;
        }
        let socket = self.within(|| UdpSocket::bind(at).unwrap());
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..length], from);
            }
        });
    }

    /// One that only asks.
    pub fn silent(spot: Spot, netns: PathBuf) -> Self {
        let netns = std::fs::File::open(&netns).unwrap_or_else(|e| panic!("{}: {e}", netns.display()));
        Place { spot, netns, listens: false }
    }

    /// Runs something in its network.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                nix::sched::setns(&self.netns, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }

    /// Whether a new connection to another place is answered.
    pub fn reaches(&self, to: &Spot, protocol: &str, port: u16) -> bool {
        self.reaches_by(to, protocol, port, true)
    }

    /// The same of either family.
    pub fn reaches_by(&self, to: &Spot, protocol: &str, port: u16, v4: bool) -> bool {
        let at = SocketAddr::new(to.address(v4), port);
        self.within(|| match protocol {
            "TCP" => TcpStream::connect_timeout(&at, PATIENCE).is_ok(),
            _ => {
                let socket = UdpSocket::bind(if v4 { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.send_to(b"?", at).is_ok() && socket.recv_from(&mut [0; 8]).is_ok()
            }
        })
    }
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 64];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// Every path that is open, all tried at once.
pub fn open(field: &Field) -> BTreeSet<String> {
    std::thread::scope(|scope| {
        let attempt = |(from, to, protocol, port, v4): (&Place, &Place, &str, u16, bool)| {
            from.reaches_by(&to.spot, protocol, port, v4)
                .then(|| path(&from.spot, &to.spot, protocol, port, v4))
        };
        let tries: Vec<_> =
            field.paths().into_iter().map(|path| scope.spawn(move || attempt(path))).collect();
        tries.into_iter().filter_map(|attempt| attempt.join().unwrap()).collect()
    })
}

/// A path's name.
pub fn path(from: &Spot, to: &Spot, protocol: &str, port: u16, v4: bool) -> String {
    format!("{}>{} {protocol} {port} IPv{}", from.name, to.name, if v4 { 4 } else { 6 })
}

/// Runs `ip` in a network namespace.
pub fn ip(netns: &Path, line: &str) {
    let status = Command::new("nsenter")
        .arg(format!("--net={}", netns.display()))
        .arg("ip")
        .args(line.split_whitespace())
        .status()
        .unwrap();
    assert!(status.success(), "ip {line}");
}
