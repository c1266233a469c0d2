//! `/binding`: assigns a pod to a node, once.

// The change as bytes.
mod edit;
// Many at a time.
mod batch;
// With audit events.
mod audited;

use crate::metadata::now;
use crate::run_action::{Action, Call};
use async_trait::async_trait;
use coracle_client::pipeline::Reply;
use coracle_client::pipeline::Target;
use coracle_fields::core::v1;
use coracle_fields::{Made, Schema as _, make};
use coracle_proto::status::{ApiError, FieldError};
use serde_json::{Value, json};

pub use audited::bind_all_audited;
pub use batch::bind_all;

/// The action; serves `pods/binding` and `bindings`.
pub struct Binding;

#[async_trait]
impl Action for Binding {
    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError> {
        let binding = v1::Binding::of(&call.body);
        let name = if call.name.is_empty() { binding.metadata().name().text() } else { call.name };
        let target = binding.target();
        let node = target.name().text();
        let mut causes = Vec::new();
        if !matches!(target.kind().text(), "" | "Node") {
            let kind = target.kind().to_value();
            causes.push(FieldError::unsupported("target.kind", &kind, &["Node", "<empty>"]));
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
        Ok(bound())
    }
}

/// The answer to a binding.
fn bound() -> Reply {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Reply::Value(201, status)
}

fn bind(pod: &Value, binding: &Value, name: &str, node: &str) -> Result<Value, ApiError> {
    let conflict = |why: String| Err(ApiError::conflict("", "pods/binding", name, why));
    let (old, binding) = (v1::Pod::of(pod), v1::Binding::of(binding));
    if let Some(uid) = binding.metadata().uid().filled()
        && old.metadata().uid() != uid
    {
        return conflict(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            old.metadata().uid().text()
        ));
    }
    if old.metadata().deletion_timestamp().is_set() {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(already) = old.spec().node_name().filled() {
        return conflict(format!("pod {name} is already assigned to node \"{already}\""));
    }
    if !old.spec().scheduling_gates().is_empty() {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut condition = make!(part v1::PodCondition {
        type_: "PodScheduled",
        status: "True",
        last_transition_time: now(),
    });
    condition.edit().last_probe_time().null();
    let mut made = Made::<v1::Pod>::new(pod.clone());
    let mut new = made.edit();
    new.spec().node_name().set(node);
    for (key, value) in binding.metadata().annotations().entries() {
        new.metadata().annotations().insert(key, value);
    }
    for (key, value) in binding.metadata().labels().entries() {
        new.metadata().labels().insert(key, value);
    }
    new.status().conditions().retain(|condition| condition.type_() != "PodScheduled");
    new.status().conditions().push(condition);
    // It has a node: the one it was promised is of no interest any more.
    new.status().nominated_node_name().clear();
    new.metadata().resource_version().clear();
    Ok(made.into_value())
}
