//! The FIFO at which a process of runc waits to exec the program of its container.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Reads the FIFO and deletes it: the OCI runtime takes a container without a FIFO for running.
pub(super) fn read_fifo(fifo: &Path, pidfd: &OwnedFd, limit: Duration) -> io::Result<()> {
    // Non-blocking: the process may have died.
    let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(fifo)?;
    let begun = Instant::now();
    loop {
        let mut fds =
            [PollFd::new(reader.as_fd(), PollFlags::POLLIN), PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(1000u16)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let dead = fds[1].revents().is_some_and(|events| !events.is_empty());
        let closed = fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP));
        match reader.read(&mut [0; 1]) {
            Ok(1) => return fs::remove_file(fifo),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if dead {
            return Err(io::Error::other("container process is already dead"));
        }
        if begun.elapsed() > limit {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // The writer closed the FIFO without writing: it is dying.
        if closed {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_keeper::pidfd;

    fn fifo(dir: &Path) -> std::path::PathBuf {
        let path = dir.join("exec.fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        path
    }

    #[test]
    fn a_waiting_process_is_let_go_and_its_fifo_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        // As runc's: it waits at the opening, writes, and goes on.
        let script = format!("printf 0 > {}; exec sleep 100", path.display());
        let mut child = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let pidfd = pidfd::open(child.id() as i32).unwrap();
        let read = read_fifo(&path, &pidfd, Duration::from_secs(120));
        child.kill().unwrap();
        child.wait().unwrap();
        read.unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn one_that_died_while_it_waited_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pidfd = pidfd::open(child.id() as i32).unwrap();
        let read = read_fifo(&path, &pidfd, Duration::from_secs(120));
        assert!(read.unwrap_err().to_string().contains("already dead"));
        child.wait().unwrap();
    }
}
