//! One engine at a time in a run directory, and nothing of an earlier one at work.
//!
//! A file is locked for as long as anybody has it open: the engine, and every process it starts, for they inherit it, all
//! but the keeper. Whoever gets the lock knows that no system call of a killed engine and no CNI plugin it ran is still
//! under way: what it finds now is what there is.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use coracle_keeper::pidfd;

/// What a killed engine had at work is waited for so long, then killed.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the killed may take to be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// Why an engine cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another one lives.
    #[error("an engine with process id {pid} is at work in {}", run.display())]
    Held {
        /// Of the other.
        pid: i32,
        /// The run directory.
        run: PathBuf,
    },
    /// What another one started does not end.
    #[error("processes of an earlier engine in {} do not end", run.display())]
    Stuck {
        /// The run directory.
        run: PathBuf,
    },
    /// The file cannot be used.
    #[error("{}", path.display())]
    Io {
        /// The lock.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The lock, until the last process that has it ends.
#[derive(Debug)]
pub struct Tenure {
    _file: File,
}

impl Tenure {
    /// Waits for the end of what an earlier engine had at work. Fails when that engine lives.
    pub async fn begin(run: &Path) -> Result<Self, Error> {
        let path = run.join("engine.lock");
        let failed = |source| Error::Io { path: path.clone(), source };
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(failed)?;
        // Whoever can open it can take the lock.
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).map_err(failed)?;
        let begun = Instant::now();
        let mut killed = false;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(source)) => return Err(failed(source)),
                Err(TryLockError::WouldBlock) => {}
            }
            if begun.elapsed() > PATIENCE && !killed {
                if let Some(pid) = owner(&mut file) {
                    return Err(Error::Held { pid, run: run.to_owned() });
                }
                kill_holders(&file).map_err(failed)?;
                killed = true;
            }
            if begun.elapsed() > PATIENCE + KILL_PATIENCE {
                return Err(Error::Stuck { run: run.to_owned() });
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sign(&mut file).map_err(failed)?;
        // From here on children have it too.
        fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|errno| failed(errno.into()))?;
        Ok(Self { _file: file })
    }
}

/// Writes down who has the lock.
fn sign(file: &mut File) -> io::Result<()> {
    let pid = std::process::id() as i32;
    file.set_len(0)?;
    io::Seek::rewind(file)?;
    write!(file, "{pid} {}", pidfd::start_time(pid).unwrap_or(0))
}

/// The engine that has the lock, if it lives.
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
        // Before its descriptors are looked at: from here on it is this process or none.
        let Ok(process) = pidfd::open(pid) else { continue };
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        let same = |meta: fs::Metadata| (meta.dev(), meta.ino()) == (wanted.dev(), wanted.ino());
        if open.flatten().any(|fd| fs::metadata(fd.path()).is_ok_and(same)) {
            tracing::warn!(pid, "started by an earlier engine and still at work, killing it");
            let _ = pidfd::kill(&process, libc::SIGKILL);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn what_an_engine_started_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let tenure = Tenure::begin(dir.path()).await.unwrap();
        let mut child = std::process::Command::new("sleep").arg("0.3").spawn().unwrap();
        let mut file = File::open(dir.path().join("engine.lock")).unwrap();
        assert_eq!(owner(&mut file), Some(std::process::id() as i32));
        drop(tenure);
        let begun = Instant::now();
        let next = Tenure::begin(dir.path()).await.unwrap();
        assert!(begun.elapsed() > Duration::from_millis(100), "the child was not waited for");
        drop(next);
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn holders_are_found_and_killed() {
        use std::os::unix::process::ExitStatusExt;
        let dir = tempfile::tempdir().unwrap();
        let tenure = Tenure::begin(dir.path()).await.unwrap();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        kill_holders(&tenure._file).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
