//! Static pods from manifests in a directory.

use coracle_cli::causes;
use coracle_cli::yaml::YamlError;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use futures::StreamExt;
use inotify::{Inotify, WatchMask};
use k8s_openapi::api::core::v1::{Pod, Toleration};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::mirror::Mirrors;
use crate::cluster::Make;
use crate::lifecycle::table::Message;
use crate::lifecycle::worker::{Desired, Workers};
use crate::pod::spec::{self, HASH_ANNOTATION, SOURCE_ANNOTATION};

/// Debounce of file changes: editors write more than once.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Why a manifest is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Neither YAML nor JSON.
    #[error("{path}: {source}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: YamlError,
    },
    /// Another object.
    #[error("{path}: kind is {kind}, not Pod")]
    Kind {
        /// The file.
        path: PathBuf,
        /// Its kind, as JSON.
        kind: String,
    },
    /// A field has the wrong type.
    #[error("{path}: {source}")]
    Field {
        /// The file.
        path: PathBuf,
        /// Which field.
        source: serde_json::Error,
    },
    /// A field that every pod has is missing or empty.
    #[error("{path}: {field}: Required value")]
    Required {
        /// The file.
        path: PathBuf,
        /// Which field.
        field: &'static str,
    },
}

/// The pods of a directory, by uid. They outlive a task that is started again: pods whose manifest went meanwhile are ended.
#[derive(Clone)]
struct Manifests {
    dir: PathBuf,
    workers: Workers,
    mirrors: Mirrors,
    known: Arc<Mutex<BTreeMap<String, Arc<Pod>>>>,
}

/// Starts the pods that are there now, and returns what makes the task that follows the directory from then on, for ever.
/// Bad manifests are logged and skipped.
pub fn follow(workers: Workers, mirrors: Mirrors, dir: PathBuf) -> Make {
    let manifests = Manifests { dir, workers, mirrors, known: Arc::default() };
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

    /// Reads the directory, ends pods whose manifests are gone and starts new ones.
    fn apply(&self) {
        let mut known = self.known.lock();
        let now = read(&self.dir, &self.mirrors.node);
        let full = |pod: &Pod| (spec::namespace(pod).to_owned(), spec::name(pod).to_owned());
        let removed: Vec<(String, Arc<Pod>)> = known
            .iter()
            .filter(|(uid, _)| !now.contains_key(*uid))
            .map(|(uid, pod)| (uid.clone(), pod.clone()))
            .collect();
        for (uid, pod) in &removed {
            self.workers.pods().send(uid, Message::Gone(None));
            if !now.values().any(|other| full(other) == full(pod)) {
                self.mirrors.remove(pod.clone());
            }
        }
        for (uid, pod) in &now {
            if known.contains_key(uid) {
                continue;
            }
            // The pod that a manifest described before must be gone first.
            let before: Vec<String> = removed
                .iter()
                .filter(|(_, old)| full(old) == full(pod))
                .map(|(uid, _)| uid.clone())
                .collect();
            let (workers, mirrors, pod) = (self.workers.clone(), self.mirrors.clone(), pod.clone());
            if before.is_empty() {
                workers.spawn(Desired::Present(pod.clone()));
            }
            tokio::spawn(async move {
                workers.pods().wait_gone(&before).await;
                workers.spawn(Desired::Present(pod.clone()));
                mirrors.ensure(pod).await;
            });
        }
        *known = now;
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
    let file = || path.to_owned();
    let text =
        std::fs::read_to_string(path).map_err(|source| ManifestError::Read { path: file(), source })?;
    let value: serde_json::Value = coracle_cli::yaml::from_str(&text)
        .map_err(|source| ManifestError::Syntax { path: file(), source })?;
    let kind = PartialObjectMetadata::of(&value).kind();
    if kind != "Pod" {
        return Err(ManifestError::Kind { path: file(), kind: kind.to_value().to_string() });
    }
    let mut pod: Pod =
        serde_json::from_value(value).map_err(|source| ManifestError::Field { path: file(), source })?;
    let name = pod
        .metadata
        .name
        .clone()
        .filter(|name| !name.is_empty())
        .ok_or_else(|| ManifestError::Required { path: file(), field: "metadata.name" })?;
    if spec::spec(&pod).containers.is_empty() {
        return Err(ManifestError::Required { path: file(), field: "spec.containers" });
    }
    let digest = Sha256::new()
        .chain_update(node)
        .chain_update(path.to_string_lossy().as_bytes())
        .chain_update(&text)
        .finalize();
    let uid: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    pod.metadata.name = Some(format!("{name}-{}", node.to_lowercase()));
    pod.metadata.namespace.get_or_insert_with(|| "default".into());
    pod.metadata.uid = Some(uid.clone());
    pod.metadata.generation = Some(1);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(HASH_ANNOTATION.into(), uid);
    annotations.insert(SOURCE_ANNOTATION.into(), "file".into());
    annotations.insert("kubernetes.io/config.seen".into(), jiff::Timestamp::now().to_string());
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    spec.restart_policy.get_or_insert_with(|| "Always".into());
    spec.enable_service_links.get_or_insert(true);
    // A static pod stays on a node that everything else is driven from.
    spec.tolerations.get_or_insert_default().push(Toleration {
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        ..Toleration::default()
    });
    pod.status = None;
    Ok(pod)
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
    }
}
