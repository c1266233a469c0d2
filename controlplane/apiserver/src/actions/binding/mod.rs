//! `/binding`: assigns a pod to a node, once.

// The change as bytes.
mod edit;
// Many at a time.
mod batch;

use crate::metadata::now;
use crate::run_action::{Action, Call};
use async_trait::async_trait;
use coracle_client::pipeline::Reply;
use coracle_client::pipeline::Target;
use coracle_proto::status::{ApiError, FieldError};
use serde_json::{Value, json};

pub use batch::bind_all;

/// The action; serves `pods/binding` and `bindings`.
pub struct Binding;

#[async_trait]
impl Action for Binding {
    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError> {
        let name = if call.name.is_empty() {
            call.body["metadata"]["name"].as_str().unwrap_or("")
        } else {
            call.name
        };
        let target = &call.body["target"];
        let node = target["name"].as_str().unwrap_or_default();
        let mut causes = Vec::new();
        if !matches!(target["kind"].as_str(), None | Some("" | "Node")) {
            causes.push(FieldError::unsupported("target.kind", &target["kind"], &["Node", "<empty>"]));
        }
        if node.is_empty() {
            causes.push(FieldError::required("target.name", ""));
        }
        if !causes.is_empty() {
            return Err(ApiError::invalid("", "Binding", name, causes));
        }
        let pods = call.api.objects.registry.resource("", "v1", "pods").ok_or_else(ApiError::no_such_path)?;
        let place = Target {
            user: call.user,
            kind: &pods,
            namespace: call.namespace,
            name,
            subresource: "binding",
            options: call.options,
            applied: false,
        };
        let admitted = call.admitted.ok_or_else(ApiError::method_not_allowed)?;
        call.api.change_admitted(&place, admitted, &|pod| bind(pod, &call.body, name, node)).await?;
        Ok(Reply::Value(
            201,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
        ))
    }
}

fn bind(pod: &Value, binding: &Value, name: &str, node: &str) -> Result<Value, ApiError> {
    let conflict = |why: String| Err(ApiError::conflict("", "pods/binding", name, why));
    if let Some(uid) = binding["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty())
        && pod["metadata"]["uid"] != uid
    {
        return conflict(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            pod["metadata"]["uid"].as_str().unwrap_or_default()
        ));
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(already) = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) {
        return conflict(format!("pod {name} is already assigned to node \"{already}\""));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut new = pod.clone();
    new["spec"]["nodeName"] = json!(node);
    for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
        new["metadata"]["annotations"][key] = value.clone();
    }
    let condition =
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now()});
    let mut conditions = new["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|c| c["type"] != "PodScheduled");
    conditions.push(condition);
    new["status"]["conditions"] = Value::Array(conditions);
    // It has a node: the one it was promised is of no interest any more.
    if let Some(status) = new["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    if let Some(meta) = new["metadata"].as_object_mut() {
        meta.remove("resourceVersion");
    }
    Ok(new)
}
