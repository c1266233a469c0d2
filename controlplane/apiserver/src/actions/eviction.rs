//! `/eviction`: a pod is deleted if its disruption budgets allow one more disruption.

use crate::metadata;
use crate::run_action::{Action, Call};
use async_trait::async_trait;
use coracle_client::options::{DeleteOptions, Preconditions, WriteOptions};
use coracle_client::pipeline::Reply;
use coracle_client::pipeline::Target;
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
        if call.body["metadata"]["name"].as_str().unwrap_or_default() != call.name {
            return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
        }
        let asked: DeleteOptions = match &call.body["deleteOptions"] {
            Value::Null => DeleteOptions::default(),
            options => {
                serde_json::from_value(options.clone()).map_err(|e| ApiError::bad_request(e.to_string()))?
            }
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
    match pod.value()["status"]["phase"].as_str() {
        _ if pod.meta.deletion_timestamp.is_some() => EvictionCheck::Terminated,
        Some("Succeeded" | "Failed") => EvictionCheck::Terminated,
        Some("Pending") => EvictionCheck::Pending,
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
    let mut new = pod.clone();
    new["metadata"]["resourceVersion"] = json!(preconditions.resource_version.as_deref().unwrap_or_default());
    if let Some(uid) = &preconditions.uid {
        new["metadata"]["uid"] = json!(uid);
    }
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let target = |c: &Value| c["type"] == "DisruptionTarget";
    let since = conditions.iter().find(|c| target(c) && c["status"] == "True");
    let since = since.map_or_else(|| json!(metadata::now()), |c| c["lastTransitionTime"].clone());
    conditions.retain(|c| !target(c));
    conditions.push(json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastTransitionTime": since,
    }));
    new["status"]["conditions"] = json!(conditions);
    new
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
            let selector = LabelSelector::from_object(&budget.value()["spec"]["selector"]);
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
    if can_evict_unhealthy(&budget.value(), &pod.value()) {
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

fn can_evict_unhealthy(budget: &Value, pod: &Value) -> bool {
    let ready = pod["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
    if ready {
        return false;
    }
    let healthy = budget["status"]["currentHealthy"].as_i64().unwrap_or(0);
    let desired = budget["status"]["desiredHealthy"].as_i64().unwrap_or(0);
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || (desired > 0 && healthy >= desired)
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
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let status = &budget["status"];
    if status["observedGeneration"].as_i64() < budget["metadata"]["generation"].as_i64() {
        return Err(refusal(10, still_processed(name)));
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MOST_DISRUPTED) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(ApiError::forbidden("policy", "poddisruptionbudget", name, why));
    }
    let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
    if allowed <= 0 {
        let count = |field: &str| status[field].as_i64().unwrap_or(0);
        let (needs, has) = (count("desiredHealthy"), count("currentHealthy"));
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
    let mut new = budget.clone();
    new["status"]["disruptionsAllowed"] = json!(allowed - 1);
    new["status"]["disruptedPods"][pod] = json!(metadata::now());
    if let Some(meta) = new["metadata"].as_object_mut() {
        meta.remove("resourceVersion");
    }
    Ok(new)
}
