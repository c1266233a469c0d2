//! Volumes that are mounted inside others. A read-only volume must have the directory that another one is mounted on
//! before a container starts: nobody can make it there afterwards.

use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::pod::spec;

/// Directories, relative to the volume, that other volumes are mounted on in any container.
pub fn mount_points(pod: &Pod, volume: &str) -> BTreeSet<PathBuf> {
    let spec = spec::spec(pod);
    spec::containers(&spec).flat_map(|(_, container)| of_container(&container, volume)).collect()
}

fn of_container(container: &Container, volume: &str) -> BTreeSet<PathBuf> {
    let mounts = || container.volume_mounts.iter().flatten();
    let all: BTreeSet<PathBuf> = mounts().map(|mount| clean(&mount.mount_path)).collect();
    let mut found = BTreeSet::new();
    for own in mounts().filter(|mount| mount.name == volume).map(|mount| clean(&mount.mount_path)) {
        let inside = |path: &PathBuf| *path != own && path.starts_with(&own);
        // In order: what is mounted inside a volume that is inside this one is that one's concern.
        let mut last: Option<&PathBuf> = None;
        for path in all.iter().filter(|path| inside(path)) {
            if last.is_some_and(|last| path.starts_with(last)) {
                continue;
            }
            last = Some(path);
            found.extend(path.strip_prefix(&own).ok().map(Path::to_owned));
        }
    }
    found
}

/// The path from the container's root, without `.` and `..`.
fn clean(path: &str) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => drop(clean.pop()),
            _ => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_outermost_of_those_inside() {
        let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "initContainers": [{"name": "i", "volumeMounts": [mount("v", "/other"), mount("x", "/other/init")]}],
            "containers": [{"name": "c", "volumeMounts": [mount("v", "/a/"), mount("x", "/a/b/c"), mount("y", "/a/b/c/d"),
                mount("z", "/a/../a/e"), mount("w", "/ab")]}]}}))
        .unwrap();
        let paths = |volume: &str| -> Vec<String> {
            mount_points(&pod, volume).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(paths("v"), ["b/c", "e", "init"]);
        assert_eq!(paths("x"), ["d"]);
        assert!(paths("w").is_empty());
    }
}
