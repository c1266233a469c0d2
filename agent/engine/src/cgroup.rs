//! cgroups v2 through the file system.

use coracle_cli::causes;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::limits::{self, Files};

/// Controllers needed to enforce all resources of a pod.
const REQUIRED_CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// Why a cgroup could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a cgroup2 mount.
    #[error("{} is not a cgroup2 mount", .0.display())]
    NotCgroup2(PathBuf),
    /// A path that leaves the hierarchy.
    #[error("cgroup path {0:?} is not allowed")]
    BadPath(String),
    /// A file operation failed.
    #[error("{action} {}", path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Killed processes have not exited.
    #[error("cgroup {} is still populated", .0.display())]
    Populated(PathBuf),
}

type Result<T, E = Error> = std::result::Result<T, E>;

fn io_error<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |source| Error::Io { action, path: path.to_owned(), source }
}

/// The cgroup hierarchy, or the subtree that belongs to this node.
#[derive(Debug, Clone)]
pub struct Hierarchy {
    root: PathBuf,
    controllers: BTreeSet<String>,
}

impl Hierarchy {
    /// Opens the hierarchy mounted at `root`.
    pub fn open(root: &Path) -> Result<Self> {
        let kind = nix::sys::statfs::statfs(root).map_err(|e| io_error("statfs", root)(e.into()))?;
        if kind.filesystem_type() != nix::sys::statfs::CGROUP2_SUPER_MAGIC {
            return Err(Error::NotCgroup2(root.to_owned()));
        }
        let path = root.join("cgroup.controllers");
        let text = fs::read_to_string(&path).map_err(io_error("reading", &path))?;
        Ok(Self { root: root.to_owned(), controllers: text.split_whitespace().map(str::to_owned).collect() })
    }

    /// Available controllers.
    pub fn controllers(&self) -> &BTreeSet<String> {
        &self.controllers
    }

    /// Required controllers that are not available.
    pub fn missing(&self) -> Vec<&'static str> {
        REQUIRED_CONTROLLERS.into_iter().filter(|c| !self.controllers.contains(*c)).collect()
    }

    /// A cgroup by its path from the root.
    pub fn cgroup(&self, path: &str) -> Result<Cgroup> {
        let relative = path.trim_matches('/');
        if relative.is_empty() || relative.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(Error::BadPath(path.to_owned()));
        }
        Ok(Cgroup { path: self.root.join(relative) })
    }

    /// Creates a cgroup and its parents, with all controllers enabled on the path.
    pub fn ensure(&self, path: &str) -> Result<Cgroup> {
        let cgroup = self.cgroup(path)?;
        let mut at = self.root.clone();
        for part in path.trim_matches('/').split('/') {
            self.delegate(&at);
            at.push(part);
            match fs::create_dir(&at) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(io_error("creating", &at)(e));
                }
                _ => {}
            }
        }
        Ok(cgroup)
    }

    /// Enables controllers one at a time and ignores errors: enabling fails in a cgroup that has processes.
    fn delegate(&self, dir: &Path) {
        let path = dir.join("cgroup.subtree_control");
        let enabled = fs::read_to_string(&path).unwrap_or_default();
        let enabled: BTreeSet<&str> = enabled.split_whitespace().collect();
        for controller in self.controllers.iter().filter(|c| !enabled.contains(c.as_str())) {
            if let Err(error) = fs::write(&path, format!("+{controller}")) {
                tracing::debug!(cgroup = %dir.display(), controller, error = %causes::chain(&error), "cgroup controller not enabled");
            }
        }
    }
}

/// One cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A descriptor to clone into.
    pub fn open(&self) -> Result<OwnedFd> {
        Ok(File::open(&self.path).map_err(io_error("opening", &self.path))?.into())
    }

    /// Moves a process into it.
    pub fn admit(&self, pid: i32) -> Result<()> {
        let path = self.path.join("cgroup.procs");
        fs::write(&path, pid.to_string()).map_err(io_error("writing", &path))
    }

    /// Writes limits. Limits of unavailable controllers are skipped; returns those controllers.
    pub fn apply(&self, mut files: Files, controllers: &BTreeSet<String>) -> Result<BTreeSet<String>> {
        let missing = limits::keep_available(&mut files, controllers);
        for (name, value) in files {
            let path = self.path.join(name);
            fs::write(&path, value).map_err(io_error("writing", &path))?;
        }
        Ok(missing)
    }

    /// Content of a file; none when it is not there.
    pub fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.path.join(file)).ok()
    }

    /// A number in a file of one number.
    pub fn number(&self, file: &str) -> Option<u64> {
        self.read(file)?.trim().parse().ok()
    }

    /// A number in a file of `key value` lines.
    pub fn field(&self, file: &str, key: &str) -> Option<u64> {
        field(&self.read(file)?, key)
    }

    /// Processes in it and below.
    pub fn pids(&self) -> Vec<i32> {
        let own = self.read("cgroup.procs").unwrap_or_default();
        let mut pids: Vec<i32> = own.lines().filter_map(|line| line.parse().ok()).collect();
        pids.extend(self.children().iter().flat_map(Cgroup::pids));
        pids
    }

    fn children(&self) -> Vec<Cgroup> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let dirs = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
        dirs.map(|e| Cgroup { path: e.path() }).collect()
    }

    /// True when the kernel killed something in it for memory.
    pub fn oom_killed(&self) -> bool {
        self.field("memory.events", "oom_kill").is_some_and(|n| n > 0)
    }

    /// Kills all processes in it and below; succeeds if it does not exist.
    pub fn kill(&self) -> Result<()> {
        let path = self.path.join("cgroup.kill");
        match fs::write(&path, "1") {
            Err(e) if !is_gone(&e) => Err(io_error("writing", &path)(e)),
            _ => Ok(()),
        }
    }

    /// Kills all processes and removes the cgroup with its children. Waits shortly for the processes to exit.
    pub async fn remove(&self) -> Result<()> {
        self.kill()?;
        for attempt in 0..72 {
            match self.remove_dirs() {
                Ok(()) => return Ok(()),
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                    tokio::time::sleep(Duration::from_millis(1 << (attempt / 6).min(10))).await;
                }
                Err(e) => return Err(io_error("removing", &self.path)(e)),
            }
        }
        Err(Error::Populated(self.path.clone()))
    }

    fn remove_dirs(&self) -> io::Result<()> {
        for child in self.children() {
            child.remove_dirs()?;
        }
        match fs::remove_dir(&self.path) {
            Err(e) if !is_gone(&e) => Err(e),
            _ => Ok(()),
        }
    }
}

/// A number in `key value` lines.
pub fn field(text: &str, key: &str) -> Option<u64> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.find(|(k, _)| *k == key)?.1.trim().parse().ok()
}

/// The cgroup does not exist, or was removed while the file was open.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hierarchy(root: &Path) -> Hierarchy {
        Hierarchy { root: root.to_owned(), controllers: ["cpu", "memory"].map(str::to_owned).into() }
    }

    #[test]
    fn paths_stay_inside() {
        let hierarchy = hierarchy(Path::new("/sys/fs/cgroup"));
        for bad in ["", "/", "..", "/a/../b", "a//b", "/./a"] {
            assert!(hierarchy.cgroup(bad).is_err(), "{bad}");
        }
        let good = hierarchy.cgroup("/kubepods/burstable/podx/").unwrap();
        assert_eq!(good.path(), Path::new("/sys/fs/cgroup/kubepods/burstable/podx"));
    }

    #[test]
    fn names_the_controllers_that_are_missing() {
        assert_eq!(hierarchy(Path::new("/x")).missing(), ["cpuset", "io", "pids"]);
    }

    #[test]
    fn reads_numbers_and_fields() {
        let dir = tempfile::tempdir().unwrap();
        let cgroup = hierarchy(dir.path()).ensure("/a/b").unwrap();
        fs::write(cgroup.path().join("memory.events"), "low 0\noom 1\noom_kill 2\n").unwrap();
        fs::write(cgroup.path().join("memory.current"), "4096\n").unwrap();
        assert_eq!(cgroup.number("memory.current"), Some(4096));
        assert_eq!(cgroup.field("memory.events", "oom"), Some(1));
        assert!(cgroup.oom_killed());
        assert_eq!(cgroup.number("pids.current"), None);
    }
}
