//! Pods that cannot be created: quotas, limits, pod security, webhooks, missing objects.

use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::kinds::Resource;
use crate::trouble::Trouble;
use crate::webhooks;
use crate::world::World;
use coracle_cli::closest::suggestion;
use coracle_fields::View;
use coracle_fields::core::v1::{Event, ServiceAccount};
use coracle_fields::node::v1::RuntimeClass;
use coracle_fields::scheduling::v1::PriorityClass;

/// Seconds for which a refusal is worth a line; controllers try again with growing pauses.
const RECENT: i64 = 1800;

/// Why an object cannot create its pods, by its events or by the message of its condition.
pub fn explain(world: &World, object: &ObjectRef, message: Option<(&str, &str)>) -> Option<Finding> {
    let all = world.events(object);
    let event = events::last(&all, &["FailedCreate"], |_| true);
    let event = event.filter(|event| world.age(events::last_seen(*event)).is_none_or(|age| age < RECENT));
    // Controllers do not change a condition that has another reason now.
    let is_older = |since: &str, event| match (world.age(since), world.age(events::last_seen(event))) {
        (Some(condition), Some(event)) => event < condition,
        _ => false,
    };
    let (text, since) = match (message, event) {
        (Some((_, since)), Some(event)) if is_older(since, event) => {
            (event.message().text(), events::first_seen(event))
        }
        (Some(found), _) => found,
        (None, Some(event)) => (event.message().text(), events::first_seen(event)),
        (None, None) => return None,
    };
    Some(by_message(world, object, text, since, event))
}

fn by_message(
    world: &World,
    object: &ObjectRef,
    text: &str,
    since: &str,
    event: Option<View<'_, Event>>,
) -> Finding {
    let short = text.trim_start_matches("Error creating: ").trim();
    let trouble = classify(short);
    let namespace = object.namespace.as_str();
    let (cause, remedy) = match trouble {
        Trouble::QuotaRefuses => {
            let quota = between(short, "exceeded quota: ", ",").unwrap_or("of the namespace");
            let numbers = short
                .split_once("exceeded quota: ")
                .and_then(|(_, rest)| rest.split_once(", "))
                .map_or(short, |(_, rest)| rest);
            let cause = format!("the quota {quota} refuses new pods: {numbers}");
            (
                cause,
                format!(
                    "raise the quota (kubectl edit resourcequota {quota} -n {namespace}), remove pods, or lower their requests"
                ),
            )
        }
        Trouble::LimitRangeRefuses => (
            format!("a LimitRange of namespace {namespace} refuses the pods: {short}"),
            format!(
                "change resources of the containers, or the LimitRange: kubectl describe limitrange -n {namespace}"
            ),
        ),
        Trouble::PodSecurityRefuses => (
            format!(
                "pod security of namespace {namespace} refuses the pods: {}",
                short.split("violates ").nth(1).unwrap_or(short)
            ),
            format!(
                "correct the securityContext of the pod template, or the label pod-security.kubernetes.io/enforce of namespace {namespace}"
            ),
        ),
        Trouble::WebhookFails => {
            let name = between(short, "failed calling webhook \"", "\"").unwrap_or("of the cluster");
            let (state, remedy) = webhooks::named(world, name).unwrap_or_else(|| {
                let list = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations";
                let remedy = format!(
                    "start the Service of webhook {name}, or delete the configuration that has it; this lists them: {list}"
                );
                (String::new(), remedy)
            });
            let cause =
                format!("the admission webhook {name} cannot be called, so no pod can be created{state}");
            (cause, remedy)
        }
        Trouble::WebhookRefuses => {
            let cause = format!("admission refuses the pods: {short}");
            (cause, "change the pod template as the message says, or the policy".to_owned())
        }
        Trouble::ServiceAccountMissing => {
            let name = between(short, "serviceaccount \"", "\"").unwrap_or_default();
            let hint = suggestion(name, world.names(&Resource::of::<ServiceAccount>(), namespace));
            (
                format!("the ServiceAccount {name} does not exist{hint}"),
                format!("kubectl create serviceaccount {name} -n {namespace}, or correct serviceAccountName"),
            )
        }
        Trouble::PriorityClassMissing => {
            let name = between(short, "PriorityClass with name ", " ").unwrap_or_default();
            let hint = suggestion(name, world.names(&Resource::of::<PriorityClass>(), ""));
            (
                format!("the PriorityClass {name} does not exist{hint}"),
                "correct priorityClassName of the pod template, or create the class".to_owned(),
            )
        }
        Trouble::RuntimeClassMissing => {
            let names = world.names(&Resource::of::<RuntimeClass>(), "");
            let name = between(short, "RuntimeClass \"", "\"").unwrap_or_default();
            (
                format!("the RuntimeClass {name} does not exist{}", suggestion(name, names)),
                "correct runtimeClassName of the pod template, or create the class".to_owned(),
            )
        }
        _ => (format!("pods cannot be created: {short}"), "correct what the message names".to_owned()),
    };
    let fact = event.map(events::evidence);
    let quoted = if fact.is_some() { "" } else { text };
    Finding::new(object.clone(), trouble, cause)
        .since(since)
        .with(fact)
        .evidence("condition", quoted)
        .remedy(remedy)
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split(after).next().unwrap_or(rest))
}

/// The trouble that a refusal of the API server names.
pub fn classify(text: &str) -> Trouble {
    let has = |word: &str| text.contains(word);
    if has("exceeded quota") || has("failed quota") {
        Trouble::QuotaRefuses
    } else if has("violates PodSecurity") {
        Trouble::PodSecurityRefuses
    } else if has("failed calling webhook") {
        Trouble::WebhookFails
    } else if has("admission webhook") || has("ValidatingAdmissionPolicy") || has("' denied request: ") {
        Trouble::WebhookRefuses
    } else if has("serviceaccount \"") && has("not found") {
        Trouble::ServiceAccountMissing
    } else if has("no PriorityClass with name") {
        Trouble::PriorityClassMissing
    } else if has("RuntimeClass \"") && has("not found") {
        Trouble::RuntimeClassMissing
    } else if has("usage per Container")
        || has("usage per Pod")
        || has("per Container is")
        || has("per Pod is")
    {
        Trouble::LimitRangeRefuses
    } else {
        Trouble::PodCreationFails
    }
}
