//! What a backup of this server is made of.

use coracle_backup::files::{self, FilesError};
use coracle_backup::format::Cluster;
use coracle_backup::make::{self, MakeError, Pieces, Source};
use coracle_backup::{format::Header, name};
use coracle_pki::authority::Authority;
use coracle_store::Store;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// The namespace whose UID is that of the cluster.
const CLUSTER_KEY: &str = "/registry/namespaces/kube-system";

/// The store and the keys of this server's cluster.
#[derive(Clone)]
pub(crate) struct ServerSource {
    pub(crate) store: Arc<dyn Store>,
    /// The directory of keys.
    pub(crate) pki: PathBuf,
    /// The configuration of encryption at rest.
    pub(crate) encryption: Option<PathBuf>,
}

impl ServerSource {
    /// Begins a backup. Keys are read anew, because they can be replaced while the server runs.
    pub(crate) async fn begin(&self) -> Result<(Header, Pieces), MakeError> {
        let (pki, encryption) = (self.pki.clone(), self.encryption.clone());
        let collected = tokio::task::spawn_blocking(move || files::collect(&pki, encryption.as_deref()));
        let files = collected.await??;
        let namespace = self.store.get(CLUSTER_KEY).await?;
        let namespace = namespace.and_then(|found| serde_json::from_slice::<Value>(&found.value).ok());
        let uid = namespace.and_then(|found| Some(found.pointer("/metadata/uid")?.as_str()?.to_owned()));
        let cluster = Cluster { ca_hash: self.ca_hash()?, uid: uid.unwrap_or_default() };
        make::begin(Source { store: self.store.clone(), files, cluster }).await
    }

    /// The part of the names of backups that is this cluster's.
    pub(crate) fn cluster(&self) -> Result<String, FilesError> {
        Ok(name::cluster_of(&self.ca_hash()?))
    }

    fn ca_hash(&self) -> Result<String, FilesError> {
        let path = self.pki.join("ca.crt");
        let text = std::fs::read_to_string(&path).map_err(|error| FilesError::Read(path, error))?;
        Authority::hash_of(&text).ok_or(FilesError::Missing("certificate in ca.crt"))
    }
}
