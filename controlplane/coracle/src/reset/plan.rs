//! What a server and a node leave on a machine, and its removal.

use crate::cluster_args::selector_of;
use crate::up::State;
use serde::Serialize;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// What tells state of a node and of a server, in the order in which it is removed: after everything else, so that a reset that
/// failed can be run again.
const MARKS: [&str; 4] = ["engine", "agent", "pki", "admin.kubeconfig"];

/// Why nothing is removed, or not everything.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlanError {
    /// What it leads to may belong to somebody else.
    #[error("{0} is a link, which reset does not follow")]
    Link(PathBuf),
    /// `down` ends it.
    #[error("{0} is a cluster of `coracle up`: `coracle down --purge{1}` removes it")]
    Up(PathBuf, String),
    /// It may be a typo.
    #[error("{0} holds no state of a server or a node")]
    Foreign(PathBuf),
    /// Removing the directory would remove what is mounted there.
    #[error("something is mounted at {0}: unmount it first")]
    Mounted(PathBuf),
    /// A file or directory cannot be read or removed.
    #[error("{0}")]
    File(PathBuf, #[source] io::Error),
}

/// Where state is.
#[derive(Debug, Clone)]
pub(super) struct Places {
    /// State of the server and the node.
    pub(super) data_dir: PathBuf,
    /// Logs of pods, those of other nodes of the machine too.
    pub(super) pod_logs: PathBuf,
    /// Links to them.
    pub(super) log_links: PathBuf,
    /// The configuration of the node's network.
    pub(super) network: PathBuf,
}

/// What is removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Plan {
    /// Whether there is state of a server.
    pub(super) server: bool,
    /// Whether there is state of a node.
    pub(super) node: bool,
    /// Files and directories, the data directory last: it says which logs belong to the node.
    pub(super) paths: Vec<PathBuf>,
}

/// What is there; nothing if the data directory does not exist or is empty.
pub(super) fn read(places: &Places) -> Result<Option<Plan>, PlanError> {
    let dir = &places.data_dir;
    let failed = |error| PlanError::File(dir.clone(), error);
    match dir.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(found) if found.is_symlink() => return Err(PlanError::Link(dir.clone())),
        Ok(_) => {}
    }
    if State::file(dir).exists() {
        return Err(PlanError::Up(dir.clone(), selector_of(dir)));
    }
    let has = |name: &str| dir.join(name).symlink_metadata().is_ok();
    let (server, node) = (has("pki") && has("admin.kubeconfig"), has("agent") || has("engine"));
    if !server && !node {
        let is_empty = std::fs::read_dir(dir).map_err(failed)?.next().is_none();
        return if is_empty { Ok(None) } else { Err(PlanError::Foreign(dir.clone())) };
    }
    let mut paths = Vec::new();
    if node {
        paths.extend(logs(places)?);
        paths.extend(Some(&places.network).filter(|path| path.symlink_metadata().is_ok()).cloned());
    }
    paths.push(dir.clone());
    Ok(Some(Plan { server, node, paths }))
}

/// Logs of pods of the node, whose names end with the uid of the pod, after the links to them.
fn logs(places: &Places) -> Result<Vec<PathBuf>, PlanError> {
    let pods: Vec<String> =
        names(&places.data_dir.join("agent/pods"))?.into_iter().map(|uid| format!("_{uid}")).collect();
    let logs = names(&places.pod_logs)?.into_iter();
    let own = logs.filter(|log| pods.iter().any(|end| log.ends_with(end.as_str())));
    let own: Vec<PathBuf> = own.map(|log| places.pod_logs.join(log)).collect();
    let leads_to_own = |link: &PathBuf| {
        std::fs::read_link(link).is_ok_and(|target| own.iter().any(|log| target.starts_with(log)))
    };
    let links = names(&places.log_links)?.into_iter().map(|link| places.log_links.join(link));
    let mut paths: Vec<PathBuf> = links.filter(leads_to_own).collect();
    paths.extend(own);
    Ok(paths)
}

/// The names in a directory, sorted; none if it does not exist.
fn names(dir: &Path) -> Result<Vec<String>, PlanError> {
    let failed = |error| PlanError::File(dir.to_owned(), error);
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(failed)?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

impl Plan {
    /// Removes everything, and goes on after an error, the first of which is returned. Links are removed, not followed.
    pub(super) fn remove(&self) -> Result<(), PlanError> {
        let Some((data_dir, others)) = self.paths.split_last() else { return Ok(()) };
        let mut outcome = Ok(());
        for path in others {
            outcome = outcome.and(remove_path(path));
        }
        outcome.and(remove_state(data_dir))
    }
}

fn remove_path(path: &Path) -> Result<(), PlanError> {
    let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let removed = if is_directory { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(PlanError::File(path.to_owned(), error)),
        _ => Ok(()),
    }
}

/// Removes the data directory up to the first error; one that is a file system of its own is emptied.
fn remove_state(dir: &Path) -> Result<(), PlanError> {
    for name in marks_last(names(dir)?) {
        remove_path(&dir.join(name))?;
    }
    match remove_path(dir) {
        Err(PlanError::File(_, error))
            if error.kind() == ErrorKind::ResourceBusy && names(dir)?.is_empty() =>
        {
            Ok(())
        }
        removed => removed,
    }
}

fn marks_last(mut names: Vec<String>) -> Vec<String> {
    names.sort_by_key(|name| MARKS.iter().position(|mark| *mark == name.as_str()));
    names
}

/// Refuses a directory with a mount below it; `mounts` is the content of `/proc/self/mountinfo`.
pub(super) fn check_mounts(dir: &Path, mounts: &str) -> Result<(), PlanError> {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let mut points = points.map(|point| PathBuf::from(point.replace("\\040", " ")));
    match points.find(|point| point.starts_with(&dir) && *point != dir) {
        Some(point) => Err(PlanError::Mounted(point)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::{create_dir, create_dir_all, write};

    fn places(root: &Path) -> Places {
        let data_dir = root.join("data");
        let (pod_logs, log_links) = (root.join("logs"), root.join("links"));
        Places { data_dir, pod_logs, log_links, network: root.join("10-coracle.conflist") }
    }

    #[test]
    fn only_state_of_a_server_or_a_node_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        assert_eq!(read(&places).unwrap(), None);
        create_dir(&places.data_dir).unwrap();
        assert_eq!(read(&places).unwrap(), None, "an empty directory");
        write(places.data_dir.join("letter"), "").unwrap();
        assert!(matches!(read(&places), Err(PlanError::Foreign(_))));
        create_dir(places.data_dir.join("pki")).unwrap();
        write(places.data_dir.join("admin.kubeconfig"), "").unwrap();
        let plan = read(&places).unwrap().unwrap();
        assert_eq!((plan.server, plan.node, plan.paths), (true, false, vec![places.data_dir.clone()]));
        write(State::file(&places.data_dir), "{}").unwrap();
        assert!(matches!(read(&places), Err(PlanError::Up(..))));
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&places.data_dir, &link).unwrap();
        assert!(matches!(read(&Places { data_dir: link, ..places }), Err(PlanError::Link(_))));
    }

    #[test]
    fn logs_of_others_and_what_links_lead_to_stay() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        create_dir_all(places.data_dir.join("agent/pods/uid-1")).unwrap();
        for log in ["default_web_uid-1", "default_web_uid-2"] {
            create_dir_all(places.pod_logs.join(log)).unwrap();
        }
        create_dir(&places.log_links).unwrap();
        for (link, log) in [("own", "default_web_uid-1/c/0.log"), ("other", "default_web_uid-2/c/0.log")] {
            std::os::unix::fs::symlink(places.pod_logs.join(log), places.log_links.join(link)).unwrap();
        }
        let other = root.path().join("other");
        create_dir(&other).unwrap();
        write(other.join("kept"), "").unwrap();
        std::os::unix::fs::symlink(&other, places.data_dir.join("agent/link")).unwrap();
        write(&places.network, "").unwrap();
        let plan = read(&places).unwrap().unwrap();
        let own = places.pod_logs.join("default_web_uid-1");
        let link = places.log_links.join("own");
        assert_eq!(plan.paths, [link, own, places.network.clone(), places.data_dir.clone()]);
        plan.remove().unwrap();
        assert!(plan.paths.iter().all(|path| path.symlink_metadata().is_err()));
        assert_eq!(names(&places.log_links).unwrap(), ["other"]);
        assert!(other.join("kept").exists() && places.pod_logs.join("default_web_uid-2").exists());
    }

    #[test]
    fn what_tells_the_state_is_removed_last() {
        let names =
            ["admin.kubeconfig", "agent", "cni", "engine", "pki", "state"].map(str::to_owned).to_vec();
        assert_eq!(marks_last(names), ["cni", "state", "engine", "agent", "pki", "admin.kubeconfig"]);
    }

    #[test]
    fn a_directory_with_a_mount_below_it_is_not_removed() {
        let line = |point: &str| format!("36 35 98:0 / {point} rw,noatime - ext4 /dev/root rw\n");
        let dir = Path::new("/nowhere/coracle");
        for point in ["/nowhere/coracle/agent/pods/u/volumes", "/nowhere/coracle/a\\040b"] {
            assert!(matches!(check_mounts(dir, &line(point)), Err(PlanError::Mounted(_))), "{point}");
        }
        for point in ["/", "/nowhere", "/nowhere/coracle", "/nowhere/coracle-clusters/a"] {
            check_mounts(dir, &line(point)).unwrap();
        }
    }
}
