//! Static pods from manifests in a directory.

use coracle_cli::causes;
use futures::StreamExt;
use inotify::{Inotify, WatchMask};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::mirror::Mirrors;
use super::static_pods::{self, ManifestError, Origin, StaticPods};
use crate::cluster::Make;
use crate::lifecycle::worker::Workers;
use crate::pod::spec;

/// Debounce of file changes: editors write more than once.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The pods of a directory.
#[derive(Clone)]
struct Manifests {
    dir: PathBuf,
    pods: StaticPods,
}

/// Starts the pods that are there now, and returns what makes the task that follows the directory from then on, for ever.
/// Bad manifests are logged and skipped.
pub fn follow(workers: Workers, mirrors: Mirrors, dir: PathBuf) -> Make {
    let manifests = Manifests { dir, pods: StaticPods::new(workers, mirrors) };
    manifests.apply();
    Box::new(move || Box::pin(manifests.clone().changes()))
}

impl Manifests {
    async fn changes(self) {
        loop {
            let changes = watch(&self.dir);
            self.apply();
            match changes {
                Ok(mut changes) => {
                    changes.next().await;
                    while tokio::time::timeout(DEBOUNCE, changes.next())
                        .await
                        .is_ok_and(|event| event.is_some())
                    {}
                }
                Err(error) => {
                    tracing::warn!(dir = %self.dir.display(), error = %causes::chain(&error), "manifest directory watch failed, will retry");
                    tokio::time::sleep(Duration::from_secs(10)).await;
                }
            }
        }
    }

    fn apply(&self) {
        self.pods.apply(read(&self.dir, &self.pods.mirrors.node));
    }
}

fn watch(dir: &Path) -> std::io::Result<impl futures::Stream + Unpin + use<>> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CLOSE_WRITE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE
        | WatchMask::ATTRIB;
    inotify.watches().add(dir, mask)?;
    inotify.into_event_stream([0; 1024])
}

/// Every pod in the directory, by uid.
fn read(dir: &Path, node: &str) -> BTreeMap<String, Arc<Pod>> {
    let mut pods = BTreeMap::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if hidden || !path.is_file() {
            continue;
        }
        match parse(&path, node) {
            Ok(pod) => {
                pods.insert(spec::uid(&pod).to_owned(), Arc::new(pod));
            }
            Err(error) => {
                tracing::error!(error = %causes::chain(&error), "invalid static pod manifest skipped")
            }
        }
    }
    pods
}

/// The pod in a file, as this node runs it.
pub fn parse(path: &Path, node: &str) -> Result<Pod, ManifestError> {
    let place = path.to_string_lossy();
    let text = std::fs::read_to_string(path)
        .map_err(|source| ManifestError::Read { origin: place.to_string(), source })?;
    let from = Origin { place: &place, source: "file", node };
    static_pods::pod(static_pods::content(&text, &place)?, &text, from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn manifests_become_pods_of_this_node() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("web.yaml");
        std::fs::write(
            &path,
            "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n",
        )
        .unwrap();
        let pod = parse(&path, "Node1").unwrap();
        assert_eq!((spec::name(&pod), spec::namespace(&pod)), ("web-node1", "default"));
        assert!(spec::is_static(&pod) && spec::is_critical(&pod));
        assert_eq!(spec::uid(&pod), spec::uid(&parse(&path, "Node1").unwrap()), "stable over restarts");
        std::fs::write(temp.path().join("bad.yaml"), "kind: [").unwrap();
        std::fs::write(temp.path().join("other.json"), "{\"kind\": \"Service\"}").unwrap();
        std::fs::write(temp.path().join(".hidden"), "x").unwrap();
        assert_eq!(read(temp.path(), "Node1").len(), 1);
        let error = parse(&temp.path().join("other.json"), "n").unwrap_err().to_string();
        assert!(error.ends_with("kind is \"Service\", not Pod"), "{error}");
        let reader = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {serviceAccountName: a, containers: [{name: c, image: i}]}\n";
        std::fs::write(&path, reader).unwrap();
        let error = parse(&path, "Node1").unwrap_err().to_string();
        assert!(error.ends_with("web.yaml: static pods may not reference serviceaccounts"), "{error}");
    }
}
