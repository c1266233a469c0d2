//! Files of a sandbox, and bind mounts that pin its namespaces.

use std::fs;
use std::io;
use std::path::Path;

use coracle_proto::cri;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::paths::private_dir;
use coracle_host_dir::HostDir;

const NSFS_MAGIC: libc::c_long = 0x6e73_6673;
const SHM_SIZE: &str = "mode=1777,size=65536k";
const NONE: Option<&str> = None;

/// The text of resolv.conf.
pub fn resolv_conf(dns: &cri::DnsConfig) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text += &format!("search {}\n", dns.searches.join(" "));
    }
    for server in &dns.servers {
        text += &format!("nameserver {server}\n");
    }
    if !dns.options.is_empty() {
        text += &format!("options {}\n", dns.options.join(" "));
    }
    text
}

/// Writes resolv.conf, hosts and hostname, and mounts the sandbox's own /dev/shm.
pub fn write(dir: &Path, config: &cri::PodSandboxConfig, hostname: &str, own_shm: bool) -> io::Result<()> {
    private_dir(dir)?;
    let held = HostDir::open(dir)?;
    // Readable for non-root containers; the parent directory's mode keeps other users out.
    let text = match &config.dns_config {
        Some(dns) => resolv_conf(dns),
        None => read_host("/etc/resolv.conf"),
    };
    held.rewrite("resolv.conf", text.as_bytes(), 0o644)?;
    held.rewrite("hosts", read_host("/etc/hosts").as_bytes(), 0o644)?;
    held.rewrite("hostname", format!("{hostname}\n").as_bytes(), 0o644)?;
    if own_shm {
        let shm = dir.join("shm");
        private_dir(&shm)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("shm"), &shm, Some("tmpfs"), flags, Some(SHM_SIZE))?;
    }
    Ok(())
}

/// Changes the owner of the files to the pod's root.
pub fn chown(dir: &Path, (uid, gid): (u32, u32)) -> io::Result<()> {
    if (uid, gid) == (0, 0) {
        return Ok(());
    }
    let dir = HostDir::open(dir)?;
    for file in ["resolv.conf", "hosts", "hostname"] {
        dir.entry(file)?.chown(Some(uid), Some(gid))?;
    }
    Ok(())
}

fn read_host(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// True when a namespace is mounted there.
pub fn is_pinned(path: &Path) -> bool {
    nix::sys::statfs::statfs(path).is_ok_and(|s| s.filesystem_type().0 == NSFS_MAGIC)
}

/// Pins a namespace of a process by a bind mount. Idempotent.
pub fn pin(pid: i32, kind: &str, path: &Path) -> io::Result<()> {
    if is_pinned(path) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        private_dir(parent)?;
    }
    fs::File::create(path)?;
    let source = format!("/proc/{pid}/ns/{kind}");
    mount(Some(&*source), path, NONE, MsFlags::MS_BIND, NONE)?;
    Ok(())
}

/// Unmounts everything below a sandbox's directory and removes it. Idempotent.
pub fn remove(dir: &Path) -> io::Result<()> {
    if let Ok(pins) = fs::read_dir(dir.join("ns")) {
        for pin in pins.flatten() {
            unmount(&pin.path())?;
        }
    }
    unmount(&dir.join("shm"))?;
    super::paths::remove_tree(dir)
}

/// Unmounts everything at `path`. Idempotent.
pub fn unmount(path: &Path) -> io::Result<()> {
    loop {
        match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            // Not a mount point, or not there.
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_has_searches_servers_and_options() {
        let strings = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
        let dns = cri::DnsConfig {
            servers: strings(&["10.96.0.10", "fd00::a"]),
            searches: strings(&["a.svc.cluster.local", "svc.cluster.local"]),
            options: strings(&["ndots:5", "timeout:1"]),
        };
        let expected = "search a.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\nnameserver fd00::a\n\
            options ndots:5 timeout:1\n";
        assert_eq!(resolv_conf(&dns), expected);
        assert_eq!(resolv_conf(&Default::default()), "");
    }
}
