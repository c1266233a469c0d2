//! HorizontalPodAutoscalers.

use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::kinds::{Resource, built_in};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_cli::closest::suggestion;
use coracle_fields::View;
use coracle_fields::apiregistration::v1::APIService;
use coracle_fields::autoscaling_v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition};

fn failed<'a>(
    autoscaler: View<'a, HorizontalPodAutoscaler>,
    name: &str,
) -> Option<View<'a, HorizontalPodAutoscalerCondition>> {
    let mut all = autoscaler.status().conditions().items();
    all.find(|condition| condition.type_() == name && condition.status() == "False")
}

/// Why an autoscaler does not scale.
pub fn explain(
    world: &World,
    autoscaler: View<'_, HorizontalPodAutoscaler>,
    trail: &[ObjectRef],
) -> Vec<Finding> {
    if let Some(condition) =
        failed(autoscaler, "AbleToScale").filter(|found| found.reason() == "FailedGetScale")
    {
        return vec![target(world, autoscaler, condition)];
    }
    let Some(condition) =
        failed(autoscaler, "ScalingActive").filter(|found| found.reason() != "ScalingDisabled")
    else {
        return Vec::new();
    };
    let message = condition.message().text();
    if message.contains("missing request for") {
        let cause = format!("the autoscaler cannot compute a utilization: {message}");
        let finding = of_condition(autoscaler, Trouble::AutoscalerRequests, cause, condition);
        return vec![finding.remedy("set resources.requests in all containers of the target's pod template")];
    }
    match api_of(condition.reason().text()) {
        Some(api) => metrics(world, autoscaler, condition, trail, api),
        None => {
            let cause = format!("the autoscaler does not scale: {message}");
            let finding = of_condition(autoscaler, Trouble::AutoscalerMetrics, cause, condition);
            vec![finding.remedy("correct what the message names in spec.metrics or spec.scaleTargetRef")]
        }
    }
}

/// An API of metrics.
struct MetricsApi {
    group: &'static str,
    /// What usually serves it.
    server: &'static str,
}

/// The API that an autoscaler asks for the type of metric that failed, by the reason of its condition.
fn api_of(reason: &str) -> Option<MetricsApi> {
    let (group, server) = match reason {
        "FailedGetResourceMetric" | "FailedGetContainerResourceMetric" => {
            ("metrics.k8s.io", "metrics-server")
        }
        "FailedGetPodsMetric" | "FailedGetObjectMetric" => {
            ("custom.metrics.k8s.io", "an adapter of a monitoring system")
        }
        "FailedGetExternalMetric" => ("external.metrics.k8s.io", "an adapter of a monitoring system"),
        _ => return None,
    };
    Some(MetricsApi { group, server })
}

/// An autoscaler without metrics, and the trouble of the API that should have them.
fn metrics(
    world: &World,
    autoscaler: View<'_, HorizontalPodAutoscaler>,
    condition: View<'_, HorizontalPodAutoscalerCondition>,
    trail: &[ObjectRef],
    MetricsApi { group, server }: MetricsApi,
) -> Vec<Finding> {
    let services = world.list::<APIService>(None);
    let registered = services.items.iter().find(|service| service.spec().group() == group).copied();
    let remedy = match registered {
        Some(service) => format!(
            "check what serves {group}, and whether it has the metric: kubectl get {}",
            ObjectRef::to(service)
        ),
        None if services.complete => {
            format!("install what serves {group}, such as {server}: no APIService has this group")
        }
        None => format!("install or repair what serves {group}, such as {server}: kubectl get apiservices"),
    };
    let cause = format!("the autoscaler gets no metrics: {}", condition.message().text());
    let finding = of_condition(autoscaler, Trouble::AutoscalerMetrics, cause, condition).remedy(remedy);
    let mut findings: Vec<Finding> =
        registered.into_iter().flat_map(|service| follow(world, trail, ObjectRef::to(service))).collect();
    findings.push(finding);
    findings
}

fn of_condition(
    autoscaler: View<'_, HorizontalPodAutoscaler>,
    trouble: Trouble,
    cause: String,
    condition: View<'_, HorizontalPodAutoscalerCondition>,
) -> Finding {
    let what = format!("condition {}: {}", condition.type_().text(), condition.reason().text());
    Finding::new(ObjectRef::to(autoscaler), trouble, cause)
        .since(condition.last_transition_time().text())
        .evidence(what, condition.message().text())
}

fn target(
    world: &World,
    autoscaler: View<'_, HorizontalPodAutoscaler>,
    condition: View<'_, HorizontalPodAutoscalerCondition>,
) -> Finding {
    let wanted = autoscaler.spec().scale_target_ref();
    let (kind, name) = (wanted.kind().text(), wanted.name().text());
    let resource: Option<Resource> = built_in().find(|resource| resource.kind == kind);
    let names = resource
        .map(|resource| world.names(&resource, autoscaler.metadata().namespace().text()))
        .unwrap_or_default();
    let hint = suggestion(name, names);
    let cause = format!("the target {kind} {name} cannot be scaled or does not exist{hint}");
    of_condition(autoscaler, Trouble::AutoscalerTarget, cause, condition)
        .remedy("correct spec.scaleTargetRef")
}
