//! RuntimeClass: sets a pod's overhead and scheduling constraints from its runtime class.

use super::{Attributes, Operation, Plugin};
use async_trait::async_trait;
use coracle_kinds::registry::usage::amounts;
use coracle_proto::status::ApiError;
use serde_json::{Value, json};

/// The plugin.
pub struct RuntimeClass;

#[async_trait]
impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        let Some(class) = class_of(at, pod).await? else { return Ok(()) };
        let overhead = &class["overhead"]["podFixed"];
        if !class["overhead"].is_null() {
            let own = &pod["spec"]["overhead"];
            if own.as_object().is_some_and(|o| !o.is_empty()) && amounts(own) != amounts(overhead) {
                return Err(at.forbidden(
                    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
                ));
            }
            pod["spec"]["overhead"] = overhead.clone();
        }
        schedule(pod, &class["scheduling"]).map_err(|why| at.forbidden(why))
    }

    async fn validate(&self, at: &mut Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
        if at.operation != Operation::Create || !at.is("", "pods") {
            return Ok(());
        }
        let class = class_of(at, pod).await?;
        let overhead = class.as_ref().map(|class| &class["overhead"]).filter(|o| !o.is_null());
        let own = &pod["spec"]["overhead"];
        match overhead {
            Some(overhead) if amounts(&overhead["podFixed"]) != amounts(own) => {
                Err(at
                    .forbidden("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
            }
            None if !own.is_null() => Err(at.forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )),
            _ => Ok(()),
        }
    }
}

async fn class_of(at: &Attributes<'_>, pod: &Value) -> Result<Option<Value>, ApiError> {
    let name = pod["spec"]["runtimeClassName"].as_str();
    let Some(name) = name.filter(|_| at.operation == Operation::Create && at.is("", "pods")) else {
        return Ok(None);
    };
    match at.find("node.k8s.io", "runtimeclasses", "", name).await {
        Some(class) => Ok(Some(class.value())),
        None => Err(at.forbidden(format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

/// A node selector of the pod that contradicts that of its class.
#[derive(Debug, thiserror::Error)]
#[error(
    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {own}"
)]
struct NodeSelectorConflict {
    key: String,
    wanted: String,
    own: String,
}

/// Adds the class's node selector and tolerations to the pod's.
fn schedule(pod: &mut Value, scheduling: &Value) -> Result<(), NodeSelectorConflict> {
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        let wanted = value.as_str().unwrap_or_default();
        match pod["spec"]["nodeSelector"].get(key).and_then(Value::as_str) {
            Some(own) if own != wanted => {
                let (wanted, own) = (wanted.to_owned(), own.to_owned());
                return Err(NodeSelectorConflict { key: key.clone(), wanted, own });
            }
            _ => pod["spec"]["nodeSelector"][key] = json!(wanted),
        }
    }
    let more = scheduling["tolerations"].as_array().cloned().unwrap_or_default();
    if !more.is_empty() {
        let mut all = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        for toleration in more {
            if !all.contains(&toleration) {
                all.push(toleration);
            }
        }
        pod["spec"]["tolerations"] = json!(all);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nodes_and_tolerations_are_added() {
        let mut pod = json!({"spec": {"nodeSelector": {"a": "1"}, "tolerations": [{"key": "x"}]}});
        let scheduling = json!({"nodeSelector": {"b": "2"}, "tolerations": [{"key": "x"}, {"key": "y"}]});
        schedule(&mut pod, &scheduling).unwrap();
        assert_eq!(pod["spec"]["nodeSelector"], json!({"a": "1", "b": "2"}));
        assert_eq!(pod["spec"]["tolerations"], json!([{"key": "x"}, {"key": "y"}]));
        let refused = schedule(&mut pod, &json!({"nodeSelector": {"a": "9"}})).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "conflict: runtimeClass.scheduling.nodeSelector[a] = 9; pod.spec.nodeSelector[a] = 1"
        );
    }
}
