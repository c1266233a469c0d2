//! OCI runtimes started by a keeper that was killed.
//!
//! They get SIGKILL when their keeper dies, but until they have exited they may create cgroups and directories that the new
//! keeper or the agent is about to remove.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::pidfd;

/// How long a killed process may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Kills every OCI runtime that uses this state directory and waits until it has exited.
///
/// Call it only with the keeper's lock held and before starting any runtime.
pub fn kill_all(runtime_state: &Path) -> io::Result<()> {
    let begun = Instant::now();
    for process in find(runtime_state)? {
        let _ = pidfd::kill(&process, libc::SIGKILL);
        let left = EXIT_TIMEOUT.saturating_sub(begun.elapsed()).as_millis();
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
        // The pidfd is opened before the arguments are read, so that both refer to the same process.
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
        kill_all(&ours).unwrap();
        assert_eq!(straggler.wait().unwrap().signal(), Some(9));
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
