//! All operations on objects, without HTTP. HTTP handlers and the in-process client use it.

use super::admission::Chain;
use super::conversion::Converter;
use super::hook::{Action, Hook};
use coracle_kinds::object::Object;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_kinds::watch::reflector::Reflector;
use coracle_proto::status::ApiError;
use coracle_store::{Revision, Store, StoreError};
use std::collections::HashMap;
use std::sync::Arc;

/// `(group, resource, subresource)`.
pub type ActionKey = (String, String, String);

/// The API server's state.
pub struct Api {
    /// The kinds.
    pub registry: Arc<Registry>,
    /// Where writes go.
    pub store: Arc<dyn Store>,
    /// Where reads come from.
    pub reflector: Arc<Reflector>,
    /// From the form that is stored to the one that is asked for.
    pub converter: Converter,
    /// The admission chain.
    pub admission: Chain,
    /// Side effects by key prefix of the kind.
    pub hooks: HashMap<String, Arc<dyn Hook>>,
    /// Subresources and virtual resources.
    pub actions: HashMap<ActionKey, Arc<dyn Action>>,
}

impl Api {
    /// The cache that holds a kind.
    pub fn cache(&self, kind: &Kind) -> Result<Arc<Cache>, ApiError> {
        self.reflector.cache(kind).ok_or_else(ApiError::no_such_path)
    }

    /// Waits until reads see every write acknowledged before this call; returns that revision.
    pub async fn catch_up(&self) -> Result<Revision, ApiError> {
        let revision = self.store.revision().await.map_err(store_failed)?;
        self.reflector.wait_for(revision).await;
        Ok(revision)
    }

    /// The newest state of an object.
    pub async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        self.catch_up().await?;
        self.cached(kind, namespace, name)
    }

    /// The state of an object as this server last saw it.
    pub fn cached(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        let found = self.cache(kind)?.get(namespace, name);
        found.ok_or_else(|| match self.reflector.unreadable_at(&kind.key(namespace, name)) {
            // It is there: who takes it for gone would remove what belongs to it.
            Some(broken) => ApiError::internal(broken).about(&kind.group, &kind.plural, name),
            None => ApiError::not_found(&kind.group, &kind.plural, name),
        })
    }

    /// The action behind a subresource, or behind a virtual resource when the subresource is empty. [`Api::run_action`] runs it.
    pub(super) fn action(&self, group: &str, resource: &str, subresource: &str) -> Option<Arc<dyn Action>> {
        let found = self.actions.get(&(group.to_owned(), resource.to_owned(), subresource.to_owned()));
        if found.is_some() || subresource != "scale" {
            return found.cloned();
        }
        // Custom resources come after the actions were listed; all scale alike.
        let kind = self.registry.preferred(group, resource)?;
        let scales = kind.custom.as_ref().is_some_and(|custom| custom.scale.is_some());
        scales
            .then(|| self.actions.iter().find(|((.., sub), _)| sub == "scale"))?
            .map(|(_, action)| action.clone())
    }

    /// The hook of a kind.
    pub fn hook(&self, kind: &Kind) -> Option<Arc<dyn Hook>> {
        self.hooks.get(&kind.prefix()).cloned()
    }
}

/// A store failure that is not the client's doing.
pub fn store_failed(error: StoreError) -> ApiError {
    match error {
        StoreError::Compacted(_) => ApiError::expired(
            "The provided resource version is too old: the requested history is no longer held",
        ),
        // Nothing was written, so a client may send it again.
        StoreError::Unavailable(_) => {
            let mut refusal = ApiError::unavailable(error.to_string());
            refusal.details.retry_after = 1;
            refusal
        }
        other => ApiError::internal(other),
    }
}
