//! Confines a child that has joined the container's namespaces, then execs the program.
//!
//! The order of the steps is that of OCI runtimes. Loading a seccomp filter needs either CAP_SYS_ADMIN or no_new_privs,
//! so the filter is loaded first without no_new_privs, and last with it.

use std::convert::Infallible;
use std::ffi::{CString, NulError};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, fstat, umask};
use nix::unistd::{Gid, Uid};

use super::join::Target;
use super::label::{LabelError, Labels};
use super::program::{self, ProgramError};
use super::request::{Capabilities, Request};
use super::steps::{StepError, Steps};

/// Why the child could not exec the program. Errors of the kernel are worded as OCI runtimes word them.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// A system call.
    #[error("{step}: {}", errno.desc().to_lowercase())]
    Step {
        /// The operation that failed.
        step: &'static str,
        /// The cause.
        errno: Errno,
    },
    /// The working directory cannot be entered.
    #[error("chdir to cwd ({cwd:?}) set in config.json failed: {}", errno.desc().to_lowercase())]
    WorkingDirectory {
        /// As the container's configuration has it.
        cwd: String,
        /// The cause.
        errno: Errno,
    },
    /// The program was found, but the kernel does not run it.
    #[error("exec {path}: {}", errno.desc().to_lowercase())]
    Exec {
        /// In the container.
        path: String,
        /// The cause.
        errno: Errno,
    },
    /// An argument, variable or path with a zero byte.
    #[error("{text:?}")]
    Nul {
        /// The value as given.
        text: String,
        /// Where its zero byte is.
        #[source]
        source: NulError,
    },
    /// The parent no longer waits for the command.
    #[error("given up")]
    GivenUp,
    /// A step of the caller.
    #[error("{step}")]
    Caller {
        /// The step that failed.
        step: &'static str,
        /// The cause.
        #[source]
        source: StepError,
    },
    /// AppArmor or SELinux.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// The container has no such program.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Confines the process and execs the program; returns only on error. `parent` is the pipe for that error.
pub fn program(
    request: &Request,
    target: &Target,
    labels: &Labels,
    steps: &dyn Steps,
    parent: &impl AsFd,
) -> ConfineError {
    match prepare(request, target, labels, steps, parent.as_fd()) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn step<T>(step: &'static str, result: Result<T, Errno>) -> Result<T, ConfineError> {
    result.map_err(|errno| ConfineError::Step { step, errno })
}

fn c_string(text: &str) -> Result<CString, ConfineError> {
    CString::new(text).map_err(|source| ConfineError::Nul { text: text.to_owned(), source })
}

fn prepare(
    request: &Request,
    target: &Target,
    labels: &Labels,
    steps: &dyn Steps,
    parent: BorrowedFd<'_>,
) -> Result<Infallible, ConfineError> {
    let filter = || steps.filter().map_err(|source| ConfineError::Caller { step: "seccomp filter", source });
    step("cgroup namespace", target.cgroups())?;
    step("root of the user namespace", target.root())?;
    // Labels take effect at exec.
    labels.take(request)?;
    step("setsid", nix::unistd::setsid())?;
    steps.terminal().map_err(|source| ConfineError::Caller { step: "terminal", source })?;
    step("closing descriptors", close_all_but(parent))?;
    check_parent_waiting(parent)?;
    umask(Mode::from_bits_truncate(request.umask.unwrap_or(0o022)));
    step("session keyring", join_keyring(request.keyring.as_deref()))?;
    chown_streams(request.uid);
    if request.no_new_privileges {
        step("no_new_privs", nix::sys::prctl::set_no_new_privs())?;
    } else {
        filter()?;
    }
    take_user(request, &request.capabilities)?;
    let mut env = request.env.clone();
    if !env.iter().any(|entry| entry.starts_with("HOME=")) {
        env.push(format!("HOME={}", program::home(request.uid)));
    }
    let command = request.args.first().map_or("", String::as_str);
    let path = program::find(command, &env)?;
    let strings = |list: &[String]| -> Result<Vec<CString>, ConfineError> {
        list.iter().map(|text| c_string(text)).collect()
    };
    let (args, env) = (strings(&request.args)?, strings(&env)?);
    let file = c_string(&path)?;
    default_signals();
    check_parent_waiting(parent)?;
    if request.no_new_privileges {
        filter()?;
    }
    nix::unistd::execve(&file, &args, &env).map_err(|errno| ConfineError::Exec { path, errno })
}

/// Takes the user and groups of a request and these capabilities, and enters its working directory.
pub fn take_user(request: &Request, sets: &Capabilities) -> Result<(), ConfineError> {
    // As root first, then as the user: on a file system with root squash only the user may enter the directory.
    let early = nix::unistd::chdir(request.cwd.as_str());
    step("bounding set", drop_bounding_set(sets.bounding))?;
    step("user", become_user(request))?;
    step("capabilities", set_capabilities(sets))?;
    if early.is_err() {
        let refused = |errno| ConfineError::WorkingDirectory { cwd: request.cwd.clone(), errno };
        nix::unistd::chdir(request.cwd.as_str()).map_err(refused)?;
    }
    // A working directory outside the container's root would allow an escape.
    step("the working directory is outside of the container", nix::unistd::getcwd())?;
    Ok(())
}

/// Replaces the session keyring of this process by the named one, or by a new one without a name.
pub fn join_keyring(name: Option<&str>) -> Result<(), Errno> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;
    let name = name.map(CString::new).transpose().map_err(|_| Errno::EINVAL)?;
    let at = name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
    // SAFETY: the name ends with a zero and outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, at) };
    match Errno::result(result) {
        // The kernel has no keyrings.
        Err(Errno::ENOSYS) => Ok(()),
        other => other.map(drop),
    }
}

/// Makes the command's user the owner of its pipes, so that it may reopen `/dev/stdout`. Devices are left alone.
pub fn chown_streams(uid: u32) {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    for stream in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
        let Ok(found) = fstat(stream) else { continue };
        let device = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
        if !device && found.st_uid != uid {
            let _ = nix::unistd::fchown(stream, Some(Uid::from_raw(uid)), None);
        }
    }
}

/// Closes all descriptors but the standard streams and the pipe to the parent, which is close-on-exec.
fn close_all_but(parent: BorrowedFd<'_>) -> Result<(), Errno> {
    let parent = parent.as_raw_fd() as libc::c_uint;
    for (first, last) in [(3, parent - 1), (parent + 1, libc::c_uint::MAX)] {
        if first <= last {
            // SAFETY: this process never uses the owners of these descriptors again: it execs another program or exits.
            #[allow(unsafe_code)]
            let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
            Errno::result(result)?;
        }
    }
    Ok(())
}

/// Fails if the parent no longer waits: a command that was given up must not run.
fn check_parent_waiting(parent: BorrowedFd<'_>) -> Result<(), ConfineError> {
    let mut pipe = [PollFd::new(parent, PollFlags::empty())];
    match poll(&mut pipe, PollTimeout::ZERO) {
        Ok(0) => Ok(()),
        _ => Err(ConfineError::GivenUp),
    }
}

/// A `prctl` of numbers.
fn prctl(option: libc::c_int, two: libc::c_ulong, three: libc::c_ulong) -> Result<(), Errno> {
    // SAFETY: only options that take numbers are given.
    #[allow(unsafe_code)]
    let result = unsafe { libc::prctl(option, two, three, 0, 0) };
    Errno::result(result).map(drop)
}

/// Removes all capabilities outside of `set` from the bounding set.
fn drop_bounding_set(set: u64) -> Result<(), Errno> {
    for capability in (0..64).filter(|n| set & (1 << n) == 0) {
        match prctl(libc::PR_CAPBSET_DROP, capability, 0) {
            // Past the last capability of this kernel.
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

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`: one half of the capabilities.
#[repr(C)]
#[derive(Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The permitted capabilities of this process.
pub fn permitted() -> Result<u64, Errno> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut data = [CapabilityData::default(), CapabilityData::default()];
    // SAFETY: header and two halves are laid out as this version of the call writes them.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    Errno::result(result)?;
    Ok(u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32)
}

/// Sets the capability sets to exactly these.
fn set_capabilities(sets: &Capabilities) -> Result<(), Errno> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let half = |shift: u32| CapabilityData {
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

/// Signals that C libraries use within a process: programs in Go, and so runc, leave them as they are inherited.
const RESERVED: std::ops::RangeInclusive<libc::c_int> = 32..=34;

/// Of these, the one that glibc handles in a process with threads (SIGSETXID), as runc is: exec resets what is handled.
const SETXID: libc::c_int = 33;

/// Resets ignored signals, which would stay ignored after exec: Rust programs ignore SIGPIPE, and the agent may have
/// inherited more.
pub fn default_signals() {
    for signal in (1..=64).filter(|signal| *signal == SETXID || !RESERVED.contains(signal)) {
        // It fails for SIGKILL and SIGSTOP, which are never ignored.
        set_action(signal, libc::SIG_DFL);
    }
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
}

/// Ignores a signal or resets it. Not by the C library, which refuses signals that it uses itself.
fn set_action(signal: libc::c_int, action: libc::sighandler_t) {
    // As the kernel has it: handler, flags, restorer, and a mask of 64 signals.
    let action: [libc::sighandler_t; 5] = [action, 0, 0, 0, 0];
    let old: *mut libc::c_void = std::ptr::null_mut();
    // SAFETY: the kernel reads the array, which is not shorter than its structure, and writes nothing. No handler is involved.
    #[allow(unsafe_code)]
    unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), old, size_of::<u64>());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_program_ignores_of_the_inherited_signals_only_those_that_runc_leaves() {
        let mut command = Command::new("grep");
        command.args(["SigIgn", "/proc/self/status"]);
        let ignore_all = || {
            (1..=64).for_each(|signal| set_action(signal, libc::SIG_IGN));
            default_signals();
            Ok(())
        };
        // SAFETY: the function makes system calls only.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(ignore_all);
        }
        let output = command.output().unwrap();
        let (cancel, sync_call) = (1_u64 << 31, 1_u64 << 33);
        let wanted = format!("SigIgn:\t{:016x}\n", cancel | sync_call);
        assert_eq!(String::from_utf8_lossy(&output.stdout), wanted);
    }
}
