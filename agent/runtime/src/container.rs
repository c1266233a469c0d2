//! Containers on disk: where they are, and which process they have.
//!
//! libcontainer keeps the state of a container in `<root>/<id>`. It knows the process by its pid alone, which the kernel
//! may have given to another one, and the original bundle not at all: see [`Record`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use coracle_keeper::pidfd;
use libcgroups::common::{AnyCgroupManager, CgroupConfig, CgroupManager, create_cgroup_manager};
use libcontainer::container::{Container, ContainerStatus};
use libcontainer::notify_socket::NOTIFY_FILE;
use serde::{Deserialize, Serialize};

use super::error::Error;

const RECORD: &str = "coracle.json";
/// Where cgroup2 is mounted.
const CGROUPS: &str = "/sys/fs/cgroup";
const FREEZE: &str = "cgroup.freeze";

/// What libcontainer does not keep.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// Start time of the first process; detects a reused pid.
    pub start_time: u64,
}

/// A container and its record.
pub struct Known {
    /// As libcontainer has it, with the status of this moment.
    pub container: Container,
    /// Start time of its process.
    pub start_time: u64,
}

impl Record {
    /// Writes the record of a container whose process runs.
    pub fn save(container: &Container) -> Result<(), Error> {
        let pid = container.pid().map_or(0, |pid| pid.as_raw());
        let record = Self { start_time: pidfd::start_time(pid).unwrap_or(0) };
        let path = container.root.join(RECORD);
        let text = serde_json::to_vec(&record).map_err(Error::json(&path))?;
        fs::write(&path, text).map_err(Error::file(path))
    }
}

impl Known {
    /// Loads a container.
    pub fn load(root: &Path, id: &str) -> Result<Self, Error> {
        let dir = directory(root, id)?;
        match fs::symlink_metadata(dir.join("state.json")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoContainer(id.to_owned()));
            }
            found => found.map_err(Error::file(&dir))?,
        };
        let path = dir.join(RECORD);
        let record = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(Error::json(path))?,
            // Its creation was interrupted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Record { start_time: 0 },
            Err(error) => return Err(Error::File { path, source: error }),
        };
        let mut container = Container::load(dir)?;
        let pid = container.pid().map_or(0, |pid| pid.as_raw());
        if container.status() != ContainerStatus::Stopped && pidfd::start_time(pid) != Some(record.start_time)
        {
            container.set_status(ContainerStatus::Stopped);
        }
        // The engine starts a container by its socket, and deletes the socket then.
        if container.status() == ContainerStatus::Created && !container.root.join(NOTIFY_FILE).exists() {
            container.set_status(ContainerStatus::Running);
        }
        let mut known = Self { container, start_time: record.start_time };
        known.read_freezer();
        Ok(known)
    }

    /// Takes from the cgroup whether the container is paused: others than this program can freeze it.
    fn read_freezer(&mut self) {
        let status = self.container.status();
        if !matches!(status, ContainerStatus::Running | ContainerStatus::Paused) {
            return;
        }
        let Ok(text) =
            self.cgroup().and_then(|dir| fs::read_to_string(dir.join(FREEZE)).map_err(Error::file(dir)))
        else {
            return;
        };
        let frozen = text.trim() == "1";
        self.container.set_status(if frozen { ContainerStatus::Paused } else { ContainerStatus::Running });
    }

    /// The first process; 0 once the container is stopped.
    pub fn pid(&self) -> i32 {
        match self.container.status() {
            ContainerStatus::Stopped => 0,
            _ => self.container.pid().map_or(0, |pid| pid.as_raw()),
        }
    }

    /// Its cgroup, as libcontainer has it.
    pub fn manager(&self) -> Result<AnyCgroupManager, Error> {
        let config = CgroupConfig {
            cgroup_path: self.container.spec()?.cgroup_path,
            systemd_cgroup: false,
            container_name: self.container.id().to_owned(),
        };
        create_cgroup_manager(config).map_err(|error| Error::Cgroup(error.into()))
    }

    /// All of its processes.
    pub fn pids(&self) -> Result<Vec<i32>, Error> {
        let pids = self.manager()?.get_all_pids().map_err(|error| Error::Cgroup(error.into()))?;
        Ok(pids.iter().map(|pid| pid.as_raw()).collect())
    }

    /// Directory of its cgroup.
    pub fn cgroup(&self) -> Result<PathBuf, Error> {
        let path = self.container.spec()?.cgroup_path;
        Ok(Path::new(CGROUPS).join(path.strip_prefix("/").unwrap_or(&path)))
    }

    /// Directory of the cgroup in which its first process is now: the container may have moved it further down.
    pub fn cgroup_of_process(&self) -> Result<PathBuf, Error> {
        let path = format!("/proc/{}/cgroup", self.pid());
        let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
        let unified = text.lines().find_map(|line| line.strip_prefix("0::/"));
        // One that begins with `..` is outside of this process's cgroup namespace.
        let unified = unified.filter(|path| !path.starts_with(".."));
        let unified = unified.ok_or_else(|| Error::Invalid { what: "cgroup", value: text.clone() })?;
        Ok(Path::new(CGROUPS).join(unified))
    }
}

/// The directory of a container; an id cannot lead out of `root`.
pub fn directory(root: &Path, id: &str) -> Result<PathBuf, Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_+-.".contains(c);
    if id.is_empty() || id.starts_with('.') || id.len() > 1024 || !id.chars().all(plain) {
        return Err(Error::Invalid { what: "container id", value: id.to_owned() });
    }
    Ok(root.join(id))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ids_stay_below_the_root() {
        let root = Path::new("/run/x");
        assert_eq!(directory(root, "a-b_c.1").unwrap(), Path::new("/run/x/a-b_c.1"));
        for id in ["", ".", "..", "a/b", "a\0", "../x", "ä"] {
            assert!(directory(root, id).is_err(), "{id:?}");
        }
    }

    #[test]
    fn a_reused_pid_is_not_the_container() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("c");
        fs::create_dir(&root).unwrap();
        let pid = std::process::id() as i32;
        let status = |record: &Container| {
            record.save().unwrap();
            Known::load(dir.path(), "c").unwrap().container.status()
        };
        let container = Container::new("c", ContainerStatus::Running, Some(pid), dir.path(), &root).unwrap();
        container.save().unwrap();
        Record::save(&container).unwrap();
        assert_eq!(status(&container), ContainerStatus::Running);
        fs::write(root.join(RECORD), r#"{"start_time": 1}"#).unwrap();
        assert_eq!(status(&container), ContainerStatus::Stopped);
        assert!(matches!(Known::load(dir.path(), "d"), Err(Error::NoContainer(_))));
    }

    #[test]
    fn without_its_socket_a_created_container_runs() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("c");
        fs::create_dir(&root).unwrap();
        let pid = std::process::id() as i32;
        let container = Container::new("c", ContainerStatus::Created, Some(pid), dir.path(), &root).unwrap();
        container.save().unwrap();
        Record::save(&container).unwrap();
        fs::write(root.join(NOTIFY_FILE), "").unwrap();
        assert_eq!(Known::load(dir.path(), "c").unwrap().container.status(), ContainerStatus::Created);
        fs::remove_file(root.join(NOTIFY_FILE)).unwrap();
        assert_eq!(Known::load(dir.path(), "c").unwrap().container.status(), ContainerStatus::Running);
    }
}
