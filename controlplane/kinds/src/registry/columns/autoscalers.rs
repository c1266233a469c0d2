//! Columns of HorizontalPodAutoscalers, in either form.

use super::{Column, age, count, name, text};
use crate::registry::convert::autoscalers;
use coracle_fields::autoscaling_v2::{
    HorizontalPodAutoscaler, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus,
};
use coracle_fields::{Amount, Schema as _, View, autoscaling_v1};
use serde_json::{Value, json};

/// HorizontalPodAutoscalers.
pub fn autoscaler() -> Vec<Column> {
    vec![
        name(),
        text::<HorizontalPodAutoscaler>("Reference", |object| {
            let target = object.spec().scale_target_ref();
            json!(format!("{}/{}", target.kind().text(), target.name().text()))
        }),
        text::<HorizontalPodAutoscaler>("Targets", |object| json!(targets(object))),
        text::<HorizontalPodAutoscaler>("MinPods", |object| {
            let least = object.spec().min_replicas().int();
            json!(least.map_or_else(|| "<unset>".into(), |count| count.to_string()))
        }),
        text::<HorizontalPodAutoscaler>("MaxPods", |object| count(object.spec().max_replicas().int())),
        text::<HorizontalPodAutoscaler>("Replicas", |object| count(object.status().current_replicas().int())),
        age(),
    ]
}

/// The first two metrics and how many more there are.
fn targets(object: View<'_, HorizontalPodAutoscaler>) -> String {
    let metrics = object.spec().metrics();
    if metrics.is_empty() {
        return v1_targets(object.erased().as_type());
    }
    let statuses = object.status().current_metrics();
    let shown: Vec<String> = metrics
        .items()
        .enumerate()
        .take(2)
        .map(|(index, metric)| {
            Goal::of(metric, statuses.nth(index)).map_or("<unknown type>".into(), Goal::text)
        })
        .collect();
    let more = metrics.len().saturating_sub(2);
    if more == 0 { shown.join(", ") } else { format!("{} + {more} more...", shown.join(", ")) }
}

/// All metrics of the v1 form: that which it has a field for, and those of its annotation.
fn v1_targets(object: View<'_, autoscaling_v1::HorizontalPodAutoscaler>) -> String {
    if object.metadata().annotations().has_key(autoscalers::METRICS) {
        let mut stored = object.to_value();
        (autoscalers::STORED_AS.encode)(&mut stored);
        // The share of CPU comes last then; the status says where it was.
        let current = HorizontalPodAutoscaler::of(&stored).status().current_metrics();
        let at = current.items().position(|metric| metric.resource().name() == "cpu");
        if let Some(at) = at.filter(|_| object.spec().target_cpu_utilization_percentage().is_set())
            && let Some(rest) = HorizontalPodAutoscaler::edit(&mut stored)
                .spec()
                .metrics()
                .list_mut()
                .and_then(|metrics| metrics.get_mut(at..))
        {
            rest.rotate_right(1);
        }
        let stored = HorizontalPodAutoscaler::of(&stored);
        if !stored.spec().metrics().is_empty() {
            return targets(stored);
        }
    }
    let Some(goal) = object.spec().target_cpu_utilization_percentage().int() else { return "<none>".into() };
    let now = object.status().current_cpu_utilization_percentage().int();
    format!("cpu: {}/{goal}%", percent(now, "<unknown>"))
}

fn percent(value: Option<i64>, absent: &str) -> String {
    value.map_or(absent.to_owned(), |percent| format!("{percent}%"))
}

/// Where a metric is taken from.
enum Source {
    Pods,
    /// Something outside the pods.
    Other,
    /// A resource of the pods or of a container.
    Resource,
}

/// A metric with its target and what it is now.
struct Goal<'a> {
    source: Source,
    name: &'a str,
    wanted: View<'a, MetricTarget>,
    current: View<'a, MetricValueStatus>,
}

impl<'a> Goal<'a> {
    fn of(metric: View<'a, MetricSpec>, status: View<'a, MetricStatus>) -> Option<Self> {
        let (source, name, wanted, current) = match metric.type_().text() {
            "External" => (Source::Other, "", metric.external().target(), status.external().current()),
            "Pods" => (Source::Pods, "", metric.pods().target(), status.pods().current()),
            "Object" => (Source::Other, "", metric.object().target(), status.object().current()),
            "Resource" => {
                let of = metric.resource();
                (Source::Resource, of.name().text(), of.target(), status.resource().current())
            }
            "ContainerResource" => {
                let of = metric.container_resource();
                (Source::Resource, of.name().text(), of.target(), status.container_resource().current())
            }
            _ => return None,
        };
        Some(Self { source, name, wanted, current })
    }

    fn text(self) -> String {
        let Self { source, name, wanted, current } = self;
        let average = wanted.average_value().is_set();
        let pair = if average {
            format!("{}/{}", quantity(current.average_value()), quantity(wanted.average_value()))
        } else {
            format!("{}/{}", quantity(current.value()), quantity(wanted.value()))
        };
        match source {
            Source::Pods => pair,
            Source::Other => format!("{pair}{}", if average { " (avg)" } else { "" }),
            Source::Resource if average => format!("{name}: {pair}"),
            Source::Resource => {
                let now = percent(current.average_utilization().int(), "<unknown>");
                let goal = percent(wanted.average_utilization().int(), "<auto>");
                format!("{name}: {now}/{goal}")
            }
        }
    }
}

fn quantity(amount: View<'_, Amount>) -> String {
    match amount.to_value() {
        Value::String(text) => text,
        Value::Null => "<unknown>".into(),
        other => other.to_string(),
    }
}
