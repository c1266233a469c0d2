//! Ports that will be listened on, and who holds them already.

use super::finding::Finding;
use super::role::Role;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};

const PART: &str = "machine";

/// The ports of a role. One that the part in question listens on itself, of this data directory, is in order.
pub fn findings(role: Role, bind: Option<SocketAddr>, data_dir: &Path) -> Vec<Finding> {
    let everywhere = |port| SocketAddr::from(([0, 0, 0, 0], port));
    match role {
        Role::Up => {
            let bind = bind.unwrap_or_else(|| crate::up::address(data_dir));
            vec![tcp_port(bind, "API server", |process| process.is_server_of(data_dir))]
        }
        Role::Server => {
            let bind = bind.unwrap_or_else(|| everywhere(6443));
            vec![tcp_port(bind, "API server", |process| process.is_server_of(data_dir))]
        }
        Role::Agent => {
            let node = tcp_port(everywhere(10250), "node API", |process| process.name() == "coracle-agent");
            vec![node, vxlan_port()]
        }
    }
}

fn vxlan_port() -> Finding {
    // The kernel's own vxlan device holds its port too: in use by itself is fine, and not told apart from here.
    match UdpSocket::bind(("0.0.0.0", 8472)) {
        Ok(_) => Finding::ok(PART, "port 8472/udp", "free, for vxlan"),
        Err(error) => Finding::limited(
            PART,
            "port 8472/udp",
            format!("vxlan: {error}"),
            "end what holds it, unless it is this node's own vxlan (ss -ulnp 'sport = :8472')",
        ),
    }
}

/// Who has a port that cannot be listened on.
enum Holder {
    /// The part itself, which runs.
    Ours(Process),
    /// Others.
    Other(Process),
    /// Only root sees who. The part itself runs, and so it may be that.
    Unseen(Option<Process>),
}

fn tcp_port(bind: SocketAddr, what: &str, ours: impl Fn(&Process) -> bool) -> Finding {
    match TcpListener::bind(bind) {
        Ok(_) if bind.port() == 0 => Finding::ok(PART, "port", format!("a free one, for the {what}")),
        Ok(_) => Finding::ok(PART, port_name(bind), format!("free, for the {what}")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => judge(bind, holder(bind, ours)),
        Err(error) => {
            let advice = "choose an address of this machine, and a port that you may have (--bind)";
            Finding::missing(PART, port_name(bind), format!("{bind}: {error}"), advice)
        }
    }
}

fn port_name(bind: SocketAddr) -> String {
    format!("port {}/tcp", bind.port())
}

fn judge(bind: SocketAddr, holder: Holder) -> Finding {
    const OTHERWISE: &str = "choose another port (--bind 127.0.0.1:0 takes a free one)";
    let name = port_name(bind);
    match holder {
        Holder::Ours(process) => Finding::ok(PART, name, process.to_string()),
        Holder::Unseen(Some(process)) => {
            Finding::ok(PART, name, format!("in use, as it is to be while {process} runs"))
        }
        Holder::Unseen(None) => Finding::limited(
            PART,
            name,
            "in use, only root sees by whom",
            format!("sudo coracle doctor says by whom; or {OTHERWISE}"),
        ),
        Holder::Other(process) => {
            let (whose, end) = match process.data_dir() {
                Some(dir) => (
                    format!(", of another cluster in {}", dir.display()),
                    format!("coracle down --data-dir {}", dir.display()),
                ),
                None => (String::new(), format!("end {}", process.name())),
            };
            Finding::missing(
                PART,
                name,
                format!("held by {process}{whose}"),
                format!("{OTHERWISE}, or {end}"),
            )
        }
    }
}

/// A process: its number and its command line.
#[derive(Debug, Clone)]
struct Process {
    pid: u32,
    command: Vec<String>,
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, process {}", self.name(), self.pid)
    }
}

impl Process {
    /// The world-readable facts about a process.
    fn of(pid: u32) -> Option<Self> {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        Some(Self { pid, command: words.collect() })
    }

    /// The program's name.
    fn name(&self) -> &str {
        let program = self.command.first().map_or("", String::as_str);
        program.rsplit('/').next().unwrap_or(program)
    }

    /// The `--data-dir` of a server.
    fn data_dir(&self) -> Option<PathBuf> {
        let mut words = self.server_flags()?.iter();
        words.find_map(|word| word.strip_prefix("--data-dir")).and_then(|rest| match rest {
            "" => words.next().map(PathBuf::from),
            _ => rest.strip_prefix('=').map(PathBuf::from),
        })
    }

    fn server_flags(&self) -> Option<&[String]> {
        let is_server = self.name() == "coracle" && self.command.get(1).is_some_and(|verb| verb == "server");
        is_server.then(|| &self.command[2..])
    }

    /// Whether it is the server of a data directory. One that has it from a file of options is taken for it.
    fn is_server_of(&self, data_dir: &Path) -> bool {
        let real = |dir: &Path| dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        self.server_flags().is_some() && self.data_dir().is_none_or(|dir| real(&dir) == real(data_dir))
    }
}

/// Who listens on an address. Of several that hold the socket, as who handed it over may do, ours first, then any server.
fn holder(bind: SocketAddr, ours: impl Fn(&Process) -> bool) -> Holder {
    let sockets: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .flat_map(|table| listeners(&fs::read_to_string(table).unwrap_or_default(), bind))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let processes: Vec<Process> = numbers.filter_map(Process::of).collect();
    let mut holders: Vec<&Process> =
        processes.iter().filter(|process| holds(process.pid, &sockets)).collect();
    holders.sort_by_key(|process| (!ours(process), process.server_flags().is_none()));
    match holders.first() {
        Some(process) if ours(process) => Holder::Ours((*process).clone()),
        Some(process) => Holder::Other((*process).clone()),
        None => Holder::Unseen(processes.iter().find(|process| ours(process)).cloned()),
    }
}

fn holds(pid: u32, sockets: &[String]) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.any(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
}

/// The inodes of sockets in a table of `/proc/net` that listen where `bind` would.
fn listeners(table: &str, bind: SocketAddr) -> Vec<String> {
    const LISTEN: &str = "0A";
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields.get(1)?.rsplit_once(':')?;
        let ip = address(ip)?;
        let meets = ip == bind.ip() || ip.is_unspecified() || bind.ip().is_unspecified();
        let here = u16::from_str_radix(port, 16).ok()? == bind.port() && meets;
        (here && *fields.get(3)? == LISTEN).then(|| fields.get(9).map(ToString::to_string))?
    };
    table.lines().skip(1).filter_map(inode).collect()
}

/// An address as the kernel writes it there: words of 32 bits in the machine's order.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::finding::Outcome::{Limited, Missing, Ok as Fine};
    use super::*;

    fn process(line: &str) -> Process {
        Process { pid: 7, command: line.split(' ').map(str::to_owned).collect() }
    }

    #[test]
    fn who_listens_is_found() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let bind = held.local_addr().unwrap();
        let here = |process: &Process| process.pid == std::process::id();
        assert_eq!(tcp_port(bind, "test", here).outcome, Fine);
        assert_eq!(tcp_port(bind, "test", |_| false).outcome, Missing);
        let beside = SocketAddr::new("127.0.0.2".parse().unwrap(), bind.port());
        assert!(tcp_port(beside, "test", |_| false).seen.starts_with("free"));
        let any = SocketAddr::new(bind.ip(), 0);
        assert_eq!(tcp_port(any, "test", |_| false).name, "port");
        let elsewhere = "203.0.113.9:6443".parse().unwrap();
        assert_eq!(tcp_port(elsewhere, "test", |_| false).outcome, Missing);
    }

    #[test]
    fn only_listeners_in_the_way_count() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:192B 00000000:0000 01 0 0 0 0 0 1234 1\n   1: 0200007F:192B 00000000:0000 0A 0 0 0 0 0 5678 1\n";
        for (bind, want) in [
            ("127.0.0.2:6443", vec!["5678"]),
            ("0.0.0.0:6443", vec!["5678"]),
            ("127.0.0.1:6443", vec![]),
            ("127.0.0.2:6444", vec![]),
        ] {
            assert_eq!(listeners(table, bind.parse().unwrap()), want, "{bind}");
        }
        assert_eq!(address("00000000000000000000000001000000"), Some("::1".parse().unwrap()));
        assert_eq!(address("0000000000000000FFFF00000100007F"), Some("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn a_server_is_known_by_its_data_dir() {
        let ours = Path::new("/var/lib/coracle");
        for (line, want) in [
            ("/usr/local/bin/coracle server --data-dir /var/lib/coracle --bind 0.0.0.0:6443", true),
            ("coracle server --data-dir=/var/lib/coracle", true),
            ("coracle server --config /etc/coracle/server.yaml", true),
            ("coracle server --data-dir /var/lib/other", false),
            ("coracle up --data-dir /var/lib/coracle", false),
            ("nginx server --data-dir /var/lib/coracle", false),
        ] {
            assert_eq!(process(line).is_server_of(ours), want, "{line}");
        }
    }

    #[test]
    fn a_port_in_use_is_judged_by_who_holds_it() {
        let bind = SocketAddr::from(([127, 0, 0, 1], 6443));
        let server = process("/bin/coracle server --data-dir /tmp/two");
        for (holder, outcome, seen) in [
            (Holder::Ours(server.clone()), Fine, "coracle, process 7"),
            (
                Holder::Unseen(Some(server.clone())),
                Fine,
                "in use, as it is to be while coracle, process 7 runs",
            ),
            (Holder::Unseen(None), Limited, "in use, only root sees by whom"),
            (Holder::Other(server), Missing, "held by coracle, process 7, of another cluster in /tmp/two"),
            (Holder::Other(process("nginx")), Missing, "held by nginx, process 7"),
        ] {
            let finding = judge(bind, holder);
            assert_eq!((finding.outcome, finding.seen.as_str()), (outcome, seen));
        }
    }
}
