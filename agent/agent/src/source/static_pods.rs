//! Static pods: those of manifests, whatever place these come from.

use coracle_cli::yaml::YamlError;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use k8s_openapi::api::core::v1::{Pod, Toleration};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::mirror::Mirrors;
use super::references::api_reference;
use crate::lifecycle::table::Message;
use crate::lifecycle::worker::{Desired, Workers};
use crate::pod::spec::{self, HASH_ANNOTATION, SOURCE_ANNOTATION};

/// Why a manifest is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It cannot be read.
    #[error("{origin}: {source}")]
    Read {
        /// The file or URL.
        origin: String,
        /// The cause.
        source: std::io::Error,
    },
    /// Neither YAML nor JSON.
    #[error("{origin}: {source}")]
    Syntax {
        /// The file or URL.
        origin: String,
        /// What is wrong.
        source: YamlError,
    },
    /// Another object.
    #[error("{origin}: kind is {kind}, not Pod")]
    Kind {
        /// The file or URL.
        origin: String,
        /// Its kind, as JSON.
        kind: String,
    },
    /// A field has the wrong type.
    #[error("{origin}: {source}")]
    Field {
        /// The file or URL.
        origin: String,
        /// Which field.
        source: serde_json::Error,
    },
    /// A list without a list of pods.
    #[error("{origin}: items: must be a list")]
    Items {
        /// The URL.
        origin: String,
    },
    /// A field that every pod has is missing or empty.
    #[error("{origin}: {field}: Required value")]
    Required {
        /// The file or URL.
        origin: String,
        /// Which field.
        field: &'static str,
    },
    /// The pod refers to an object of the API.
    #[error("{origin}: static pods may not reference {resource}")]
    Reference {
        /// The file or URL.
        origin: String,
        /// What it refers to.
        resource: &'static str,
    },
}

/// Where a manifest comes from.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'o> {
    /// The file or URL.
    pub place: &'o str,
    /// `file` or `http`.
    pub source: &'static str,
    /// The node that runs it.
    pub node: &'o str,
}

/// The static pods of one place, by uid. They outlive a task that is started again: pods whose manifest went meanwhile are ended.
#[derive(Clone)]
pub struct StaticPods {
    workers: Workers,
    /// Their mirrors in the API.
    pub mirrors: Mirrors,
    known: Arc<Mutex<BTreeMap<String, Arc<Pod>>>>,
}

impl StaticPods {
    /// None so far.
    pub fn new(workers: Workers, mirrors: Mirrors) -> Self {
        Self { workers, mirrors, known: Arc::default() }
    }

    /// Ends pods whose manifests are gone and starts new ones.
    pub fn apply(&self, now: BTreeMap<String, Arc<Pod>>) {
        let mut known = self.known.lock();
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

/// The content of a manifest, YAML or JSON.
pub fn content(text: &str, place: &str) -> Result<Value, ManifestError> {
    coracle_cli::yaml::from_str(text)
        .map_err(|source| ManifestError::Syntax { origin: place.to_owned(), source })
}

/// The pod in a manifest, as its node runs it. Its uid follows from the node, the place and the text.
pub fn pod(value: Value, text: &str, from: Origin<'_>) -> Result<Pod, ManifestError> {
    let file = || from.place.to_owned();
    let kind = PartialObjectMetadata::of(&value).kind();
    if kind != "Pod" {
        return Err(ManifestError::Kind { origin: file(), kind: kind.to_value().to_string() });
    }
    let mut pod: Pod =
        serde_json::from_value(value).map_err(|source| ManifestError::Field { origin: file(), source })?;
    let name = pod
        .metadata
        .name
        .clone()
        .filter(|name| !name.is_empty())
        .ok_or_else(|| ManifestError::Required { origin: file(), field: "metadata.name" })?;
    if spec::spec(&pod).containers.is_empty() {
        return Err(ManifestError::Required { origin: file(), field: "spec.containers" });
    }
    if let Some(resource) = api_reference(&spec::spec(&pod)) {
        return Err(ManifestError::Reference { origin: file(), resource });
    }
    let digest = Sha256::new()
        .chain_update(from.node)
        .chain_update(from.place.as_bytes())
        .chain_update(text)
        .finalize();
    let uid: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    pod.metadata.name = Some(format!("{name}-{}", from.node.to_lowercase()));
    pod.metadata.namespace.get_or_insert_with(|| "default".into());
    pod.metadata.uid = Some(uid.clone());
    pod.metadata.generation = Some(1);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(HASH_ANNOTATION.into(), uid);
    annotations.insert(SOURCE_ANNOTATION.into(), from.source.into());
    annotations.insert("kubernetes.io/config.seen".into(), jiff::Timestamp::now().to_string());
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(from.node.to_owned());
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
