//! All operations on objects, without HTTP. HTTP handlers and the in-process client use it.

use super::admission::{Chain, PluginApi};
use super::conversion::Converter;
use super::hook::{Hook, HookContext};
use super::objects::Objects;
use async_trait::async_trait;
use coracle_client::pipeline::{Change, Target};
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use coracle_store::Store;
use std::collections::HashMap;
use std::sync::Arc;

/// Reads and writes of objects.
pub struct Api {
    /// Where reads come from.
    pub objects: Arc<Objects>,
    /// Where writes go.
    pub store: Arc<dyn Store>,
    /// From the form that is stored to the one that is asked for.
    pub converter: Converter,
    /// The admission chain.
    pub admission: Chain,
    /// Side effects by key prefix of the kind.
    pub hooks: HashMap<String, Arc<dyn Hook>>,
}

impl Api {
    /// The hook of a kind.
    pub fn hook(&self, kind: &Kind) -> Option<Arc<dyn Hook>> {
        self.hooks.get(&kind.prefix()).cloned()
    }

    /// What hooks are called with.
    pub(super) fn hook_context(&self) -> HookContext<'_> {
        HookContext { registry: &self.objects.registry, store: self.store.as_ref() }
    }
}

#[async_trait]
impl PluginApi for Api {
    fn objects(&self) -> &Objects {
        &self.objects
    }

    fn converter(&self) -> &Converter {
        &self.converter
    }

    async fn change(&self, target: &Target<'_>, change: &Change<'_>) -> Result<(), ApiError> {
        Api::change(self, target, change).await.map(|_| ())
    }
}
