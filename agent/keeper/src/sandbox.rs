//! Clones `pause` directly into its cgroup and new namespaces.
//!
//! Only for a process with one thread: the child runs Rust between clone and exec.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::CloneFlags;
use nix::unistd::{Gid, Uid};

use super::causes::chain;
use super::wire::{Failure, SandboxSpec};

/// A running `pause`.
pub struct Pause {
    /// Its process.
    pub pid: i32,
    /// Its pidfd.
    pub pidfd: OwnedFd,
}

/// Clones `pause` as `spec` says. On failure no process is left.
pub fn clone_pause(spec: &SandboxSpec, cgroup: Option<&OwnedFd>) -> Result<Pause, Failure> {
    let pipe = || io::pipe().map_err(|e| Failure::system("pipe", e));
    let (mut failed, failure) = pipe()?;
    let (go, mut start) = pipe()?;
    let mut flags = CloneFlags::CLONE_NEWNS;
    for (wanted, flag) in [
        (spec.net, CloneFlags::CLONE_NEWNET),
        (spec.ipc, CloneFlags::CLONE_NEWIPC),
        (spec.uts, CloneFlags::CLONE_NEWUTS),
        (spec.pid, CloneFlags::CLONE_NEWPID),
        (spec.user.is_some(), CloneFlags::CLONE_NEWUSER),
    ] {
        flags.set(flag, wanted);
    }
    let Some((pid, pidfd)) =
        clone3(flags, cgroup.map(OwnedFd::as_fd)).map_err(|e| Failure::system("clone pause", e))?
    else {
        drop((failed, start));
        let error = become_pause(spec, go);
        let _ = (&failure).write_all(chain(&error).as_bytes());
        // SAFETY: ends the child without running anything of the parent's.
        #[allow(unsafe_code)]
        unsafe {
            libc::_exit(127)
        }
    };
    drop((failure, go));
    let result = map_user(spec, pid).and_then(|()| {
        // The child waits until its ids are mapped: closing the pipe lets it continue.
        start.write_all(b"!").map_err(|e| Failure::system("start pause", e))?;
        let mut error = String::new();
        failed.read_to_string(&mut error).map_err(|e| Failure::system("start pause", e))?;
        if error.is_empty() { Ok(()) } else { Err(Failure::system("start pause", error)) }
    });
    if let Err(failure) = result {
        let _ = super::pidfd::kill(&pidfd, libc::SIGKILL);
        let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None);
        return Err(failure);
    }
    Ok(Pause { pid, pidfd })
}

/// A child and its pidfd; `None` in the child. Only for a process with one thread.
pub fn clone3(
    flags: CloneFlags,
    cgroup: Option<std::os::fd::BorrowedFd<'_>>,
) -> io::Result<Option<(i32, OwnedFd)>> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut pidfd: i32 = -1;
    // SAFETY: `clone_args` is plain data; the kernel writes only `pidfd`. Without CLONE_VM this is a fork, and this
    // process has one thread.
    #[allow(unsafe_code)]
    unsafe {
        let mut args: libc::clone_args = std::mem::zeroed();
        args.flags = flags.bits() as u64 | libc::CLONE_PIDFD as u64;
        args.pidfd = &raw mut pidfd as u64;
        args.exit_signal = libc::SIGCHLD as u64;
        if let Some(cgroup) = cgroup {
            args.flags |= CLONE_INTO_CGROUP;
            args.cgroup = cgroup.as_raw_fd() as u64;
        }
        match libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(None),
            pid => Ok(Some((pid as i32, OwnedFd::from_raw_fd(pidfd)))),
        }
    }
}

fn map_user(spec: &SandboxSpec, pid: i32) -> Result<(), Failure> {
    let Some(maps) = &spec.user else { return Ok(()) };
    for (file, lines) in [("uid_map", &maps.uid), ("gid_map", &maps.gid)] {
        fs::write(format!("/proc/{pid}/{file}"), lines).map_err(|e| Failure::system(file, e))?;
    }
    Ok(())
}

/// Why the child could not exec `pause`.
#[derive(Debug, thiserror::Error)]
#[error("{step}")]
struct PauseError {
    step: String,
    #[source]
    cause: Cause,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Kernel(#[from] Errno),
}

fn step<T, E: Into<Cause>>(step: impl Into<String>, result: Result<T, E>) -> Result<T, PauseError> {
    result.map_err(|e| PauseError { step: step.into(), cause: e.into() })
}

/// Runs in the child; returns only on error.
fn become_pause(spec: &SandboxSpec, mut go: impl Read) -> PauseError {
    match prepare(spec, &mut go) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn prepare(spec: &SandboxSpec, go: &mut impl Read) -> Result<std::convert::Infallible, PauseError> {
    step("wait for the keeper", go.read_exact(&mut [0]))?;
    // Before dropping privileges: only the host's root may traverse the parent directories.
    step("root of pause", stage_root(&spec.root))?;
    if spec.user.is_some() {
        step("setgid 0", nix::unistd::setresgid(Gid::from_raw(0), Gid::from_raw(0), Gid::from_raw(0)))?;
        step("setuid 0", nix::unistd::setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)))?;
    }
    let none = nix::sys::signal::SigSet::empty();
    step("signal mask", none.thread_set_mask())?;
    step("setsid", nix::unistd::setsid())?;
    if !spec.hostname.is_empty() && spec.uts {
        step("sethostname", nix::unistd::sethostname(&spec.hostname))?;
    }
    if spec.net {
        step("bring lo up", raise_loopback())?;
    }
    for (name, value) in &spec.sysctls {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        step(format!("sysctl {name}={value}"), fs::write(path, value))?;
    }
    // Lowering the score needs CAP_SYS_RESOURCE. Without it the default is kept.
    let _ = fs::write("/proc/self/oom_score_adj", spec.oom_score_adj.to_string());
    step("root of pause", enter_root())?;
    step("setgroups", nix::unistd::setgroups(&[]))?;
    let (uid, gid) = (Uid::from_raw(spec.uid), Gid::from_raw(spec.gid));
    step("setgid", nix::unistd::setresgid(gid, gid, gid))?;
    step("setuid", nix::unistd::setresuid(uid, uid, uid))?;
    step("no_new_privs", nix::sys::prctl::set_no_new_privs())?;
    step("exec /pause", nix::unistd::execve(c"/pause", &[c"/pause"], &[] as &[&std::ffi::CStr]))
}

/// Bind-mounts the root of `pause` on itself and changes into it.
fn stage_root(root: &Path) -> nix::Result<()> {
    const NONE: Option<&str> = None;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    mount(Some(root), root, NONE, MsFlags::MS_BIND, NONE)?;
    let locked = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(NONE, root, NONE, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | locked, NONE)?;
    nix::unistd::chdir(root)
}

/// Pivots into the new root, so that `/proc/<pause>/root` shows nothing of the host in a shared PID namespace.
fn enter_root() -> nix::Result<()> {
    nix::unistd::pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    nix::unistd::chdir("/")
}

fn raise_loopback() -> io::Result<()> {
    // SAFETY: `ifreq` is plain data large enough for both requests; the socket is closed by `OwnedFd`.
    #[allow(unsafe_code)]
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(fd);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
