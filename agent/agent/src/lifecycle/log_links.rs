//! Links to the logs of containers, `<pod>_<namespace>_<container>-<id>.log` in one directory, as kubelets make them for
//! collectors of logs.
//!
//! A collector that may write to the directory can replace them: links are read and removed here, never followed.
#![deny(clippy::disallowed_methods)]

use coracle_cli::causes;
use k8s_openapi::api::core::v1::Pod;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::pod::spec;
use coracle_host_dir::HostDir;

/// Longest name of a file, in bytes.
const MAX_NAME: usize = 255;
const SUFFIX: &str = ".log";

/// The name of a container's link. Names that are cut can be those of several containers.
pub fn name(pod: &Pod, container: &str, id: &str) -> String {
    let mut name = format!("{}_{}_{container}-{id}", spec::name(pod), spec::namespace(pod));
    while name.len() > MAX_NAME - SUFFIX.len() {
        name.pop();
    }
    name + SUFFIX
}

/// Makes a link to a log, unless it is there. There is none without a log: some runtimes write none. Errors are logged: a container runs without.
pub fn create(dir: &Path, name: &str, log: &Path) {
    let create = || -> io::Result<()> {
        if is_missing(log) {
            return Ok(());
        }
        let dir = HostDir::create(dir)?;
        match dir.symlink(log, name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if target(&dir, OsStr::new(name)).as_deref() == Some(log) {
                    return Ok(());
                }
                dir.remove_file(name)?;
                dir.symlink(log, name)
            }
            made => made,
        }
    };
    if let Err(error) = create() {
        tracing::warn!(link = name, dir = %dir.display(), error = %causes::chain(&error), "link to a log not made");
    }
}

/// Removes the link to a container's log, before the log. A link of this name to another log stays: it belongs to another
/// container. What is not removed goes with the pod.
pub fn remove(dir: &Path, name: &str, log: &Path) {
    let removed = HostDir::open(dir).and_then(|dir| match target(&dir, OsStr::new(name)) {
        Some(target) if target == log => dir.remove_file(name),
        _ => Ok(()),
    });
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(link = name, dir = %dir.display(), error = %causes::chain(&error), "link to a log not removed");
        }
        _ => {}
    }
}

/// Removes all links of a pod to logs in its directory `logs`; those of another pod with its name stay.
pub fn remove_all(dir: &Path, logs: &Path) -> io::Result<()> {
    remove_where(dir, |target| target.starts_with(logs))
}

/// Removes dangling links to logs below `logs` of pods that are not known: they were left when the agent was killed. A log of
/// a known pod can be missing while it is rotated.
pub fn sweep(dir: &Path, logs: &Path, is_known: impl Fn(&str) -> bool) {
    let removed = remove_where(dir, |target| {
        let Ok(below) = target.strip_prefix(logs) else { return false };
        let of_pod = below.iter().next().and_then(OsStr::to_str).unwrap_or_default();
        let of_known_pod = of_pod.split('_').nth(2).is_some_and(&is_known);
        !of_known_pod && is_missing(target)
    });
    if let Err(error) = removed {
        tracing::warn!(dir = %dir.display(), error = %causes::chain(&error), "dangling links to logs not removed");
    }
}

/// Removes links by their targets. One that cannot be removed is logged, and the others are removed.
fn remove_where(dir: &Path, is_removed: impl Fn(&Path) -> bool) -> io::Result<()> {
    let dir = match HostDir::open(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    for name in dir.names()? {
        let name = name?;
        if target(&dir, &name).is_some_and(|target| is_removed(&target)) {
            match dir.remove_file(&name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(link = %name.to_string_lossy(), error = %causes::chain(&error), "link to a log not removed");
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Where a link leads; nothing for what is not a link.
fn target(dir: &HostDir, name: &OsStr) -> Option<PathBuf> {
    dir.read_link(name).ok().map(PathBuf::from)
}

fn is_missing(log: &Path) -> bool {
    let found = HostDir::of_file(log).and_then(|(dir, name)| dir.stat_entry(name));
    found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test's own files")]
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn pod(namespace: &str, name: &str) -> Pod {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        Pod { metadata, ..Pod::default() }
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Links and logs of a test.
    struct Dirs {
        _temp: tempfile::TempDir,
        links: PathBuf,
        logs: PathBuf,
    }

    impl Dirs {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let real = fs::canonicalize(temp.path()).unwrap();
            Self { _temp: temp, links: real.join("containers"), logs: real.join("pods") }
        }

        fn log(&self, path: &str) -> PathBuf {
            let log = self.logs.join(path);
            fs::create_dir_all(log.parent().unwrap()).unwrap();
            fs::write(&log, "").unwrap();
            log
        }
    }

    #[test]
    fn names_are_those_of_a_kubelet() {
        assert_eq!(name(&pod("default", "web"), "nginx", "0a1b"), "web_default_nginx-0a1b.log");
        let long = name(&pod(&"n".repeat(63), &"p".repeat(253)), "c", "id");
        assert_eq!((long.len(), &long[248..]), (255, "ppp.log"));
    }

    #[test]
    fn a_link_is_made_for_a_log_and_replaces_what_was_swapped() {
        let dirs = Dirs::new();
        create(&dirs.links, "a.log", &dirs.logs.join("d_a_1/c/0.log"));
        assert!(!dirs.links.exists(), "no log, no link");
        let (log, other) = (dirs.log("d_a_1/c/0.log"), dirs.log("other"));
        create(&dirs.links, "a.log", &log);
        assert_eq!(fs::read_link(dirs.links.join("a.log")).unwrap(), log);
        remove(&dirs.links, "a.log", &log);
        symlink(&other, dirs.links.join("a.log")).unwrap();
        create(&dirs.links, "a.log", &log);
        assert_eq!(fs::read_link(dirs.links.join("a.log")).unwrap(), log);
        assert!(other.exists());
        // A directory that was replaced by a link is not written to.
        fs::rename(&dirs.links, dirs.logs.join("moved")).unwrap();
        symlink(dirs.logs.join("moved"), &dirs.links).unwrap();
        create(&dirs.links, "b.log", &log);
        remove(&dirs.links, "a.log", &log);
        assert_eq!(names(&dirs.logs.join("moved")), ["a.log"]);
    }

    #[test]
    fn a_link_that_is_right_is_not_made_again() {
        let dirs = Dirs::new();
        let log = dirs.log("d_a_1/c/0.log");
        create(&dirs.links, "a.log", &log);
        let link = dirs.links.join("a.log");
        // Another name of the link itself, which one that is made anew would not have.
        fs::hard_link(&link, dirs.logs.join("same")).unwrap();
        create(&dirs.links, "a.log", &log);
        assert_eq!(fs::symlink_metadata(&link).unwrap().nlink(), 2);
    }

    #[test]
    fn links_go_with_their_pod_and_those_of_others_stay() {
        let dirs = Dirs::new();
        let (first, second) = (dirs.log("d_a_1/c/0.log"), dirs.log("d_a_2/c/0.log"));
        create(&dirs.links, "a_d_c-1.log", &first);
        create(&dirs.links, "a_d_c-2.log", &second);
        let long = pod(&"n".repeat(63), &"p".repeat(253));
        create(&dirs.links, &name(&long, "c", "5"), &first);
        fs::write(dirs.links.join("a_d_c-4.log"), "a file").unwrap();
        remove(&dirs.links, "a_d_c-4.log", &first);
        remove(&dirs.links, "a_d_c-2.log", &first);
        remove_all(&dirs.links, &dirs.logs.join("d_a_1")).unwrap();
        assert_eq!(names(&dirs.links), ["a_d_c-2.log", "a_d_c-4.log"]);
        remove(&dirs.links, "a_d_c-2.log", &second);
        assert_eq!(names(&dirs.links), ["a_d_c-4.log"]);
        remove_all(&dirs.logs.join("none"), &dirs.logs).unwrap();
    }

    #[test]
    fn dangling_links_of_unknown_pods_are_swept() {
        let dirs = Dirs::new();
        let log = dirs.log("d_a_1/c/0.log");
        create(&dirs.links, "there.log", &log);
        for (name, target) in [
            ("gone.log", dirs.logs.join("d_b_2/c/0.log")),
            ("rotated.log", dirs.logs.join("d_c_3/c/0.log")),
            ("others.log", PathBuf::from("/nowhere/d_b_2/c/0.log")),
        ] {
            symlink(target, dirs.links.join(name)).unwrap();
        }
        sweep(&dirs.links, &dirs.logs, |uid| uid == "3");
        assert_eq!(names(&dirs.links), ["others.log", "rotated.log", "there.log"]);
    }
}
