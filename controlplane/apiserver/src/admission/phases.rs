//! The two phases of admission. Types enforce the order: the validating phase needs the result of the mutating phase,
//! and storing an object needs the result of both.

use super::metrics::AdmissionMetrics;
use super::{Attributes, Operation, Phase, Plugin};
use coracle_proto::status::ApiError;
use coracle_trace::{Stage, current, is_detailed, stage_named};
use serde_json::Value;
use std::time::{Duration, Instant};

/// A plugin or policy that takes longer has a span, and one that refuses.
pub(super) const NOTABLE: Duration = Duration::from_micros(100);
/// Plugins whose webhooks and policies have spans.
const SPANNED: [&str; 4] = [
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// The plugins that are on, in order.
pub struct Chain {
    pub(super) plugins: Vec<Box<dyn Plugin>>,
    metrics: AdmissionMetrics,
}

/// A request that the mutating plugins let through; the validating ones are still to be asked.
#[must_use = "the validating plugins have not been asked"]
pub struct Mutated<'c>(&'c Chain);

/// Proof that both phases let a request through. Only this module makes one.
#[derive(Debug, Clone, Copy)]
pub struct Admitted(());

impl Chain {
    /// These plugins, in this order.
    pub(super) fn new(plugins: Vec<Box<dyn Plugin>>) -> Self {
        let metrics = AdmissionMetrics::new(plugins.iter().map(|plugin| plugin.name()).collect());
        Self { plugins, metrics }
    }

    /// Whether a plugin is on.
    pub fn has(&self, name: &str) -> bool {
        self.plugins.iter().any(|plugin| plugin.name() == name)
    }

    /// Times of plugins and webhooks.
    pub fn metrics(&self) -> &AdmissionMetrics {
        &self.metrics
    }

    /// Asks the mutating plugins, which may change the object, for writes that default and check it before the validating
    /// plugins see it. They run again if webhooks or policies have changed it. Everything else calls [`Chain::admit`].
    pub async fn mutate<'c>(
        &'c self,
        at: &mut Attributes<'_>,
        object: &mut Value,
    ) -> Result<Mutated<'c>, ApiError> {
        self.mutate_once(at, object).await?;
        if at.reinvocation.begin_second() {
            self.mutate_once(at, object).await?;
        }
        Ok(Mutated(self))
    }

    async fn mutate_once(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        let mut step = Step::new(self, Phase::Mutate, at.operation);
        for (index, plugin) in self.plugins.iter().enumerate() {
            if plugin.handles(at, Phase::Mutate) {
                step.begin();
                let result = plugin.mutate(at, object).await;
                step.ended(index, result.is_err());
                result?;
            }
        }
        Ok(())
    }

    /// Asks the mutating plugins, then the validating ones. `object` is null for deletes.
    pub async fn admit(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<Admitted, ApiError> {
        self.mutate(at, object).await?.validate(at, object).await
    }
}

impl Mutated<'_> {
    /// Asks the validating plugins about the object as it will be stored.
    pub async fn validate(self, at: &mut Attributes<'_>, object: &Value) -> Result<Admitted, ApiError> {
        let mut step = Step::new(self.0, Phase::Validate, at.operation);
        for (index, plugin) in self.0.plugins.iter().enumerate() {
            if plugin.handles(at, Phase::Validate) {
                step.begin();
                let result = plugin.validate(at, object).await;
                step.ended(index, result.is_err());
                result?;
            }
        }
        Ok(Admitted(()))
    }
}

/// The times of one phase of one request; counts them when it is dropped.
struct Step<'c> {
    chain: &'c Chain,
    phase: Phase,
    operation: Operation,
    /// When the first plugin was begun, and when the last one ended: one clock read per plugin.
    times: Option<(Instant, Instant)>,
    rejected: bool,
}

impl<'c> Step<'c> {
    fn new(chain: &'c Chain, phase: Phase, operation: Operation) -> Self {
        Self { chain, phase, operation, times: None, rejected: false }
    }

    /// A plugin is about to be called.
    fn begin(&mut self) {
        self.times.get_or_insert_with(|| {
            let now = Instant::now();
            (now, now)
        });
    }

    /// A plugin has answered.
    fn ended(&mut self, index: usize, rejected: bool) {
        let Some((_, last)) = &mut self.times else { return };
        let begun = std::mem::replace(last, Instant::now());
        let took = last.saturating_duration_since(begun);
        self.rejected |= rejected;
        self.chain.metrics.controller(index, (self.phase, self.operation, rejected), took);
        let name = self.chain.plugins[index].name();
        if (rejected || took >= NOTABLE || is_detailed()) && !SPANNED.contains(&name) {
            let stage = match self.phase {
                Phase::Mutate => Stage::MutatingPlugin,
                Phase::Validate => Stage::ValidatingPlugin,
            };
            record(stage, name, begun, rejected);
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        let took = self.times.map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first));
        self.chain.metrics.step((self.phase, self.operation, self.rejected), took);
    }
}

/// Records a stage of the current scope that ends now.
pub(super) fn record(stage: Stage, name: &str, begun: Instant, failed: bool) {
    let Some(clock) = current().recorder.clock() else { return };
    let mut span = stage_named(stage, name);
    span.began(clock.of(begun));
    if failed {
        span.failed();
    }
}
