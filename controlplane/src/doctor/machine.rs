//! Privilege, ports, disk, memory, clock.

use super::Role;
use super::finding::Finding;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;

const PART: &str = "machine";
const GIB: u64 = 1 << 30;

/// Root, and the capabilities that root of a container may lack.
pub fn privilege(role: Role, root: bool) -> Finding {
    if !root && role == Role::Server {
        return Finding::ok(PART, "privilege", "none: the server needs none above port 1023");
    }
    if !root {
        let seen = "not root: nodes make namespaces, mounts and links";
        return Finding::missing(PART, "privilege", seen, "run as root");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or("0").trim().to_owned();
    judge_capabilities(u64::from_str_radix(&mask, 16).unwrap_or(0))
}

fn judge_capabilities(mask: u64) -> Finding {
    let has = |bit: u32| mask & (1 << bit) != 0;
    let needed = [(21, "CAP_SYS_ADMIN"), (12, "CAP_NET_ADMIN"), (18, "CAP_SYS_CHROOT"), (27, "CAP_MKNOD")];
    let lost: Vec<&str> = needed.iter().filter(|(bit, _)| !has(*bit)).map(|(_, name)| *name).collect();
    if !lost.is_empty() {
        let seen = format!("root without {}", lost.join(", "));
        return Finding::missing(PART, "privilege", seen, "run on the host or in a privileged container");
    }
    if !has(24) {
        let seen =
            "root without CAP_SYS_RESOURCE: scores of the OOM killer are not lowered, limits not raised";
        return Finding::limited(PART, "privilege", seen, "run on the host or in a privileged container");
    }
    Finding::ok(PART, "privilege", "root")
}

/// The ports that will be listened on.
pub fn ports(role: Role) -> Vec<Finding> {
    let tcp: &[(u16, &str)] = match role {
        Role::Up => &[(6443, "API server")],
        Role::Server => &[(6443, "API server")],
        Role::Agent => &[(10250, "node API")],
    };
    let mut findings: Vec<Finding> = tcp.iter().map(|(port, what)| tcp_port(*port, what)).collect();
    if role == Role::Agent {
        // The kernel's own vxlan device holds its port too: in use by itself is fine, and not told apart from here.
        findings.push(match UdpSocket::bind(("0.0.0.0", 8472)) {
            Ok(_) => Finding::ok(PART, "port 8472/udp", "free, for vxlan"),
            Err(error) => Finding::limited(
                PART,
                "port 8472/udp",
                format!("vxlan: {error}"),
                "end what holds it, unless it is this node's own vxlan (ss -ulnp 'sport = :8472')",
            ),
        });
    }
    findings
}

fn tcp_port(port: u16, what: &str) -> Finding {
    let name = format!("port {port}/tcp");
    let error = match TcpListener::bind(("0.0.0.0", port)) {
        Ok(_) => return Finding::ok(PART, name, format!("free, for the {what}")),
        Err(error) => error,
    };
    match holder(port) {
        Some((pid, program)) if program.starts_with("coracle") => {
            Finding::ok(PART, name, format!("{program}, process {pid}"))
        }
        Some((pid, program)) => {
            let seen = format!("held by {program}, process {pid}");
            Finding::missing(PART, name, seen, format!("end {program}, or choose another port (--bind)"))
        }
        None => Finding::missing(
            PART,
            name,
            error.to_string(),
            format!("end what holds it (ss -tlnp 'sport = :{port}'), or choose another port (--bind)"),
        ),
    }
}

/// Who listens on a port: its process and the program's name. Of several that hold the socket, as who handed it over may
/// do, ours first.
fn holder(port: u16) -> Option<(u32, String)> {
    let sockets: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| listener(&fs::read_to_string(table).ok()?, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let numbers = fs::read_dir("/proc").ok()?.flatten();
    let processes = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holders = processes.filter(|pid| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.any(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
    });
    let named = holders.filter_map(|pid| {
        Some((pid, fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned()))
    });
    named.min_by_key(|(_, program)| !program.starts_with("coracle"))
}

/// The inode of the socket that listens on a port, in a table of `/proc/net`.
fn listener(table: &str, port: u16) -> Option<String> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let here = u16::from_str_radix(fields.get(1)?.rsplit_once(':')?.1, 16).ok()?;
        (here == port && *fields.get(3)? == LISTEN).then(|| fields.get(9).map(ToString::to_string))?
    })
}

/// Room for state and images.
pub fn disk(data_dir: &Path) -> Finding {
    let home = data_dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
    match nix::sys::statvfs::statvfs(home) {
        Ok(disk) => {
            let free = disk.blocks_available() * disk.fragment_size();
            let inodes = if disk.files() == 0 { u64::MAX } else { disk.files_available() };
            judge_disk(home, free, inodes)
        }
        Err(error) => Finding::missing(
            PART,
            "disk",
            format!("{}: {error}", home.display()),
            "choose another --data-dir",
        ),
    }
}

fn judge_disk(home: &Path, free: u64, inodes: u64) -> Finding {
    let seen = format!("{:.1} GiB free at {}", free as f64 / GIB as f64, home.display());
    let advice = "make room, or choose another --data-dir";
    if free < GIB / 2 || inodes < 1000 {
        Finding::missing(PART, "disk", format!("{seen}, {inodes} inodes"), advice)
    } else if free < 4 * GIB || inodes < 100_000 {
        Finding::limited(PART, "disk", format!("{seen}: pods are evicted when it runs short"), advice)
    } else {
        Finding::ok(PART, "disk", seen)
    }
}

/// Room for processes.
pub fn memory() -> Finding {
    judge_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

fn judge_memory(meminfo: &str) -> Finding {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    let seen = format!("{} MiB available", kib >> 10);
    if kib < 128 << 10 {
        return Finding::missing(
            PART,
            "memory",
            seen,
            "128 MiB are the least; nodes evict pods below 100 MiB",
        );
    }
    Finding::ok(PART, "memory", seen)
}

/// Certificates and leases need a clock that is right.
pub fn clock() -> Finding {
    // SAFETY: an all-zero timex asks for nothing to be changed, and the kernel fills it in.
    #[allow(unsafe_code)]
    let (state, timex) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut timex), timex)
    };
    judge_clock(jiff::Timestamp::now().as_second(), state != -1 && timex.status & libc::STA_UNSYNC == 0)
}

/// When this was written; a clock before it is wrong.
const WRITTEN: i64 = 1_767_225_600;

fn judge_clock(now: i64, synchronised: bool) -> Finding {
    let text = jiff::Timestamp::from_second(now).map(|t| t.to_string()).unwrap_or_default();
    if now < WRITTEN {
        let advice = "set the clock: certificates would not be valid (timedatectl set-ntp true)";
        return Finding::missing(PART, "clock", text, advice);
    }
    if synchronised {
        return Finding::ok(PART, "clock", format!("{text}, synchronised"));
    }
    let advice = "several machines need the same time: apt-get install systemd-timesyncd";
    Finding::limited(PART, "clock", format!("{text}, not synchronised"), advice)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::finding::Outcome::{Limited, Missing, Ok as Fine};
    use super::*;

    #[test]
    fn limits_of_the_machine() {
        let home = Path::new("/var/lib");
        for (free, inodes, want) in [
            (10 * GIB, 1 << 20, Fine),
            (10 * GIB, 50_000, Limited),
            (GIB, 1 << 20, Limited),
            (GIB / 4, 1 << 20, Missing),
        ] {
            assert_eq!(judge_disk(home, free, inodes).outcome, want, "{free} {inodes}");
        }
        assert_eq!(judge_memory("MemTotal: 9 kB\nMemAvailable:  1048576 kB\n").outcome, Fine);
        assert_eq!(judge_memory("MemAvailable:  1024 kB\n").outcome, Missing);
        assert_eq!(judge_clock(0, true).outcome, Missing);
        assert_eq!(judge_clock(WRITTEN, true).outcome, Fine);
        assert_eq!(judge_clock(WRITTEN, false).outcome, Limited);
        let all = (1 << 41) - 1;
        assert_eq!(judge_capabilities(all).outcome, Fine);
        assert_eq!(judge_capabilities(all & !(1 << 24)).outcome, Limited);
        assert_eq!(judge_capabilities(all & !(1 << 21)).seen, "root without CAP_SYS_ADMIN");
    }

    #[test]
    fn who_listens_is_found() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = held.local_addr().unwrap().port();
        assert_eq!(holder(port).unwrap().0, std::process::id());
        assert_eq!(tcp_port(port, "test").outcome, {
            // The tests' program has a name of its own or one that begins with ours.
            let ours = holder(port).unwrap().1.starts_with("coracle");
            if ours { Fine } else { Missing }
        });
        drop(held);
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:192B 00000000:0000 01 0 0 0 0 0 1234 1\n   1: 00000000:192B 00000000:0000 0A 0 0 0 0 0 5678 1\n";
        assert_eq!(listener(table, 6443), Some("5678".to_owned()));
        assert_eq!(listener(table, 6444), None);
    }
}
