//! RuntimeClass: sets a pod's overhead and scheduling constraints from its runtime class.

use super::{Attributes, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::core::v1::Pod;
use coracle_fields::node::v1;
use coracle_fields::{Schema as _, View};
use coracle_kinds::object::Object;
use coracle_kinds::registry::usage::amounts;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::sync::Arc;

/// The plugin.
pub struct RuntimeClass;

#[async_trait]
impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, at: &Attributes<'_>, _: Phase) -> bool {
        at.is_new() && at.is("", "pods")
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        let Some(class) = class_of(at, pod).await? else { return Ok(()) };
        let doc = class.doc();
        let class = doc.view::<v1::RuntimeClass>();
        let overhead = class.overhead().pod_fixed();
        if class.overhead().is_set() {
            let own = Pod::of(pod).spec().overhead();
            let says = own.entries().next().is_some();
            if says && amounts(&own.as_value()) != amounts(&overhead.as_value()) {
                return Err(at.forbidden(
                    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
                ));
            }
            Pod::edit(pod).spec().overhead().set(overhead);
        }
        schedule(pod, class.scheduling()).map_err(|why| at.forbidden(why))
    }

    async fn validate(&self, at: &mut Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
        if !at.is_new() || !at.is("", "pods") {
            return Ok(());
        }
        let class = class_of(at, pod).await?;
        let doc = class.as_ref().map(|class| class.doc());
        let overhead = doc.as_ref().map(|doc| doc.view::<v1::RuntimeClass>().overhead());
        let own = Pod::of(pod).spec().overhead();
        match overhead.filter(|overhead| overhead.is_set()) {
            Some(overhead) if amounts(&overhead.pod_fixed().as_value()) != amounts(&own.as_value()) => {
                Err(at
                    .forbidden("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
            }
            None if own.is_set() => Err(at.forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )),
            _ => Ok(()),
        }
    }
}

async fn class_of(at: &Attributes<'_>, pod: &Value) -> Result<Option<Arc<Object>>, ApiError> {
    let name = Pod::of(pod).spec().runtime_class_name().get();
    let Some(name) = name.filter(|_| at.is_new() && at.is("", "pods")) else {
        return Ok(None);
    };
    match at.find("node.k8s.io", "runtimeclasses", "", name).await {
        Some(class) => Ok(Some(class)),
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
fn schedule(pod: &mut Value, scheduling: View<'_, v1::Scheduling>) -> Result<(), NodeSelectorConflict> {
    for (key, value) in scheduling.node_selector().entries() {
        let wanted = value.text();
        match Pod::of(pod).spec().node_selector().key(key).get() {
            Some(own) if own != wanted => {
                let (wanted, own) = (wanted.to_owned(), own.to_owned());
                return Err(NodeSelectorConflict { key: key.to_owned(), wanted, own });
            }
            _ => Pod::edit(pod).spec().node_selector().insert(key, wanted),
        }
    }
    for toleration in scheduling.tolerations().items() {
        if !Pod::of(pod).spec().tolerations().items().any(|own| own.same_as(toleration)) {
            Pod::edit(pod).spec().tolerations().push(toleration);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes_and_tolerations_are_added() {
        let mut pod = json!({"spec": {"nodeSelector": {"a": "1"}, "tolerations": [{"key": "x"}]}});
        let scheduling = json!({"nodeSelector": {"b": "2"}, "tolerations": [{"key": "x"}, {"key": "y"}]});
        schedule(&mut pod, v1::Scheduling::of(&scheduling)).unwrap();
        assert_eq!(pod["spec"]["nodeSelector"], json!({"a": "1", "b": "2"}));
        assert_eq!(pod["spec"]["tolerations"], json!([{"key": "x"}, {"key": "y"}]));
        let scheduling = json!({"nodeSelector": {"a": "9"}});
        let refused = schedule(&mut pod, v1::Scheduling::of(&scheduling)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "conflict: runtimeClass.scheduling.nodeSelector[a] = 9; pod.spec.nodeSelector[a] = 1"
        );
    }
}
