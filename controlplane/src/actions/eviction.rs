//! `/eviction`: a pod is deleted if its disruption budgets allow one more disruption.

use crate::apiserver::api::Reply;
use crate::apiserver::hook::{Action, Call};
use crate::apiserver::options::DeleteOptions;
use crate::apiserver::write::Target;
use crate::object::Object;
use async_trait::async_trait;
use coracle_proto::selector::LabelSelector;
use coracle_proto::status::{ApiError, FieldError};
use serde_json::{Value, json};
use std::sync::Arc;

/// The action.
pub struct Eviction;

#[async_trait]
impl Action for Eviction {
    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError> {
        if call.body["metadata"]["name"].as_str().unwrap_or_default() != call.name {
            return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
        }
        let pod = call.api.get(call.kind, call.namespace, call.name).await?;
        let options: DeleteOptions = serde_json::from_value(match &call.body["deleteOptions"] {
            Value::Null => json!({}),
            options => options.clone(),
        })
        .map_err(|e| ApiError::bad_request(e.to_string()))?;
        let value = pod.value();
        let finished = matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"));
        if !finished && pod.meta.deletion_timestamp.is_none() {
            self.spend(&call, &pod, &value).await?;
        }
        let target = Target {
            user: call.user,
            kind: call.kind,
            namespace: call.namespace,
            name: call.name,
            subresource: "",
            options: call.options,
            applied: false,
        };
        call.api.remove(&target, &options).await?;
        Ok(Reply::Value(
            201,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
        ))
    }
}

impl Eviction {
    /// Takes one disruption from the pod's budget; 429 when there is none left.
    async fn spend(&self, call: &Call<'_>, pod: &Arc<Object>, value: &Value) -> Result<(), ApiError> {
        let budgets = call
            .api
            .registry
            .resource("policy", "v1", "poddisruptionbudgets")
            .ok_or_else(ApiError::no_such_path)?;
        let matching: Vec<Arc<Object>> = call
            .api
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
        let Some(budget) = matching.first() else { return Ok(()) };
        if unhealthy_may_go(&budget.value(), value) || call.options.dry_run {
            return Ok(());
        }
        let target = Target {
            user: call.user,
            kind: &budgets,
            namespace: call.namespace,
            name: &budget.meta.name,
            subresource: "status",
            options: call.options,
            applied: false,
        };
        call.api.change(&target, &|current| take_one(current, &pod.meta.name)).await.map(|_| ())
    }
}

fn unhealthy_may_go(budget: &Value, pod: &Value) -> bool {
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

fn take_one(budget: &Value, pod: &str) -> Result<Value, ApiError> {
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let refuse = |retry: u32, detail: String| {
        let mut error = ApiError::too_many_requests(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            retry,
        );
        error.details.causes.push(FieldError::new("DisruptionBudget", "", detail));
        Err(error)
    };
    if budget["status"]["observedGeneration"].as_i64() < budget["metadata"]["generation"].as_i64() {
        return refuse(10, format!("The disruption budget {name} is still being processed by the server."));
    }
    let allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
    if allowed <= 0 {
        let (needs, has) = (&budget["status"]["desiredHealthy"], &budget["status"]["currentHealthy"]);
        return refuse(
            0,
            format!("The disruption budget {name} needs {needs} healthy pods and has {has} currently"),
        );
    }
    let mut new = budget.clone();
    new["status"]["disruptionsAllowed"] = json!(allowed - 1);
    new["status"]["disruptedPods"][pod] = json!(crate::apiserver::metadata::now());
    if let Some(meta) = new["metadata"].as_object_mut() {
        meta.remove("resourceVersion");
    }
    Ok(new)
}
