//! OCI runtimes that a killed keeper had at work.
//!
//! They are told to die with it, but that takes its moment, and meanwhile they make cgroups and directories that somebody
//! is about to remove.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::pidfd;

/// Nothing that was killed takes longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills every OCI runtime that works on this state, and waits until it is gone.
///
/// Only for a keeper that has its lock and has started nothing yet: they are nobody's.
pub fn end(runtime_state: &Path) -> io::Result<()> {
    let begun = Instant::now();
    for process in find(runtime_state)? {
        let _ = pidfd::kill(&process, libc::SIGKILL);
        let left = PATIENCE.saturating_sub(begun.elapsed()).as_millis();
        let mut gone = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        poll(&mut gone, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX))?;
    }
    Ok(())
}

fn find(runtime_state: &Path) -> io::Result<Vec<OwnedFd>> {
    let state = runtime_state.as_os_str().as_encoded_bytes();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // Before its arguments are read: from here on it is this process or none.
        let Ok(process) = pidfd::open(pid) else { continue };
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut arguments = arguments.split(|byte| *byte == 0);
        if arguments.by_ref().any(|argument| argument == state)
            && arguments.any(|argument| argument == b"run" || argument == b"exec")
        {
            found.push(process);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    #[test]
    fn only_runtimes_of_this_state_end() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (dir.path().join("runtime"), dir.path().join("other"));
        let start = |state: &Path| {
            let mut command = Command::new("sh");
            command.args(["-c", "read end", "--root"]).arg(state).arg("run").stdin(Stdio::piped());
            command.spawn().unwrap()
        };
        let (mut straggler, mut other) = (start(&ours), start(&theirs));
        end(&ours).unwrap();
        assert_eq!(straggler.wait().unwrap().signal(), Some(9));
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
