//! Image records of the store.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::manifest::{ConfigBlob, ProcessDefaults};

/// One image, as listed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Digest of its config: `sha256:…`.
    pub id: String,
    /// Digest of its manifest; empty for docker archives, which have none.
    #[serde(default)]
    pub manifest: String,
    /// Names by tag. Kept in the store's name table, filled in when read.
    #[serde(skip_deserializing)]
    pub repo_tags: Vec<String>,
    /// Names by digest. Kept in the store's name table, filled in when read.
    #[serde(skip_deserializing)]
    pub repo_digests: Vec<String>,
    /// Bytes of its unpacked layers, shared ones included.
    pub size: u64,
    /// When it was built, RFC 3339.
    #[serde(default)]
    pub created: Option<String>,
    /// When it was last pulled, imported, or used, in seconds since 1970.
    #[serde(skip)]
    pub last_used: i64,
    /// Never removed by garbage collection.
    #[serde(default)]
    pub pinned: bool,
    /// Imported from an archive: pulling its name uses it without contacting a registry.
    #[serde(default)]
    pub imported: bool,
    /// Its layers, lowest first.
    pub layers: Vec<LayerRef>,
    /// Layers that it had before and that its containers may have mounted still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_layers: Vec<LayerRef>,
    /// How its processes run.
    pub config: ImageConfig,
}

/// A layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRef {
    /// Digest of the uncompressed tar.
    pub diff_id: String,
    /// Digest of this layer and all below it; none in records of earlier versions, which did not tell apart what lies
    /// below.
    #[serde(default)]
    pub chain_id: Option<String>,
    /// Bytes unpacked.
    pub size: u64,
}

/// Process defaults of an image.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// Entry point.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// Its default arguments.
    #[serde(default)]
    pub cmd: Vec<String>,
    /// `K=V`.
    #[serde(default)]
    pub env: Vec<String>,
    /// `user[:group]`, names or numbers; empty is root.
    #[serde(default)]
    pub user: String,
    /// Working directory.
    #[serde(default)]
    pub working_dir: String,
    /// Signal that asks it to stop; empty is SIGTERM.
    #[serde(default)]
    pub stop_signal: String,
    /// Paths that want a volume.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// `80/tcp`.
    #[serde(default)]
    pub exposed_ports: Vec<String>,
}

impl ImageConfig {
    /// Extracts the process defaults of a config blob.
    pub fn of(blob: &ConfigBlob) -> Self {
        let ProcessDefaults {
            entrypoint,
            cmd,
            env,
            user,
            working_dir,
            stop_signal,
            volumes,
            labels,
            exposed_ports,
        } = blob.config.clone().unwrap_or_default();
        ImageConfig {
            entrypoint: entrypoint.unwrap_or_default(),
            cmd: cmd.unwrap_or_default(),
            env: env.unwrap_or_default(),
            user: user.unwrap_or_default(),
            working_dir: working_dir.unwrap_or_default(),
            stop_signal: stop_signal.unwrap_or_default(),
            volumes: volumes.unwrap_or_default().into_keys().collect(),
            labels: labels.unwrap_or_default(),
            exposed_ports: exposed_ports.unwrap_or_default().into_keys().collect(),
        }
    }
}
