//! pidfds, and how the process behind one ended.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

/// Exit code and signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Exit code, 128 + signal for a killed process; none if it is unknown.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
}

impl Ended {
    /// For a process that was reaped by another parent on a kernel before 6.15.
    pub const UNKNOWN: Self = Self { code: None, signal: None };

    /// From the raw status word of wait(2).
    pub fn from_raw(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            return Self { code: Some(128 + signal), signal: Some(signal) };
        }
        Self { code: Some(libc::WEXITSTATUS(status)), signal: None }
    }
}

/// Opens a pidfd; `ESRCH` when the process is gone.
pub fn open(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: plain system call; a result that is not negative is a new descriptor.
    #[allow(unsafe_code)]
    unsafe {
        let fd = Errno::result(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Sends a signal; `ESRCH` when the process is gone.
pub fn kill(pidfd: impl AsFd, signal: i32) -> Result<(), Errno> {
    let fd = pidfd.as_fd().as_raw_fd();
    // SAFETY: plain system call with a null siginfo.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, std::ptr::null::<libc::siginfo_t>(), 0)
    };
    Errno::result(result).map(drop)
}

/// `struct pidfd_info` of linux/pidfd.h, first published size with an exit code.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroupid: u64,
    ids: [u32; 11],
    exit_code: i32,
}

const PIDFD_INFO_EXIT: u64 = 1 << 3;
mod request {
    nix::ioctl_readwrite!(get_info, 0xFF, 11, super::Info);
}

/// Reaps the next ended child: its pid and exit status. Calls waitpid directly because nix cannot represent real-time
/// signals.
pub fn reap_any() -> Option<(i32, Ended)> {
    let mut status = 0;
    // SAFETY: the kernel writes one status word.
    #[allow(unsafe_code)]
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    (pid > 0).then(|| (pid, Ended::from_raw(status)))
}

/// Reaps a child. `Some(None)` while it runs, `None` for a process that is not our child.
fn reap_child(pidfd: BorrowedFd<'_>) -> Option<Option<Ended>> {
    // SAFETY: the kernel writes one `siginfo_t`, which is plain data and has these fields for SIGCHLD.
    #[allow(unsafe_code)]
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG;
        if libc::waitid(libc::P_PIDFD, pidfd.as_raw_fd() as libc::id_t, &mut info, flags) != 0 {
            return None;
        }
        if info.si_pid() == 0 {
            return Some(None);
        }
        let status = info.si_status();
        let ended = match info.si_code {
            libc::CLD_EXITED => Ended { code: Some(status), signal: None },
            _ => Ended { code: Some(128 + status), signal: Some(status) },
        };
        Some(Some(ended))
    }
}

/// Exit status of a process that need not be our child; none while it runs or is a zombie.
pub fn ended(pidfd: impl AsFd) -> Option<Ended> {
    let fd = pidfd.as_fd();
    if let Some(ended) = reap_child(fd) {
        return ended;
    }
    // Two attempts: a process that is being reaped may have no exit code yet and no longer exist as a process.
    for _ in 0..2 {
        let mut info = Info { mask: PIDFD_INFO_EXIT, ..Default::default() };
        // SAFETY: the request number carries the size of `Info`; the kernel writes no more than that.
        #[allow(unsafe_code)]
        let known = unsafe { request::get_info(fd.as_raw_fd(), &mut info) };
        match known {
            Ok(_) if info.mask & PIDFD_INFO_EXIT != 0 => return Some(Ended::from_raw(info.exit_code)),
            // Running, or a zombie.
            Ok(_) => return None,
            Err(_) if kill(fd, 0) != Err(Errno::ESRCH) => return None,
            Err(_) => {}
        }
    }
    // Kernels before 6.15 keep no exit code of a reaped process.
    Some(Ended::UNKNOWN)
}

/// Start time of a process in clock ticks. Distinguishes a process from a later one with the same pid.
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain spaces and parentheses: fields are counted from the last parenthesis.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    #[test]
    #[allow(clippy::zombie_processes)]
    fn tells_how_a_child_ended() {
        for (script, code, signal) in [
            ("exit 0", 0, None),
            ("exit 7", 7, None),
            ("kill -9 $$", 137, Some(9)),
            ("kill -40 $$", 168, Some(40)),
        ] {
            let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let fd = open(child.id() as i32).unwrap();
            let ended = loop {
                match ended(&fd) {
                    Some(ended) => break ended,
                    None => std::thread::sleep(std::time::Duration::from_millis(2)),
                }
            };
            assert_eq!(ended, Ended { code: Some(code), signal }, "{script}");
        }
    }

    #[test]
    fn tells_how_a_process_ended_that_somebody_else_reaped() {
        let mut child = Command::new("sh")
            .args(["-c", "read x; exit 9"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let fd = open(child.id() as i32).unwrap();
        assert_eq!(ended(&fd), None);
        child.wait().unwrap();
        let ended = ended(&fd).unwrap();
        assert!(matches!(ended.code, Some(9) | None), "{ended:?}");
        assert_eq!(kill(&fd, 0), Err(Errno::ESRCH));
    }

    #[test]
    fn start_times_tell_processes_apart() {
        let own = start_time(std::process::id() as i32).unwrap();
        assert_eq!(start_time(std::process::id() as i32), Some(own));
        assert_ne!(start_time(1), Some(own));
    }
}
