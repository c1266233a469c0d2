//! All operations on objects, without HTTP. HTTP handlers and the in-process client use it.

use super::admission::metrics::AdmissionMetrics;
use super::admission::{Chain, PluginApi};
use super::conversion::Converter;
use super::hook::{Hook, HookContext};
use super::metrics::ApiMetrics;
use super::objects::Objects;
use super::pending_initializers::WaitingCreates;
use async_trait::async_trait;
use coracle_client::diagnostics::MetricsSource;
use coracle_client::options::WriteOptions;
use coracle_client::pipeline::{Change, Target};
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::exposition::Page;
use coracle_proto::status::ApiError;
use coracle_store::Store;
use coracle_trace::Recorder;
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
    /// Records writes.
    pub recorder: Recorder,
    /// Whether objects get the annotation `tracing.k8s.io/traceparent` when they are created or their generation changes.
    pub trace_annotations: bool,
    /// Times of the store, and events of watches.
    pub metrics: Arc<ApiMetrics>,
    /// Creates that wait for initializers.
    pub waiting_creates: WaitingCreates,
}

impl Api {
    /// The hook of a kind.
    pub fn hook(&self, kind: &Kind) -> Option<Arc<dyn Hook>> {
        self.hooks.get(&kind.prefix()).cloned()
    }

    /// What hooks are called with.
    pub(super) fn hook_context<'a>(&'a self, options: &'a WriteOptions) -> HookContext<'a> {
        let (registry, store) = (&self.objects.registry, self.store.as_ref());
        HookContext { objects: &self.objects, registry, store, fence: options.fence.as_ref() }
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

    fn admission_metrics(&self) -> &AdmissionMetrics {
        self.admission.metrics()
    }

    async fn change(&self, target: &Target<'_>, change: &Change<'_>) -> Result<(), ApiError> {
        Api::change(self, target, change).await.map(|_| ())
    }
}

impl MetricsSource for Api {
    fn render(&self, page: &mut Page) {
        self.admission.metrics().render(page);
        self.metrics.render(page);
    }
}
