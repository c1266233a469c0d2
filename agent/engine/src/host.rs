//! Detects features of the host, and enters the keeper's mount namespace.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use coracle_cli::causes;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, sockopt};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use super::apparmor;
use super::spec::{Contexts, Host, capabilities};

const CAP_SYS_RESOURCE: u8 = 24;

/// Detects the host's security features and limits.
pub fn detect(controllers: BTreeSet<String>) -> Host {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let capabilities = capabilities::from_mask(field("CapBnd:").unwrap_or(0));
    // Without the capability, a process may only be made more likely to be killed than its parent.
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    let own = own.trim().parse().unwrap_or(0);
    let lowest = if capabilities.contains(&CAP_SYS_RESOURCE) { -1000 } else { own };
    let apparmor = has_apparmor();
    let no_default_profile = apparmor
        .then(apparmor::load_default)
        .and_then(Result::err)
        .map(|error| causes::chain(&error))
        .inspect(|error| {
            tracing::warn!(error, "default AppArmor profile not loaded, containers run without it")
        });
    Host {
        seccomp: status.lines().any(|line| line.starts_with("Seccomp:")),
        apparmor,
        no_default_profile,
        selinux: has_selinux().then(container_contexts),
        oom_score_adj_min: lowest,
        capabilities,
        controllers,
    }
}

/// True when the kernel enforces AppArmor profiles.
pub fn has_apparmor() -> bool {
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").unwrap_or_default();
    enabled.starts_with('Y')
}

/// True when the kernel has an SELinux policy.
pub fn has_selinux() -> bool {
    Path::new("/sys/fs/selinux/enforce").exists()
}

/// Whether the SELinux policy accepts this context.
pub fn has_label(label: &str) -> bool {
    let asked = fs::write("/sys/fs/selinux/context", label);
    !asked.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
}

/// Default contexts of the host's container policy.
fn container_contexts() -> Contexts {
    let config = fs::read_to_string("/etc/selinux/config").unwrap_or_default();
    let policy =
        config.lines().find_map(|line| line.trim().strip_prefix("SELINUXTYPE=")).unwrap_or("targeted");
    let path = Path::new("/etc/selinux").join(policy.trim()).join("contexts/lxc_contexts");
    parse_contexts(&fs::read_to_string(path).unwrap_or_default())
}

fn parse_contexts(text: &str) -> Contexts {
    let field = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let mut values = lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value);
        values.next().unwrap_or_default().trim().trim_matches('"').to_owned()
    };
    Contexts { process: field("process"), file: field("file") }
}

/// True when the kernel is this one or newer.
pub fn kernel_at_least(major: u32, minor: u32) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    version(&release) >= (major, minor)
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Moves this process into the keeper's mount namespace, and makes `/sys/fs/cgroup` a cgroup2 mount.
///
/// The OCI runtime is the keeper's child: root filesystems and pinned namespaces must be mounted in the keeper's mount
/// namespace, which differs from ours if the service manager creates a new one for every start.
/// On a host that has only cgroup2, and no keeper elsewhere, this does nothing. On any other the process moves to a mount
/// namespace of its own, and the host's mounts stay as they are. Call it before any thread starts: a thread cannot follow.
pub fn enter_mount_namespace(keeper_socket: &Path) -> io::Result<()> {
    const CGROUP: &str = "/sys/fs/cgroup";
    const NONE: Option<&str> = None;
    // A keeper that is exiting counts as none.
    let keeper = peer(keeper_socket).and_then(|pid| File::open(format!("/proc/{pid}/ns/mnt")).ok());
    if let Some(namespace) = keeper
        && namespace.metadata()?.ino() != fs::metadata("/proc/self/ns/mnt")?.ino()
    {
        setns(&namespace, CloneFlags::CLONE_NEWNS)?;
    }
    if statfs(CGROUP)?.filesystem_type() == CGROUP2_SUPER_MAGIC {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("cgroup2"), CGROUP, Some("cgroup2"), flags, NONE)?;
    Ok(())
}

fn peer(path: &Path) -> Option<i32> {
    let fd = socket::socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).ok()?;
    socket::connect(fd.as_raw_fd(), &UnixAddr::new(path).ok()?).ok()?;
    Some(socket::getsockopt(&fd, sockopt::PeerCredentials).ok()?.pid())
}

#[cfg(test)]
mod tests {
    use super::{parse_contexts, version};

    #[test]
    fn policies_name_contexts_of_containers() {
        let text = "process = \"system_u:system_r:container_t:s0\"\n# x\nfile = \"system_u:object_r:container_file_t:s0\"\n\
                    sandbox_kvm_process = \"other\"\n";
        let contexts = parse_contexts(text);
        assert_eq!(contexts.process, "system_u:system_r:container_t:s0");
        assert_eq!(contexts.file, "system_u:object_r:container_file_t:s0");
        assert_eq!(parse_contexts(""), Default::default());
    }

    #[test]
    fn kernels_have_versions() {
        assert_eq!(version("6.1.0-18-cloud-amd64"), (6, 1));
        assert_eq!(version("5.19-rc1"), (5, 19));
        assert_eq!(version(""), (0, 0));
    }
}
