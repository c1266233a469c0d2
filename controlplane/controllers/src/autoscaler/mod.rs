//! HorizontalPodAutoscalers: as many replicas as the load asks for.

// What pods use.
pub mod metrics;
// How many replicas a metric asks for.
pub mod replicas;
// Metrics of pods and objects, and external ones.
mod custom;
// Metrics about resources of pods.
mod source;
// How fast replicas may change.
pub mod behavior;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use behavior::{Bounds, History};
use coracle_client::Client;
use coracle_client::aggregated::AggregatedObjects;
use coracle_fields::autoscaling_v1::Scale;
use coracle_fields::autoscaling_v2::{
    CrossVersionObjectReference, HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus,
    MetricSpec, MetricStatus,
};
use coracle_fields::core::v1::Pod;
use coracle_fields::{Made, Schema as _, View, make};
use coracle_informer::conditions::{self, Condition};
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_informer::time;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::{Kind, Subresource};
use coracle_kinds::registry::scale;
use coracle_kinds::registry::usage::quantity;
use coracle_proto::selector::LabelSelector;
use coracle_proto::status::ApiError;
use custom::{Answer, MetricFailure, Scaled};
use jiff::Timestamp;
use metrics::{Metrics, MetricsError, PodUsage};
use parking_lot::Mutex;
use replicas::{ReplicaCalculation, Tolerance};
use serde_json::Value;
use source::source;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The controller's name and identity.
pub const NAME: &str = "horizontal-pod-autoscaler";
/// How often an autoscaler is looked at, in seconds.
const PERIOD: i64 = 15;
const TOLERANCE: f64 = 0.1;

struct Autoscalers {
    client: Client,
    autoscalers: Resource,
    pods: Resource,
    metrics: Arc<dyn Metrics>,
    histories: Mutex<HashMap<Name, History>>,
    /// Which pods each autoscaler is about.
    selectors: Mutex<BTreeMap<Name, LabelSelector>>,
}

/// Starts the controller; without `metrics` it asks the server's own `metrics.k8s.io`, and `extensions` for other metrics.
pub fn start(
    setup: &mut Setup<'_>,
    metrics: Option<Arc<dyn Metrics>>,
    extensions: Option<Arc<dyn AggregatedObjects>>,
) {
    let client = setup.client(NAME);
    let autoscalers = setup.resource(NAME, "autoscaling", "horizontalpodautoscalers");
    let pods = setup.resource(NAME, "", "pods");
    let queue = setup.enqueue_on_change(&autoscalers).queue.clone();
    let metrics = metrics.unwrap_or_else(|| Arc::new(metrics::Served { client: client.clone(), extensions }));
    let (histories, selectors) = Default::default();
    let controller = Autoscalers { client, autoscalers, pods, metrics, histories, selectors };
    setup.run(controller, &queue, 2);
}

#[async_trait]
impl Controller for Autoscalers {
    fn name(&self) -> &'static str {
        NAME
    }

    fn acts_on_time(&self) -> bool {
        true
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(object) = self.autoscalers.get(name) else {
            self.histories.lock().remove(name);
            self.selectors.lock().remove(name);
            return Ok(Requeue::No);
        };
        let mut turn = Turn::new(object.copy(), now);
        let outcome = self.scale(name, &object, &mut turn).await;
        for (reason, why) in std::mem::take(&mut turn.failed).into_iter().chain(outcome.err()) {
            self.autoscalers.warn(&object, reason, why);
        }
        self.autoscalers.set_status(&object, turn.status()).await?;
        Ok(Requeue::At(time::after(now, PERIOD)))
    }
}

/// Why the target of an autoscaler is not known.
#[derive(Debug, thiserror::Error)]
enum TargetError {
    #[error("no matches for kind \"{kind}\" in version \"{version}\"")]
    NoKind { kind: String, version: String },
    #[error(transparent)]
    Api(ApiError),
}

/// The event of an autoscaler that did nothing: its reason and its message.
type Refusal = (&'static str, String);

/// What the pods of a namespace used, by name.
type Usage<'a> = Result<&'a BTreeMap<String, PodUsage>, &'a MetricsError>;

/// What one look at an autoscaler finds.
struct Turn {
    hpa: Made<HorizontalPodAutoscaler>,
    conditions: Vec<Condition>,
    /// What metrics say; `None` until the target is known.
    metrics: Option<Vec<Made<MetricStatus>>>,
    /// Metrics that say nothing, and why.
    failed: Vec<Refusal>,
    current: i64,
    desired: i64,
    scaled: bool,
    now: Timestamp,
}

impl Turn {
    fn new(hpa: Made<HorizontalPodAutoscaler>, now: Timestamp) -> Self {
        let status = hpa.view().status();
        Self {
            conditions: status.conditions().read().unwrap_or_default(),
            metrics: None,
            failed: Vec::new(),
            current: status.current_replicas().or(0),
            desired: status.desired_replicas().or(0),
            scaled: false,
            hpa,
            now,
        }
    }

    fn condition(&mut self, kind: &str, holds: bool, reason: &str, message: impl Into<String>) {
        conditions::put(&mut self.conditions, Condition::new(kind, holds, reason, message, self.now));
    }

    /// The most replicas that a metric asks for, and the name of that metric; none without metrics. Refuses to scale down
    /// while a metric is unknown.
    async fn largest(
        &mut self,
        metrics: &dyn Metrics,
        scaled: Scaled<'_>,
    ) -> Result<Option<(i64, String)>, Refusal> {
        let specs = self.hpa.view().spec().metrics().to_values();
        let usage = if specs.iter().all(|spec| custom::is_custom(MetricSpec::of(spec))) {
            Ok(BTreeMap::new())
        } else {
            metrics.pods(scaled.namespace).await
        };
        let mut best: Option<(i64, String)> = None;
        let mut failed: Vec<MetricFailure> = Vec::new();
        for spec in &specs {
            let answer = if custom::is_custom(MetricSpec::of(spec)) {
                custom::ask(metrics, spec, scaled).await
            } else {
                self.recommendation(MetricSpec::of(spec), scaled, usage.as_ref())
            };
            match answer {
                Ok(answer) => {
                    self.metrics.get_or_insert_default().push(answer.status);
                    if best.as_ref().is_none_or(|(replicas, _)| answer.replicas > *replicas) {
                        best = Some((answer.replicas, answer.name));
                    }
                }
                Err(failure) => failed.push(failure),
            }
        }
        self.failed.extend(failed.iter().map(|failure| (failure.reason, failure.why.clone())));
        let scales_down = best.as_ref().is_some_and(|(replicas, _)| *replicas < scaled.current);
        if let Some(MetricFailure { reason, why, head }) = failed.first()
            && (best.is_none() || scales_down)
        {
            let message = format!("the HPA was unable to compute the replica count: {why}");
            self.condition("ScalingActive", false, reason, message);
            let count = format!("invalid metrics ({} invalid out of {})", failed.len(), specs.len());
            return Err(("FailedComputeMetricsReplicas", format!("{count}, first error is: {head}: {why}")));
        }
        Ok(best)
    }

    /// How many replicas one metric about resources asks for.
    fn recommendation(
        &self,
        spec: View<'_, MetricSpec>,
        scaled: Scaled<'_>,
        usage: Usage<'_>,
    ) -> Result<Answer, MetricFailure> {
        let source = source(spec)?;
        let failed = |why: String| MetricFailure {
            reason: source.failure,
            why: format!("failed to get {} {}: {why}", source.resource, source.what()),
            head: source.head(),
        };
        let unknown = |why: &MetricsError| {
            failed(format!("unable to get metrics for resource {}: {why}", source.resource))
        };
        let usage = usage.map_err(unknown)?;
        // The metrics API is asked for those of the target's pods.
        let is_measured = |pod: &Value| usage.contains_key(Pod::of(pod).metadata().name().text());
        if !scaled.pods.iter().any(is_measured) {
            return Err(unknown(&MetricsError::Empty("resource")));
        }
        let calculation = ReplicaCalculation {
            resource: source.resource,
            container: source.container,
            target: source.target,
            tolerance: scaled.tolerance,
            current: scaled.current,
            pods: scaled.pods,
            usage,
            now: self.now,
        };
        let answer = calculation.calculate().map_err(|why| failed(why.to_string()))?;
        Ok(Answer { replicas: answer.replicas, status: source.status(&answer), name: source.name() })
    }

    fn status(&self) -> Made<HorizontalPodAutoscalerStatus> {
        let mut status = make!(part HorizontalPodAutoscalerStatus {
            observed_generation: self.hpa.view().metadata().generation(),
            last_scale_time: self.hpa.view().status().last_scale_time(),
            current_replicas: self.current,
            desired_replicas: self.desired,
            conditions: &self.conditions,
        });
        let old = self.hpa.view().status().current_metrics();
        match &self.metrics {
            // Of a target that is not found, the last metrics stay.
            None if old.is_set() => status.edit().current_metrics().put(old.to_value()),
            Some(metrics) if !metrics.is_empty() => status.edit().current_metrics().set(metrics),
            _ => {}
        }
        if self.scaled {
            status.edit().last_scale_time().set(time::seconds(self.now));
        }
        status
    }
}

impl Autoscalers {
    async fn scale(&self, name: &Name, object: &Arc<Object>, turn: &mut Turn) -> Result<(), Refusal> {
        let (kind, target) = self.target(name, turn).await?;
        turn.metrics = Some(Vec::new());
        turn.condition(
            "AbleToScale",
            true,
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        );
        let scale = scale::of_value(&kind, &target);
        let current = Scale::of(&scale).spec().replicas().or(0);
        let spec = turn.hpa.view().spec();
        let bounds = Bounds { current, min: spec.min_replicas().or(1), max: spec.max_replicas().or(1) };
        let reference = spec.scale_target_ref().name().text().to_owned();
        (turn.current, turn.desired) = (current, current);
        self.histories.lock().entry(name.clone()).or_default().begin(current, turn.now);
        let (wanted, why) = if current == 0 && bounds.min != 0 {
            turn.condition(
                "ScalingActive",
                false,
                "ScalingDisabled",
                "scaling is disabled since the replica count of the target is zero",
            );
            turn.desired = 0;
            return Ok(());
        } else if current > bounds.max {
            (bounds.max, "Current number of replicas above Spec.MaxReplicas".to_owned())
        } else if current < bounds.min {
            (bounds.min, "Current number of replicas below Spec.MinReplicas".to_owned())
        } else {
            self.by_metrics(name, &scale, bounds, turn).await?
        };
        if wanted == current {
            return Ok(());
        }
        if let Err(error) = self.client.scale(&kind, &name.namespace, &reference, wanted).await {
            let text = format!("the HPA controller was unable to update the target scale: {error}");
            turn.condition("AbleToScale", false, "FailedUpdateScale", text);
            return Err(("FailedRescale", format!("New size: {wanted}; reason: {why}; error: {error}")));
        }
        let text = format!("the HPA controller was able to update the target scale to {wanted}");
        turn.condition("AbleToScale", true, "SucceededRescale", text);
        self.autoscalers.normal(object, "SuccessfulRescale", format!("New size: {wanted}; reason: {why}"));
        self.histories.lock().entry(name.clone()).or_default().scaled(current, wanted, turn.now);
        (turn.desired, turn.scaled) = (wanted, true);
        Ok(())
    }

    /// The object that is scaled, with its kind.
    async fn target(&self, name: &Name, turn: &mut Turn) -> Result<(Arc<Kind>, Value), Refusal> {
        let reference = turn.hpa.view().spec().scale_target_ref().to_value();
        let reference = CrossVersionObjectReference::of(&reference);
        let api_version = reference.api_version().text();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = self.client.registry().kind(group, version, reference.kind().text());
        let kind = kind.filter(|kind| kind.subresources.contains(&Subresource::Scale));
        let found = match &kind {
            None => {
                let (kind, version) = (reference.kind().text().to_owned(), api_version.to_owned());
                Err(TargetError::NoKind { kind, version })
            }
            Some(kind) => {
                let target = async {
                    let object = self.client.get(kind, &name.namespace, reference.name().text()).await?;
                    self.client.view(kind, &object).await
                };
                target.await.map_err(TargetError::Api)
            }
        };
        match (kind, found) {
            (Some(kind), Ok(object)) => Ok((kind, object)),
            (_, Err(error)) => {
                let message =
                    format!("the HPA controller was unable to get the target's current scale: {error}");
                turn.condition("AbleToScale", false, "FailedGetScale", message);
                Err(("FailedGetScale", error.to_string()))
            }
            (None, Ok(_)) => Err(("FailedGetScale", String::new())),
        }
    }

    /// Every autoscaler that is about one of these pods, this one among them: two would undo each other's work.
    fn rivals(&self, name: &Name, selector: LabelSelector, pods: &[Arc<Object>]) -> Vec<Name> {
        let mut selectors = self.selectors.lock();
        selectors.insert(name.clone(), selector);
        let about = |s: &LabelSelector| pods.iter().any(|pod| selects(s, pod));
        let near = selectors.iter().filter(|(other, s)| other.namespace == name.namespace && about(s));
        near.map(|(other, _)| other.clone()).collect()
    }

    /// The pods of the target; refuses a target without a selector, and pods that other autoscalers are also about.
    fn target_pods(&self, name: &Name, scale: &Value, turn: &mut Turn) -> Result<Vec<Value>, Refusal> {
        let labels = Scale::of(scale).status().selector().text();
        if labels.is_empty() {
            turn.condition(
                "ScalingActive",
                false,
                "InvalidSelector",
                "the HPA target's scale is missing a selector",
            );
            return Err(("SelectorRequired", "selector is required".into()));
        }
        let selector = labels.parse::<LabelSelector>().map_err(|error| {
            let why =
                format!("couldn't convert selector into a corresponding internal selector object: {error}");
            turn.condition("ScalingActive", false, "InvalidSelector", why.clone());
            ("InvalidSelector", why)
        })?;
        let mut pods = self.pods.list(&name.namespace);
        pods.retain(|pod| selects(&selector, pod));
        let rivals = self.rivals(name, selector, &pods);
        if rivals.len() > 1 {
            let each: Vec<String> =
                rivals.iter().map(|n| format!("{{{} {}}}", n.name, n.namespace)).collect();
            let why =
                format!("pods by selector {labels} are controlled by multiple HPAs: [{}]", each.join(" "));
            turn.condition("ScalingActive", false, "AmbiguousSelector", why.clone());
            turn.failed.push(("AmbiguousSelector", why.clone()));
            return Err(("FailedComputeMetricsReplicas", why));
        }
        Ok(pods.iter().map(|pod| pod.value()).collect())
    }

    /// What the metrics ask for, bent to what bounds and behavior allow, and why.
    async fn by_metrics(
        &self,
        name: &Name,
        scale: &Value,
        bounds: Bounds,
        turn: &mut Turn,
    ) -> Result<(i64, String), Refusal> {
        let pods = self.target_pods(name, scale, turn)?;
        let status = Scale::of(scale).status();
        let scaled = Scaled {
            namespace: &name.namespace,
            pods: &pods,
            selector: status.selector().text(),
            tolerance: tolerance(turn.hpa.view()),
            current: bounds.current,
            observed: status.replicas().or(0),
            now: turn.now,
        };
        let Some((wanted, metric)) = turn.largest(&*self.metrics, scaled).await? else {
            return Ok((bounds.current, String::new()));
        };
        turn.condition(
            "ScalingActive",
            true,
            "ValidMetricFound",
            format!("the HPA was able to successfully calculate a replica count from {metric}"),
        );
        let decision = {
            let mut histories = self.histories.lock();
            histories.entry(name.clone()).or_default().decide(turn.hpa.view(), wanted, bounds, turn.now)
        };
        turn.condition("AbleToScale", true, decision.able.0, decision.able.1);
        let (limited, reason, message) = decision.limited;
        turn.condition("ScalingLimited", limited, reason, message);
        let why = if wanted > bounds.current {
            format!("{metric} above target")
        } else {
            "All metrics below target".into()
        };
        Ok((decision.replicas, why))
    }
}

fn selects(selector: &LabelSelector, pod: &Object) -> bool {
    selector.matches(|key| pod.meta.labels.get(key).map(String::as_str))
}

fn tolerance(hpa: View<'_, HorizontalPodAutoscaler>) -> Tolerance {
    let of = |rules: View<'_, HPAScalingRules>| {
        let own = quantity(&rules.tolerance().to_value());
        own.map_or(TOLERANCE, |own| own.as_f64())
    };
    let behavior = hpa.spec().behavior();
    Tolerance { down: of(behavior.scale_down()), up: of(behavior.scale_up()) }
}
