//! Access of a controller to one kind: reads from the cache, writes through the pipeline, Events about its objects.

use super::events::{EventDraft, Severity};
use super::informer::Name;
use super::recorder::Recorder;
use coracle_client::Client;
use coracle_client::options::{DeleteOptions, Preconditions};
use coracle_client::patch::Patch;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::sync::Arc;

/// A kind, as one controller reads and writes it.
#[derive(Clone)]
pub struct Resource {
    client: Client,
    recorder: Recorder,
    /// The row of the kind.
    pub kind: Arc<Kind>,
    /// Its objects.
    pub cache: Arc<Cache>,
}

impl Resource {
    /// The handle of a kind.
    pub fn new(client: &Client, recorder: &Recorder, kind: Arc<Kind>, cache: Arc<Cache>) -> Self {
        Self { client: client.clone(), recorder: recorder.clone(), kind, cache }
    }

    /// An object as this process last saw or wrote it.
    pub fn get(&self, name: &Name) -> Option<Arc<Object>> {
        self.cache.get(&name.namespace, &name.name)
    }

    /// An object read after every write acknowledged before, by whomever.
    pub async fn fresh(&self, name: &Name) -> Result<Arc<Object>, ApiError> {
        self.client.get(&self.kind, &name.namespace, &name.name).await
    }

    /// Objects of a namespace.
    pub fn list(&self, namespace: &str) -> Vec<Arc<Object>> {
        self.cache.list(Some(namespace))
    }

    /// All objects.
    pub fn all(&self) -> Vec<Arc<Object>> {
        self.cache.list(None)
    }

    /// Creates an object.
    pub async fn create(&self, namespace: &str, body: impl Into<Value>) -> Result<Arc<Object>, ApiError> {
        self.client.create(&self.kind, namespace, body.into()).await
    }

    /// Replaces an object; fails with a conflict if it changed since it was read.
    pub async fn update(&self, body: impl Into<Value>) -> Result<Arc<Object>, ApiError> {
        self.write("", body).await
    }

    /// Replaces an object's subresource; fails with a conflict if the object changed since it was read.
    pub async fn write(&self, subresource: &str, body: impl Into<Value>) -> Result<Arc<Object>, ApiError> {
        let body = body.into();
        let meta = PartialObjectMetadata::of(&body).metadata();
        let (namespace, name) = (meta.namespace().text().to_owned(), meta.name().text().to_owned());
        self.client.update(&self.kind, &namespace, &name, subresource, body).await
    }

    /// Replaces the status of the object as it was read; does nothing when it is the same.
    pub async fn set_status(&self, object: &Arc<Object>, status: impl Into<Value>) -> Result<(), ApiError> {
        let (mut body, status) = (object.value(), status.into());
        if super::template::same(&body["status"], &status) {
            return Ok(());
        }
        body["status"] = status;
        self.write("status", body).await.map(|_| ())
    }

    /// Merges a change into an object, whatever its state.
    pub async fn merge(&self, name: &Name, change: impl Into<Value>) -> Result<Arc<Object>, ApiError> {
        let change = Patch::Merge(change.into());
        self.client.patch(&self.kind, &name.namespace, &name.name, "", change).await
    }

    /// Merges a change into an object or a subresource of it, whatever its state. Lists merge by their keys.
    pub async fn merge_lists(
        &self,
        name: &Name,
        subresource: &str,
        change: impl Into<Value>,
    ) -> Result<Arc<Object>, ApiError> {
        let change = Patch::Strategic(change.into());
        self.client.patch(&self.kind, &name.namespace, &name.name, subresource, change).await
    }

    /// Applies a configuration of an object, or of a subresource of it, as a field manager. Fields that others manage are taken
    /// over. With a uid in the configuration, no object is created.
    pub async fn apply(
        &self,
        manager: &str,
        name: &Name,
        subresource: &str,
        config: impl Into<Value>,
    ) -> Result<Arc<Object>, ApiError> {
        let (client, patch) =
            (self.client.managing_as(manager), Patch::Apply { config: config.into(), force: true });
        client.patch(&self.kind, &name.namespace, &name.name, subresource, patch).await
    }

    /// Deletes an object if it is still the one with this uid; one that is gone is no error.
    pub async fn delete(&self, object: &Object) -> Result<(), ApiError> {
        self.delete_with(&Name::of(object), same_uid(object)).await
    }

    /// Deletes an object with options; one that is gone is no error.
    pub async fn delete_with(&self, name: &Name, options: DeleteOptions) -> Result<(), ApiError> {
        match self.client.delete(&self.kind, &name.namespace, &name.name, options).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Says that something went as it should.
    pub fn normal(&self, about: &Object, reason: &'static str, message: impl Into<String>) {
        self.record(about, Severity::Normal, reason, message.into());
    }

    /// Says that something did not.
    pub fn warn(&self, about: &Object, reason: &'static str, message: impl Into<String>) {
        self.record(about, Severity::Warning, reason, message.into());
    }

    fn record(&self, about: &Object, severity: Severity, reason: &'static str, message: String) {
        let kind = (&*self.kind.api_version(), &*self.kind.kind);
        self.recorder.send(EventDraft::new(kind, about, severity, reason, message));
    }
}

/// Options of a delete that insists on the object's uid.
pub fn same_uid(object: &Object) -> DeleteOptions {
    let preconditions = Preconditions { uid: Some(object.meta.uid.clone()), resource_version: None };
    DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() }
}
