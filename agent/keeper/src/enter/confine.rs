//! From a child in the container's namespaces to its program: rights go, then the program comes.
//!
//! The order is a runtime's. A filter needs either the right to load it or the promise to gain none, so it is loaded
//! first without that promise, and last with it.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, fstat, umask};
use nix::unistd::{Gid, Uid};

use super::join::Target;
use super::label::Labels;
use super::program;
use super::request::{Capabilities, Request};

/// Never returns but with what went wrong. `parent` is the pipe that it is told through.
pub fn program(
    request: &Request,
    target: &Target,
    labels: &Labels,
    filter: Option<&[u8]>,
    parent: &impl AsFd,
) -> String {
    match prepare(request, target, labels, filter, parent.as_fd()) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn step<T>(what: &str, result: Result<T, Errno>) -> Result<T, String> {
    result.map_err(|e| format!("{what}: {}", e.desc().to_lowercase()))
}

fn prepare(
    request: &Request,
    target: &Target,
    labels: &Labels,
    filter: Option<&[u8]>,
    parent: BorrowedFd<'_>,
) -> Result<std::convert::Infallible, String> {
    step("cgroup namespace", target.cgroups())?;
    // They hold from exec on.
    labels.take(request)?;
    step("closing descriptors", close_all_but(parent))?;
    awaited(parent)?;
    step("setsid", nix::unistd::setsid())?;
    umask(Mode::from_bits_truncate(0o022));
    step("session keyring", join_keyring(request.keyring.as_deref()))?;
    own_streams(request);
    if request.no_new_privileges {
        step("no_new_privs", nix::sys::prctl::set_no_new_privs())?;
    } else {
        step("seccomp filter", load(filter))?;
    }
    // As root where only root may go, or as the user where root may not (a file system that squashes it).
    let early = nix::unistd::chdir(request.cwd.as_str());
    step("bounding set", bound(request.capabilities.bounding))?;
    step("user", become_user(request))?;
    step("capabilities", limit(&request.capabilities))?;
    if early.is_err() {
        let cwd = &request.cwd;
        step(&format!("chdir to cwd ({cwd:?}) set in config.json failed"), nix::unistd::chdir(cwd.as_str()))?;
    }
    // A directory that was opened outside would be one way out.
    step("the working directory is outside of the container", nix::unistd::getcwd())?;
    let mut env = request.env.clone();
    if !env.iter().any(|entry| entry.starts_with("HOME=")) {
        env.push(format!("HOME={}", program::home(request.uid)));
    }
    let command = request.args.first().map_or("", String::as_str);
    let path = program::find(command, &env)?;
    let strings = |list: &[String]| -> Result<Vec<CString>, String> {
        list.iter().map(|text| CString::new(text.as_str()).map_err(|e| format!("{text:?}: {e}"))).collect()
    };
    let (args, env) = (strings(&request.args)?, strings(&env)?);
    let file = CString::new(path.as_str()).map_err(|e| format!("{path:?}: {e}"))?;
    default_signals();
    awaited(parent)?;
    if request.no_new_privileges {
        step("seccomp filter", load(filter))?;
    }
    step(&format!("exec {path}"), nix::unistd::execve(&file, &args, &env))
}

/// Keys of the keeper are not the container's. Without a name the keyring is a fresh one.
fn join_keyring(name: Option<&str>) -> Result<(), Errno> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;
    let name = name.map(CString::new).transpose().map_err(|_| Errno::EINVAL)?;
    let at = name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
    // SAFETY: the name ends with a zero and outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, at) };
    match Errno::result(result) {
        // A kernel without keys.
        Err(Errno::ENOSYS) => Ok(()),
        other => other.map(drop),
    }
}

/// Programs open `/dev/stdout` again, which a pipe allows to its owner. Devices are everybody's already.
fn own_streams(request: &Request) {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    for stream in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
        let Ok(found) = fstat(stream) else { continue };
        let device = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
        if !device && found.st_uid != request.uid {
            let _ = nix::unistd::fchown(stream, Some(Uid::from_raw(request.uid)), None);
        }
    }
}

/// Nothing of the node stays open but the streams and the pipe to the parent, which ends at exec.
fn close_all_but(parent: BorrowedFd<'_>) -> Result<(), Errno> {
    let parent = parent.as_raw_fd() as libc::c_uint;
    for (first, last) in [(3, parent - 1), (parent + 1, libc::c_uint::MAX)] {
        if first <= last {
            // SAFETY: the owners of these descriptors are the parent's: this process ends or becomes another program
            // without them.
            #[allow(unsafe_code)]
            let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
            Errno::result(result)?;
        }
    }
    Ok(())
}

/// A command that nobody waits for any more does not run, however long it was kept from running.
fn awaited(parent: BorrowedFd<'_>) -> Result<(), String> {
    let mut pipe = [PollFd::new(parent, PollFlags::empty())];
    match poll(&mut pipe, PollTimeout::ZERO) {
        Ok(0) => Ok(()),
        _ => Err("given up".into()),
    }
}

/// A `prctl` of numbers.
fn prctl(option: libc::c_int, two: libc::c_ulong, three: libc::c_ulong) -> Result<(), Errno> {
    // SAFETY: only options that take numbers are given.
    #[allow(unsafe_code)]
    let result = unsafe { libc::prctl(option, two, three, 0, 0) };
    Errno::result(result).map(drop)
}

/// Nothing outside this set can be had any more.
fn bound(set: u64) -> Result<(), Errno> {
    for capability in (0..64).filter(|n| set & (1 << n) == 0) {
        match prctl(libc::PR_CAPBSET_DROP, capability, 0) {
            // Past the last one that this kernel knows.
            Err(Errno::EINVAL) => break,
            other => other?,
        }
    }
    Ok(())
}

fn become_user(request: &Request) -> Result<(), Errno> {
    nix::sys::prctl::set_keepcaps(true)?;
    let groups: Vec<Gid> = request.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    nix::unistd::setgroups(&groups)?;
    let (uid, gid) = (Uid::from_raw(request.uid), Gid::from_raw(request.gid));
    nix::unistd::setresgid(gid, gid, gid)?;
    nix::unistd::setresuid(uid, uid, uid)?;
    nix::sys::prctl::set_keepcaps(false)
}

/// Exactly these capabilities.
fn limit(sets: &Capabilities) -> Result<(), Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let header = Header { version: VERSION_3, pid: 0 };
    let half = |shift: u32| Data {
        effective: (sets.effective >> shift) as u32,
        permitted: (sets.permitted >> shift) as u32,
        inheritable: (sets.inheritable >> shift) as u32,
    };
    let data = [half(0), half(32)];
    // SAFETY: header and two halves are laid out as this version of the call reads them.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    Errno::result(result)?;
    const CLEAR: libc::c_ulong = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
    const RAISE: libc::c_ulong = libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong;
    prctl(libc::PR_CAP_AMBIENT, CLEAR, 0)?;
    for capability in (0..64).filter(|n| sets.ambient & (1 << n) != 0) {
        prctl(libc::PR_CAP_AMBIENT, RAISE, capability)?;
    }
    Ok(())
}

/// Loads a filter, if there is one.
fn load(filter: Option<&[u8]>) -> Result<(), Errno> {
    const SECCOMP_SET_MODE_FILTER: libc::c_uint = 1;
    let Some(filter) = filter else { return Ok(()) };
    let (instructions, rest) = filter.as_chunks::<8>();
    if instructions.is_empty() || !rest.is_empty() {
        return Err(Errno::EINVAL);
    }
    let instructions: Vec<libc::sock_filter> = instructions
        .iter()
        .map(|&[c0, c1, jt, jf, k0, k1, k2, k3]| libc::sock_filter {
            code: u16::from_ne_bytes([c0, c1]),
            jt,
            jf,
            k: u32::from_ne_bytes([k0, k1, k2, k3]),
        })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| Errno::EINVAL)?,
        filter: instructions.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel reads `len` instructions and checks them.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    Errno::result(result).map(drop)
}

/// What is ignored stays so through exec: Rust programs ignore SIGPIPE, and whoever started the node may have more.
fn default_signals() {
    for signal in 1..=64 {
        // SAFETY: sets the default for a signal; no handler is involved. Some cannot be set, and need not be.
        #[allow(unsafe_code)]
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
}
