//! How many replicas metrics of pods, of an object, or from outside the cluster ask for.

use super::metrics::{MetricQuery, Metrics, MetricsError};
use super::replicas::{ReplicaCalculation, ReplicasError, Target, Tolerance};
use coracle_fields::autoscaling_v2::{MetricIdentifier, MetricSpec, MetricStatus};
use coracle_fields::core::v1::Pod;
use coracle_fields::{Amount, Made, Schema as _, View, make};
use coracle_informer::selector::Selector;
use coracle_kinds::registry::usage::quantity;
use coracle_proto::quantity::{Format, Quantity};
use coracle_proto::selector::{LabelSelector, SelectorError};
use jiff::Timestamp;
use serde_json::Value;

/// What is scaled.
#[derive(Clone, Copy)]
pub(super) struct Scaled<'a> {
    pub(super) namespace: &'a str,
    pub(super) pods: &'a [Value],
    /// The selector of the pods, as the Scale has it.
    pub(super) selector: &'a str,
    pub(super) tolerance: Tolerance,
    /// Replicas that are wanted now.
    pub(super) current: i64,
    /// Replicas that there are.
    pub(super) observed: i64,
    pub(super) now: Timestamp,
}

/// What a metric asks for.
pub(super) struct Answer {
    pub(super) replicas: i64,
    pub(super) status: Made<MetricStatus>,
    /// What messages call the metric.
    pub(super) name: String,
}

/// Why a metric says nothing.
#[derive(Debug, Clone)]
pub(super) struct MetricFailure {
    pub(super) reason: &'static str,
    pub(super) why: String,
    /// What is before `why` where several metrics are reported.
    pub(super) head: String,
}

/// Why a metric says nothing, in the words of Kubernetes.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error(transparent)]
    Selector(#[from] SelectorError),
    #[error("unable to get metric {metric}: {error}")]
    Pods { metric: String, error: MetricsError },
    #[error("unable to get metric {metric}/{error}")]
    Object { metric: String, error: MetricsError },
    #[error("unable to get external metric {metric}: {error}")]
    External { metric: String, error: MetricsError },
    #[error("invalid {0} metric source: neither a value target nor an average value target was set")]
    NoTarget(&'static str),
    #[error(transparent)]
    Replicas(#[from] ReplicasError),
}

/// Whether a metric is one of these types.
pub(super) fn is_custom(spec: View<'_, MetricSpec>) -> bool {
    matches!(spec.type_().text(), "Pods" | "Object" | "External")
}

/// Asks one metric.
pub(super) async fn ask(
    metrics: &dyn Metrics,
    spec: &Value,
    scaled: Scaled<'_>,
) -> Result<Answer, MetricFailure> {
    let view = MetricSpec::of(spec);
    let (reason, head, asked) = match view.type_().text() {
        "Pods" => {
            let head = "failed to get pods metric value".to_owned();
            ("FailedGetPodsMetric", head, pods(metrics, spec, scaled).await)
        }
        "Object" => {
            let head = "failed to get object metric value".to_owned();
            ("FailedGetObjectMetric", head, object(metrics, spec, scaled).await)
        }
        _ => {
            let head =
                format!("failed to get {} external metric value", view.external().metric().name().text());
            ("FailedGetExternalMetric", head, external(metrics, spec, scaled).await)
        }
    };
    asked.map_err(|error| MetricFailure { reason, why: error.to_string(), head })
}

/// The selector of a metric as a parameter has it.
fn selector_of(metric: View<'_, MetricIdentifier>) -> Result<String, SelectorError> {
    let selector = metric.selector();
    if !selector.is_set() {
        return Ok(String::new());
    }
    Ok(LabelSelector::from_object(&selector.to_value())?.to_string())
}

fn milli(amount: View<'_, Amount>) -> Option<i64> {
    quantity(&amount.to_value()).map(|amount| amount.milli_value())
}

fn text(milli: i64) -> String {
    Quantity::milli(milli, Format::DecimalSi).to_string()
}

/// The selector of a metric as messages have it.
fn printed(metric: View<'_, MetricIdentifier>) -> String {
    let selector = metric.selector().read::<Option<Selector>>().ok().flatten();
    selector.map_or_else(|| "nil".to_owned(), |selector| selector.to_string())
}

/// What messages call a metric with its selector.
fn external_name(metric: View<'_, MetricIdentifier>) -> String {
    format!("external metric {}({})", metric.name().text(), printed(metric))
}

async fn pods(metrics: &dyn Metrics, spec: &Value, scaled: Scaled<'_>) -> Result<Answer, AskError> {
    let of = MetricSpec::of(spec).pods();
    let (metric, selector) = (of.metric().name().text(), selector_of(of.metric())?);
    let query = MetricQuery { namespace: scaled.namespace, metric, selector: &selector };
    let usage = metrics.custom(query, scaled.selector).await;
    let usage = usage.map_err(|error| AskError::Pods { metric: metric.to_owned(), error })?;
    let calculation = ReplicaCalculation {
        resource: "",
        container: None,
        target: Target::Average(milli(of.target().average_value()).unwrap_or(0)),
        tolerance: scaled.tolerance,
        current: scaled.current,
        pods: scaled.pods,
        usage: &usage,
        now: scaled.now,
    };
    let answer = calculation.calculate()?;
    let status = make!(part MetricStatus {
        type_: "Pods",
        pods: { metric: of.metric(), current: { average_value: text(answer.average) } },
    });
    Ok(Answer { replicas: answer.replicas, status, name: format!("pods metric {metric}") })
}

async fn object(metrics: &dyn Metrics, spec: &Value, scaled: Scaled<'_>) -> Result<Answer, AskError> {
    let of = MetricSpec::of(spec).object();
    let (metric, selector) = (of.metric().name().text(), selector_of(of.metric())?);
    let described = of.described_object();
    let (api_version, kind, name) =
        (described.api_version().text(), described.kind().text(), described.name().text());
    let target = of.target();
    let wanted = match (target.type_().text(), milli(target.value()), milli(target.average_value())) {
        ("Value", Some(value), _) => Wanted::Value(value),
        ("AverageValue", _, Some(average)) => Wanted::Average(average),
        _ => return Err(AskError::NoTarget("object")),
    };
    let query = MetricQuery { namespace: scaled.namespace, metric, selector: &selector };
    let used = metrics.object(query, (api_version, kind, name)).await.map_err(|error| AskError::Object {
        metric: format!("{metric}: {kind} on {} {name}", scaled.namespace),
        error,
    })?;
    let outcome = wanted.replicas(used, scaled)?;
    let name = match wanted {
        Wanted::Value(_) => format!("{kind} metric {metric}"),
        Wanted::Average(_) => external_name(of.metric()),
    };
    let status = make!(part MetricStatus {
        type_: "Object",
        object: {
            described_object: described,
            metric: of.metric(),
            current: { value: outcome.value(), average_value: outcome.average() },
        },
    });
    Ok(Answer { replicas: outcome.replicas, status, name })
}

async fn external(metrics: &dyn Metrics, spec: &Value, scaled: Scaled<'_>) -> Result<Answer, AskError> {
    let of = MetricSpec::of(spec).external();
    let (metric, selector) = (of.metric().name().text(), selector_of(of.metric())?);
    let target = of.target();
    let wanted = match (milli(target.value()), milli(target.average_value())) {
        (_, Some(average)) => Wanted::Average(average),
        (Some(value), None) => Wanted::Value(value),
        (None, None) => return Err(AskError::NoTarget("external")),
    };
    let query = MetricQuery { namespace: scaled.namespace, metric, selector: &selector };
    let values = metrics.external(query).await.map_err(|error| AskError::External {
        metric: format!("{}/{metric}/{}", scaled.namespace, printed(of.metric())),
        error,
    })?;
    let used = values.into_iter().fold(0, i64::saturating_add);
    let outcome = wanted.replicas(used, scaled)?;
    let status = make!(part MetricStatus {
        type_: "External",
        external: {
            metric: of.metric(),
            current: { value: outcome.value(), average_value: outcome.average() },
        },
    });
    Ok(Answer { replicas: outcome.replicas, status, name: external_name(of.metric()) })
}

/// What is aimed at, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// For the metric as it is.
    Value(i64),
    /// For the metric divided by the number of replicas.
    Average(i64),
}

/// How many replicas a value asks for.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    replicas: i64,
    used: i64,
    averaged: bool,
}

impl Outcome {
    fn value(&self) -> Option<String> {
        (!self.averaged).then(|| text(self.used))
    }

    fn average(&self) -> Option<String> {
        self.averaged.then(|| text(self.used))
    }
}

/// Rounded up, and not more than the API can say.
fn ceiling(replicas: f64) -> i64 {
    replicas.ceil().min(f64::from(i32::MAX)) as i64
}

impl Wanted {
    fn replicas(self, used: i64, scaled: Scaled<'_>) -> Result<Outcome, ReplicasError> {
        match self {
            Self::Value(target) => {
                let ratio = used as f64 / target as f64;
                let replicas = if scaled.current == 0 {
                    ceiling(ratio)
                } else if scaled.tolerance.within(ratio) {
                    scaled.current
                } else {
                    ceiling(ratio * ready(scaled.pods)? as f64)
                };
                Ok(Outcome { replicas, used, averaged: false })
            }
            Self::Average(target) => {
                let ratio = used as f64 / (target as f64 * scaled.observed as f64);
                let replicas = if scaled.tolerance.within(ratio) {
                    scaled.observed
                } else {
                    ceiling(used as f64 / target as f64)
                };
                let used = if scaled.observed > 0 {
                    (used as f64 / scaled.observed as f64).ceil() as i64
                } else {
                    used
                };
                Ok(Outcome { replicas, used, averaged: true })
            }
        }
    }
}

/// How many pods run and are ready.
fn ready(pods: &[Value]) -> Result<usize, ReplicasError> {
    if pods.is_empty() {
        return Err(ReplicasError::NoPods);
    }
    let is_ready = |pod: &&Value| {
        let status = Pod::of(pod).status();
        let mut conditions = status.conditions().items();
        status.phase() == "Running" && conditions.any(|c| c.type_() == "Ready" && c.status() == "True")
    };
    Ok(pods.iter().filter(is_ready).count())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::autoscaler::metrics::{MetricsError, PodUsage};
    use async_trait::async_trait;
    use serde_json::json;
    use std::collections::BTreeMap;

    /// Every metric is 10, once per pod or twice from outside.
    struct Ten;

    #[async_trait]
    impl Metrics for Ten {
        async fn pods(&self, _: &str) -> Result<BTreeMap<String, PodUsage>, MetricsError> {
            Err(MetricsError::NotServed)
        }

        async fn custom(
            &self,
            query: MetricQuery<'_>,
            pods: &str,
        ) -> Result<BTreeMap<String, PodUsage>, MetricsError> {
            assert_eq!((query.namespace, query.selector, pods), ("d", "verb=GET", "app=a"));
            let values = BTreeMap::from([(String::new(), BTreeMap::from([(String::new(), 10_000)]))]);
            let usage = PodUsage { at: Timestamp::UNIX_EPOCH, window: 60, containers: values };
            Ok(["p0", "p1"].map(|pod| (pod.to_owned(), usage.clone())).into_iter().collect())
        }

        async fn object(&self, _: MetricQuery<'_>, object: (&str, &str, &str)) -> Result<i64, MetricsError> {
            assert_eq!(object, ("networking.k8s.io/v1", "Ingress", "main"));
            Ok(10_000)
        }

        async fn external(&self, _: MetricQuery<'_>) -> Result<Vec<i64>, MetricsError> {
            Ok(vec![10_000, 10_000])
        }
    }

    fn pods() -> Vec<Value> {
        let pod = |name: &str| {
            json!({"metadata": {"name": name}, "status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}]}})
        };
        vec![pod("p0"), pod("p1")]
    }

    fn scaled(pods: &[Value]) -> Scaled<'_> {
        Scaled {
            namespace: "d",
            pods,
            selector: "app=a",
            tolerance: Tolerance { down: 0.1, up: 0.1 },
            current: 2,
            observed: 2,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    #[tokio::test]
    async fn pods_object_and_external_metrics_ask_for_replicas() {
        let pods = pods();
        let metric = json!({"name": "hits", "selector": {"matchLabels": {"verb": "GET"}}});
        let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"});
        let of = |kind: &str, target: Value| json!({"type": kind, kind.to_lowercase(): {"metric": metric, "describedObject": object, "target": target}});
        let value = |v: &str| json!({"type": "Value", "value": v});
        let average = |v: &str| json!({"type": "AverageValue", "averageValue": v});
        let long = "external metric hits(&LabelSelector{MatchLabels:map[string]string{verb: GET,},MatchExpressions:[]LabelSelectorRequirement{},})";
        for (spec, replicas, name, place, told) in [
            (of("Pods", average("5")), 4, "pods metric hits", "pods", json!({"averageValue": "10"})),
            (of("Pods", average("10500m")), 2, "pods metric hits", "pods", json!({"averageValue": "10"})),
            (of("Object", value("5")), 4, "Ingress metric hits", "object", json!({"value": "10"})),
            (of("Object", average("2")), 5, long, "object", json!({"averageValue": "5"})),
            (of("External", value("10")), 4, long, "external", json!({"value": "20"})),
            (of("External", average("2500m")), 8, long, "external", json!({"averageValue": "10"})),
        ] {
            let answer = ask(&Ten, &spec, scaled(&pods)).await.unwrap();
            assert_eq!((answer.replicas, answer.name.as_str()), (replicas, name), "{spec}");
            let status = answer.status.into_value();
            assert_eq!((&status[place]["current"], &status[place]["metric"]), (&told, &metric), "{spec}");
        }
        let nothing = ask(&Ten, &of("External", json!({})), scaled(&pods)).await.err().unwrap();
        assert_eq!(nothing.reason, "FailedGetExternalMetric");
        let none = Scaled { current: 2, ..scaled(&[]) };
        let failed = ask(&Ten, &of("Object", value("5")), none).await.err().unwrap();
        assert_eq!(failed.why, "no pods returned by selector while calculating replica count");
        let idle = Scaled { current: 0, ..scaled(&[]) };
        assert_eq!(ask(&Ten, &of("Object", value("4")), idle).await.unwrap().replicas, 3);
    }
}
