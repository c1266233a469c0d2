//! `/eviction`: a pod is deleted if its disruption budgets allow one more disruption.

use crate::metadata;
use crate::run_action::{Action, Call};
use async_trait::async_trait;
use coracle_client::options::{DeleteOptions, Preconditions, WriteOptions};
use coracle_client::pipeline::Reply;
use coracle_client::pipeline::Target;
use coracle_fields::core::v1::{Pod, PodCondition};
use coracle_fields::policy::v1 as policy;
use coracle_fields::{Made, Schema as _, View, make};
use coracle_kinds::object::Object;
use coracle_proto::selector::LabelSelector;
use coracle_proto::status::{ApiError, FieldError};
use serde_json::{Value, json};
use std::sync::Arc;

/// How often a pod that needs no budget is looked at again when it changed meanwhile.
const RETRIES: usize = 20;
/// Evictions that a budget remembers until its controller has seen them.
const MOST_DISRUPTED: usize = 2000;

/// The action.
pub struct Eviction;

#[async_trait]
impl Action for Eviction {
    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError> {
        let eviction = policy::Eviction::of(&call.body);
        if eviction.metadata().name() != call.name {
            return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
        }
        let asked: DeleteOptions = match eviction.delete_options() {
            options if options.is_set() => {
                options.read().map_err(|e| ApiError::bad_request(e.to_string()))?
            }
            _ => DeleteOptions::default(),
        };
        let asked = asked.with_query(&[])?;
        let dry_run = call.options.dry_run || asked.is_dry_run();
        let write = WriteOptions { dry_run, ..call.options.clone() };
        let insists = asked.preconditions.as_ref().is_some_and(|p| p.resource_version.is_some());
        for _ in 0..RETRIES {
            let pod = call.api.objects.get(call.kind, call.namespace, call.name).await?;
            let (needs, as_seen) = match eviction_check(&pod) {
                EvictionCheck::Terminated => (None, false),
                EvictionCheck::Pending => (None, true),
                EvictionCheck::Running => {
                    let spent = consume_disruption(&call, &write, &pod).await?;
                    (
                        spent.as_ref().map(|(budget, _)| budget.clone()),
                        spent.is_some_and(|(_, unhealthy)| unhealthy),
                    )
                }
            };
            let mut options = asked.clone();
            if as_seen && !insists {
                let seen = options.preconditions.get_or_insert_with(Preconditions::default);
                seen.resource_version = Some(pod.revision.to_string());
            }
            match (mark_and_delete(&call, &write, options).await, needs) {
                (Ok(()), _) => return Ok(Reply::Value(201, success())),
                (Err(error), None) if error.is_conflict() && as_seen && !insists => {}
                // It may have become healthy since it was looked at.
                (Err(error), Some(budget)) if error.is_conflict() && as_seen && !insists => {
                    return Err(refusal(10, still_processed(&budget)));
                }
                (Err(error), _) => return Err(error),
            }
        }
        Err(ApiError::modified(&call.kind.group, &call.kind.plural, call.name))
    }
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// Whether disruption budgets apply to a pod.
enum EvictionCheck {
    /// Terminated or being deleted: budgets do not apply.
    Terminated,
    /// Pending: budgets do not apply, if the pod is unchanged.
    Pending,
    /// Budgets apply.
    Running,
}

fn eviction_check(pod: &Object) -> EvictionCheck {
    match pod.doc().view::<Pod>().status().phase().text() {
        _ if pod.meta.deletion_timestamp.is_some() => EvictionCheck::Terminated,
        "Succeeded" | "Failed" => EvictionCheck::Terminated,
        "Pending" => EvictionCheck::Pending,
        _ => EvictionCheck::Running,
    }
}

/// Sets the `DisruptionTarget` condition, then deletes the pod; both with the preconditions of the options.
async fn mark_and_delete(
    call: &Call<'_>,
    write: &WriteOptions,
    mut options: DeleteOptions,
) -> Result<(), ApiError> {
    let target = |subresource| Target {
        user: call.user,
        kind: call.kind,
        namespace: call.namespace,
        name: call.name,
        subresource,
        options: write,
        applied: false,
    };
    if !write.dry_run {
        let preconditions = options.preconditions.clone().unwrap_or_default();
        let marked = call.api.change(&target("status"), &|pod| Ok(marked(pod, &preconditions))).await?;
        if let Some(version) = options.preconditions.as_mut().and_then(|p| p.resource_version.as_mut()) {
            *version = marked.object.revision.to_string();
        }
    }
    call.api.remove(&target(""), &options).await.map(drop)
}

/// The pod with the `DisruptionTarget` condition.
fn marked(pod: &Value, preconditions: &Preconditions) -> Value {
    let is_target = |condition: View<'_, PodCondition>| condition.type_() == "DisruptionTarget";
    let mut conditions = Pod::of(pod).status().conditions().items();
    let since = conditions.find(|c| is_target(*c) && c.status() == "True");
    let since = match since {
        Some(condition) => condition.last_transition_time().get().map(str::to_owned),
        None => Some(metadata::now()),
    };
    let mut made = Made::<Pod>::new(pod.clone());
    let mut new = made.edit();
    let version = preconditions.resource_version.as_deref().unwrap_or_default();
    new.metadata().resource_version().set(version);
    if let Some(uid) = &preconditions.uid {
        new.metadata().uid().set(uid);
    }
    new.status().conditions().retain(|condition| !is_target(condition));
    new.status().conditions().push(make!(part PodCondition {
        type_: "DisruptionTarget",
        status: "True",
        reason: "EvictionByEvictionAPI",
        message: "Eviction API: evicting",
        last_transition_time: since,
    }));
    made.into_value()
}

/// Consumes one disruption of the pod's budget; 429 if none is left. Returns the budget's name, and whether nothing was
/// consumed because the pod is unhealthy; `None` if no budget selects the pod.
async fn consume_disruption(
    call: &Call<'_>,
    write: &WriteOptions,
    pod: &Arc<Object>,
) -> Result<Option<(String, bool)>, ApiError> {
    let budgets = call
        .api
        .objects
        .registry
        .resource("policy", "v1", "poddisruptionbudgets")
        .ok_or_else(ApiError::no_such_path)?;
    let matching: Vec<Arc<Object>> = call
        .api
        .objects
        .cache(&budgets)?
        .list(Some(call.namespace))
        .into_iter()
        .filter(|budget| {
            let doc = budget.doc();
            let selector = doc.view::<policy::PodDisruptionBudget>().spec().selector();
            let selector = LabelSelector::from_object(&selector.as_value());
            selector.is_ok_and(|s| s.matches(|key| pod.meta.labels.get(key).map(String::as_str)))
        })
        .collect();
    if matching.len() > 1 {
        return Err(ApiError::internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ));
    }
    let Some(budget) = matching.first() else { return Ok(None) };
    let name = budget.meta.name.clone();
    if can_evict_unhealthy(budget.doc().view(), pod.doc().view()) {
        return Ok(Some((name, true)));
    }
    let target = Target {
        user: call.user,
        kind: &budgets,
        namespace: call.namespace,
        name: &name,
        subresource: "status",
        options: write,
        applied: false,
    };
    call.api.change(&target, &|current| decrement_budget(current, &pod.meta.name)).await?;
    Ok(Some((name, false)))
}

fn can_evict_unhealthy(budget: View<'_, policy::PodDisruptionBudget>, pod: View<'_, Pod>) -> bool {
    let mut conditions = pod.status().conditions().items();
    if conditions.any(|c| c.type_() == "Ready" && c.status() == "True") {
        return false;
    }
    let healthy = budget.status().current_healthy().or(0);
    let desired = budget.status().desired_healthy().or(0);
    budget.spec().unhealthy_pod_eviction_policy() == "AlwaysAllow" || (desired > 0 && healthy >= desired)
}

fn refusal(retry: u32, detail: String) -> ApiError {
    let mut error = ApiError::too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        retry,
    );
    error.details.causes.push(FieldError::new("DisruptionBudget", "", detail));
    error
}

fn still_processed(budget: &str) -> String {
    format!("The disruption budget {budget} is still being processed by the server.")
}

fn decrement_budget(budget: &Value, pod: &str) -> Result<Value, ApiError> {
    let view = policy::PodDisruptionBudget::of(budget);
    let (name, status) = (view.metadata().name().text(), view.status());
    if status.observed_generation().int() < view.metadata().generation().int() {
        return Err(refusal(10, still_processed(name)));
    }
    if status.disrupted_pods().as_value().as_object().is_some_and(|pods| pods.len() > MOST_DISRUPTED) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(ApiError::forbidden("policy", "poddisruptionbudget", name, why));
    }
    let allowed = status.disruptions_allowed().or(0);
    if allowed <= 0 {
        let (needs, has) = (status.desired_healthy().or(0), status.current_healthy().or(0));
        return Err(refusal(
            0,
            match has <= needs {
                true => {
                    format!("The disruption budget {name} needs {needs} healthy pods and has {has} currently")
                }
                false => format!("The disruption budget {name} does not allow evicting pods currently"),
            },
        ));
    }
    let mut new = Made::<policy::PodDisruptionBudget>::new(budget.clone());
    new.edit().status().disruptions_allowed().set(allowed - 1);
    new.edit().status().disrupted_pods().insert(pod, metadata::now());
    new.edit().metadata().resource_version().clear();
    Ok(new.into_value())
}
