//! Lock of the run directory: one engine at a time, and no process of an earlier one is running.
//!
//! The lock is held for as long as any process has the file open: the engine and its children, which inherit it, except
//! for the keeper. An engine that gets the lock knows that no CNI plugin and no system call of a killed engine is still
//! running.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use coracle_keeper::pidfd;

/// How long to wait for processes of a killed engine before killing them.
const HOLDER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long killed processes may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the lock cannot be acquired.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another engine is running.
    #[error("an engine with process id {pid} is at work in {}", run.display())]
    Held {
        /// Its pid.
        pid: i32,
        /// The run directory.
        run: PathBuf,
    },
    /// Processes of an earlier engine do not exit.
    #[error("processes of an earlier engine in {} do not end", run.display())]
    Stuck {
        /// The run directory.
        run: PathBuf,
    },
    /// The lock file cannot be used.
    #[error("{}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The lock. Released when the last process with the open file exits.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

impl RunLock {
    /// Acquires the lock; waits for processes of an earlier engine. Fails if that engine is running.
    pub async fn acquire(run: &Path) -> Result<Self, Error> {
        let path = run.join("engine.lock");
        let failed = |source| Error::Io { path: path.clone(), source };
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(failed)?;
        // Any process that can open the file can take the lock.
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).map_err(failed)?;
        let begun = Instant::now();
        let mut killed = false;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(source)) => return Err(failed(source)),
                Err(TryLockError::WouldBlock) => {}
            }
            if begun.elapsed() > HOLDER_TIMEOUT && !killed {
                if let Some(pid) = owner(&mut file) {
                    return Err(Error::Held { pid, run: run.to_owned() });
                }
                kill_holders(&file).map_err(failed)?;
                killed = true;
            }
            if begun.elapsed() > HOLDER_TIMEOUT + KILL_TIMEOUT {
                return Err(Error::Stuck { run: run.to_owned() });
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sign(&mut file).map_err(failed)?;
        // Children inherit the descriptor from here on.
        fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|errno| failed(errno.into()))?;
        Ok(Self { _file: file })
    }
}

/// Writes this process's pid and start time into the file.
fn sign(file: &mut File) -> io::Result<()> {
    let pid = std::process::id() as i32;
    file.set_len(0)?;
    io::Seek::rewind(file)?;
    write!(file, "{pid} {}", pidfd::start_time(pid).unwrap_or(0))
}

/// Pid of the engine that holds the lock, if it is running.
fn owner(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    io::Seek::rewind(file).ok()?;
    file.read_to_string(&mut text).ok()?;
    let (pid, start) = text.trim().split_once(' ')?;
    let pid: i32 = pid.parse().ok()?;
    (pidfd::start_time(pid) == start.parse().ok()).then_some(pid)
}

/// Kills every other process that has the file open.
fn kill_holders(file: &File) -> io::Result<()> {
    let wanted = file.metadata()?;
    let own = std::process::id() as i32;
    let pids = fs::read_dir("/proc")?.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids.filter(|pid| *pid != own) {
        // The pidfd is opened before the descriptors are listed, so that both refer to the same process.
        let Ok(process) = pidfd::open(pid) else { continue };
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        let same = |meta: fs::Metadata| (meta.dev(), meta.ino()) == (wanted.dev(), wanted.ino());
        if open.flatten().any(|fd| fs::metadata(fd.path()).is_ok_and(same)) {
            tracing::warn!(pid, "process of an earlier engine still holds the lock, killing it");
            let _ = pidfd::kill(&process, libc::SIGKILL);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::{Command, Stdio};

    #[tokio::test]
    async fn what_an_engine_started_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let run_lock = RunLock::acquire(dir.path()).await.unwrap();
        // It runs until its standard input is closed.
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut file = File::open(dir.path().join("engine.lock")).unwrap();
        assert_eq!(owner(&mut file), Some(std::process::id() as i32));
        drop(run_lock);
        let mut next = std::pin::pin!(RunLock::acquire(dir.path()));
        let early = tokio::time::timeout(Duration::from_millis(50), next.as_mut()).await;
        assert!(early.is_err(), "the child was not waited for");
        drop(child.stdin.take());
        next.await.unwrap();
        child.wait().unwrap();
    }

    /// With a file that other tests' children do not inherit: they would be killed, too.
    #[test]
    fn holders_are_found_and_killed() {
        use std::os::unix::process::ExitStatusExt;
        let file = tempfile::tempfile().unwrap();
        let mut child = Command::new("sleep").arg("100").stdin(file.try_clone().unwrap()).spawn().unwrap();
        kill_holders(&file).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
