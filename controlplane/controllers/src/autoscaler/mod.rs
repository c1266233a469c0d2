//! HorizontalPodAutoscalers: as many replicas as the load asks for.

// What pods use.
pub mod metrics;
// How many replicas a metric asks for.
pub mod replicas;
// How fast replicas may change.
pub mod behavior;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use behavior::{Bounds, History};
use coracle_client::Client;
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
use coracle_proto::quantity::{Format, Quantity};
use coracle_proto::selector::LabelSelector;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use metrics::Metrics;
use parking_lot::Mutex;
use replicas::{Recommendation, ReplicaCalculation, Target, Tolerance};
use serde_json::{Value, json};
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

/// Starts the controller; without `metrics` it asks the server's own `metrics.k8s.io`.
pub fn start(setup: &mut Setup<'_>, metrics: Option<Arc<dyn Metrics>>) {
    let client = setup.client(NAME);
    let autoscalers = setup.resource(NAME, "autoscaling", "horizontalpodautoscalers");
    let pods = setup.resource(NAME, "", "pods");
    let queue = setup.enqueue_on_change(&autoscalers).queue.clone();
    let metrics = metrics.unwrap_or_else(|| Arc::new(metrics::Served(client.clone())));
    let (histories, selectors) = Default::default();
    let controller = Autoscalers { client, autoscalers, pods, metrics, histories, selectors };
    setup.run(controller, &queue, 2);
}

#[async_trait]
impl Controller for Autoscalers {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(object) = self.autoscalers.get(name) else {
            self.histories.lock().remove(name);
            self.selectors.lock().remove(name);
            return Ok(Requeue::No);
        };
        let mut turn = Turn::new(&object.value(), now);
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

/// What one look at an autoscaler finds.
struct Turn {
    hpa: Value,
    conditions: Vec<Condition>,
    metrics: Vec<Value>,
    /// Metrics that say nothing, and why.
    failed: Vec<Refusal>,
    current: i64,
    desired: i64,
    scaled: bool,
    now: Timestamp,
}

impl Turn {
    fn new(hpa: &Value, now: Timestamp) -> Self {
        let status = &hpa["status"];
        let conditions = serde_json::from_value(status["conditions"].clone()).unwrap_or_default();
        let number = |field: &str| status[field].as_i64().unwrap_or(0);
        Self {
            conditions,
            metrics: Vec::new(),
            failed: Vec::new(),
            current: number("currentReplicas"),
            desired: number("desiredReplicas"),
            scaled: false,
            hpa: hpa.clone(),
            now,
        }
    }

    fn condition(&mut self, kind: &str, holds: bool, reason: &str, message: impl Into<String>) {
        conditions::put(&mut self.conditions, Condition::new(kind, holds, reason, message, self.now));
    }

    fn status(&self) -> Value {
        let old = &self.hpa["status"];
        let mut status = json!({
            "observedGeneration": self.hpa["metadata"]["generation"],
            "currentReplicas": self.current, "desiredReplicas": self.desired,
            "conditions": self.conditions,
        });
        if !self.metrics.is_empty() {
            status["currentMetrics"] = json!(self.metrics);
        }
        if self.scaled {
            status["lastScaleTime"] = json!(time::seconds(self.now));
        } else if !old["lastScaleTime"].is_null() {
            status["lastScaleTime"] = old["lastScaleTime"].clone();
        }
        status
    }
}

impl Autoscalers {
    async fn scale(&self, name: &Name, object: &Arc<Object>, turn: &mut Turn) -> Result<(), Refusal> {
        let (kind, target) = self.target(name, turn).await?;
        turn.condition(
            "AbleToScale",
            true,
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        );
        let scale = scale::of_value(&kind, &target);
        let current = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        let spec = turn.hpa["spec"].clone();
        let bounds = Bounds {
            current,
            min: spec["minReplicas"].as_i64().unwrap_or(1),
            max: spec["maxReplicas"].as_i64().unwrap_or(1),
        };
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
            self.by_metrics(name, (&target, &scale), bounds, turn).await?
        };
        if wanted == current {
            return Ok(());
        }
        let reference = spec["scaleTargetRef"]["name"].as_str().unwrap_or_default();
        if let Err(error) = self.client.scale(&kind, &name.namespace, reference, wanted).await {
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
        let reference = turn.hpa["spec"]["scaleTargetRef"].clone();
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let kind = self.client.registry().kind(group, version, text("kind"));
        let kind = kind.filter(|kind| kind.subresources.contains(&Subresource::Scale));
        let found = match &kind {
            None => {
                let (kind, version) = (text("kind").to_owned(), text("apiVersion").to_owned());
                Err(TargetError::NoKind { kind, version })
            }
            Some(kind) => {
                let target = async {
                    let object = self.client.get(kind, &name.namespace, text("name")).await?;
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

    /// What the metrics ask for, bent to what bounds and behavior allow, and why.
    async fn by_metrics(
        &self,
        name: &Name,
        (target, scale): (&Value, &Value),
        bounds: Bounds,
        turn: &mut Turn,
    ) -> Result<(i64, String), Refusal> {
        let raw = &target["spec"]["selector"];
        let labelled = raw.get("matchLabels").is_some() || raw.get("matchExpressions").is_some();
        let selector =
            if labelled { LabelSelector::from_object(raw).ok() } else { Some(LabelSelector::from_map(raw)) };
        let Some(selector) = selector.filter(|_| raw.as_object().is_some_and(|raw| !raw.is_empty())) else {
            turn.condition(
                "ScalingActive",
                false,
                "InvalidSelector",
                "the HPA target's scale is missing a selector",
            );
            return Err(("SelectorRequired", "selector is required".into()));
        };
        let mut pods = self.pods.list(&name.namespace);
        pods.retain(|pod| selects(&selector, pod));
        let rivals = self.rivals(name, selector, &pods);
        if rivals.len() > 1 {
            let each: Vec<String> =
                rivals.iter().map(|n| format!("{{{} {}}}", n.name, n.namespace)).collect();
            let labels = scale["status"]["selector"].as_str().unwrap_or_default();
            let why =
                format!("pods by selector {labels} are controlled by multiple HPAs: [{}]", each.join(" "));
            turn.condition("ScalingActive", false, "AmbiguousSelector", why.clone());
            turn.failed.push(("AmbiguousSelector", why.clone()));
            return Err(("FailedComputeMetricsReplicas", why));
        }
        let pods: Vec<Value> = pods.iter().map(|pod| pod.value()).collect();
        let usage = self.metrics.pods(&name.namespace).await;
        let specs = turn.hpa["spec"]["metrics"].as_array().cloned().unwrap_or_default();
        let tolerance = tolerance(&turn.hpa);
        let mut best: Option<(i64, String)> = None;
        for spec in &specs {
            let answer = source(spec).and_then(|source| {
                let usage = usage.as_ref().map_err(|why| {
                    let head = format!("failed to get {} {}", source.resource, source.what());
                    let why =
                        format!("{head}: unable to get metrics for resource {}: {why}", source.resource);
                    (source.failure, why)
                })?;
                let question = ReplicaCalculation {
                    resource: source.resource,
                    container: source.container,
                    target: source.target,
                    tolerance,
                    current: bounds.current,
                    pods: &pods,
                    usage,
                    now: turn.now,
                };
                let answer = question.calculate().map_err(|why| {
                    (source.failure, format!("failed to get {} {}: {why}", source.resource, source.what()))
                })?;
                Ok((answer, source))
            });
            match answer {
                Ok((answer, source)) => {
                    turn.metrics.push(source.status(&answer));
                    if best.as_ref().is_none_or(|(replicas, _)| answer.replicas > *replicas) {
                        best = Some((answer.replicas, source.name()));
                    }
                }
                Err(why) => turn.failed.push(why),
            }
        }
        let scales_down = best.as_ref().is_some_and(|(replicas, _)| *replicas < bounds.current);
        if let Some((reason, why)) = turn.failed.first().cloned()
            && (best.is_none() || scales_down)
        {
            turn.condition(
                "ScalingActive",
                false,
                reason,
                format!("the HPA was unable to compute the replica count: {why}"),
            );
            let count = format!("invalid metrics ({} invalid out of {})", turn.failed.len(), specs.len());
            return Err(("FailedComputeMetricsReplicas", format!("{count}, first error is: {why}")));
        }
        let Some((wanted, metric)) = best else { return Ok((bounds.current, String::new())) };
        turn.condition(
            "ScalingActive",
            true,
            "ValidMetricFound",
            format!("the HPA was able to successfully calculate a replica count from {metric}"),
        );
        let decision = {
            let mut histories = self.histories.lock();
            histories.entry(name.clone()).or_default().decide(&turn.hpa, wanted, bounds, turn.now)
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

fn tolerance(hpa: &Value) -> Tolerance {
    let of = |direction: &str| {
        let own = quantity(&hpa["spec"]["behavior"][direction]["tolerance"]);
        own.map_or(TOLERANCE, |own| own.as_f64())
    };
    Tolerance { down: of("scaleDown"), up: of("scaleUp") }
}

/// One metric of an autoscaler.
struct Source<'a> {
    resource: &'a str,
    container: Option<&'a str>,
    target: Target,
    failure: &'static str,
}

/// What a metric asks; resources of pods and of one container of theirs are known.
fn source(spec: &Value) -> Result<Source<'_>, (&'static str, String)> {
    let (of, failure, container) = match spec["type"].as_str().unwrap_or_default() {
        "Resource" => (&spec["resource"], "FailedGetResourceMetric", None),
        "ContainerResource" => {
            let of = &spec["containerResource"];
            (of, "FailedGetContainerResourceMetric", of["container"].as_str())
        }
        other => {
            let reason = match other {
                "Pods" => "FailedGetPodsMetric",
                "Object" => "FailedGetObjectMetric",
                "External" => "FailedGetExternalMetric",
                _ => "InvalidMetricSourceType",
            };
            return Err((reason, format!("no metrics API serves metrics of type {other}")));
        }
    };
    let target = &of["target"];
    let target = match (quantity(&target["averageValue"]), target["averageUtilization"].as_i64()) {
        (Some(average), _) => Target::Average(average.milli_value()),
        (None, Some(percent)) => Target::Utilization(percent),
        (None, None) => {
            return Err((
                failure,
                "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set".into(),
            ));
        }
    };
    Ok(Source { resource: of["name"].as_str().unwrap_or_default(), container, target, failure })
}

impl Source<'_> {
    fn what(&self) -> &'static str {
        if matches!(self.target, Target::Utilization(_)) { "utilization" } else { "usage" }
    }

    /// What messages call it.
    fn name(&self) -> String {
        let container = if self.container.is_some() { "container " } else { "" };
        match self.target {
            Target::Utilization(_) => {
                format!("{} {container}resource utilization (percentage of request)", self.resource)
            }
            Target::Average(_) => format!("{} {container}resource", self.resource),
        }
    }

    /// Its line in the status.
    fn status(&self, answer: &Recommendation) -> Value {
        let average = if self.resource == "cpu" {
            Quantity::milli(answer.average, Format::DecimalSi)
        } else {
            Quantity::new(answer.average / 1000, Format::DecimalSi)
        };
        let mut current = json!({"averageValue": average.to_string()});
        if let Some(percent) = answer.utilization {
            current["averageUtilization"] = json!(percent);
        }
        match self.container {
            None => json!({"type": "Resource", "resource": {"name": self.resource, "current": current}}),
            Some(container) => json!({"type": "ContainerResource", "containerResource":
                {"name": self.resource, "container": container, "current": current}}),
        }
    }
}
