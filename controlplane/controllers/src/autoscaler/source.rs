//! Metrics about resources of pods: what is asked for, and how messages and the status name it.

use super::custom::MetricFailure;
use super::replicas::{Recommendation, Target};
use coracle_fields::autoscaling_v2::{MetricSpec, MetricStatus, MetricValueStatus};
use coracle_fields::{Made, View, make};
use coracle_kinds::registry::usage::quantity;
use coracle_proto::quantity::{Format, Quantity};

/// One metric of an autoscaler.
pub(super) struct Source<'a> {
    pub(super) resource: &'a str,
    pub(super) container: Option<&'a str>,
    pub(super) target: Target,
    pub(super) failure: &'static str,
}

/// A metric about a resource of pods, or of one container of theirs.
pub(super) fn source(spec: View<'_, MetricSpec>) -> Result<Source<'_>, MetricFailure> {
    let (resource, target, failure, container) = match spec.type_().text() {
        "Resource" => {
            let of = spec.resource();
            (of.name().text(), of.target(), "FailedGetResourceMetric", None)
        }
        "ContainerResource" => {
            let of = spec.container_resource();
            (of.name().text(), of.target(), "FailedGetContainerResourceMetric", of.container().get())
        }
        other => {
            let (why, head) = (format!("unknown metric source type {other:?}"), String::new());
            return Err(MetricFailure { reason: "InvalidMetricSourceType", why, head });
        }
    };
    let average = quantity(&target.average_value().to_value());
    let target = match (average, target.average_utilization().int()) {
        (Some(average), _) => Target::Average(average.milli_value()),
        (None, Some(percent)) => Target::Utilization(percent),
        (None, None) => {
            let why = "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set";
            return Err(MetricFailure { reason: failure, why: why.into(), head: head(resource, container) });
        }
    };
    Ok(Source { resource, container, target, failure })
}

/// What is before the error of a metric where several are reported.
fn head(resource: &str, container: Option<&str>) -> String {
    match container {
        None => format!("failed to get {resource} resource metric value"),
        Some(container) => format!("failed to get {container} container metric value"),
    }
}

impl Source<'_> {
    pub(super) fn head(&self) -> String {
        head(self.resource, self.container)
    }

    pub(super) fn what(&self) -> &'static str {
        if matches!(self.target, Target::Utilization(_)) { "utilization" } else { "usage" }
    }

    /// What messages call it.
    pub(super) fn name(&self) -> String {
        let container = if self.container.is_some() { "container " } else { "" };
        match self.target {
            Target::Utilization(_) => {
                format!("{} {container}resource utilization (percentage of request)", self.resource)
            }
            Target::Average(_) => format!("{} {container}resource", self.resource),
        }
    }

    /// Its line in the status.
    pub(super) fn status(&self, answer: &Recommendation) -> Made<MetricStatus> {
        let average = if self.resource == "cpu" {
            Quantity::milli(answer.average, Format::DecimalSi)
        } else {
            Quantity::new(answer.average / 1000, Format::DecimalSi)
        };
        let current = make!(part MetricValueStatus {
            average_value: average.to_string(),
            average_utilization: answer.utilization,
        });
        match self.container {
            None => make!(part MetricStatus {
                type_: "Resource",
                resource: { name: self.resource, current },
            }),
            Some(container) => make!(part MetricStatus {
                type_: "ContainerResource",
                container_resource: { name: self.resource, container, current },
            }),
        }
    }
}
