//! Lets the process of a created container go on, which then executes the container's program.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use super::fifo::read_fifo;
use super::socket::connect;
use crate::objects::Gate;

/// Where processes of runc wait.
pub(super) const OF_RUNC: Gate = Gate::Fifo("exec.fifo");
/// Where processes of our own runtime wait.
pub(super) const OF_CORACLE: Gate = Gate::Socket("notify.sock");

/// Lets the process go on and removes the gate; `dir` is the state directory of the container.
pub(super) fn pass(gate: Gate, dir: &Path, pidfd: &OwnedFd, limit: Duration) -> io::Result<()> {
    match gate {
        Gate::Fifo(name) => read_fifo(&dir.join(name), pidfd, limit),
        Gate::Socket(name) => connect(dir, name),
    }
}

/// The gate of a state directory that nobody has passed.
pub(super) fn remaining(dir: &Path) -> Option<Gate> {
    let is_there = |gate: &Gate| match gate {
        Gate::Fifo(name) | Gate::Socket(name) => dir.join(name).exists(),
    };
    [OF_RUNC, OF_CORACLE].into_iter().find(is_there)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_keeper::pidfd;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    #[test]
    fn a_gate_remains_until_it_is_passed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(remaining(&dir.path().join("gone")), None);
        assert_eq!(remaining(dir.path()), None);
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pidfd = pidfd::open(child.id() as i32).unwrap();
        let _listener = UnixListener::bind(dir.path().join("notify.sock")).unwrap();
        assert_eq!(remaining(dir.path()), Some(OF_CORACLE));
        let passed = pass(OF_CORACLE, dir.path(), &pidfd, Duration::ZERO);
        let fifo = dir.path().join("exec.fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let found = remaining(dir.path());
        // The process is not there, but lives: it has passed before.
        let waited = pass(OF_RUNC, dir.path(), &pidfd, Duration::ZERO);
        child.kill().unwrap();
        child.wait().unwrap();
        passed.unwrap();
        assert_eq!(found, Some(OF_RUNC));
        assert_eq!(waited.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
