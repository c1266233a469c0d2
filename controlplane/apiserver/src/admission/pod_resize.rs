//! PodResizeValidator: a resize that the node of the pod could never do is rejected.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::core::v1::{Node, Pod};
use coracle_fields::{Schema as _, View};
use coracle_kinds::registry::usage::{Amounts, add, amounts, pod_amounts};
use coracle_proto::quantity::Quantity;
use coracle_proto::status::{ApiError, FieldError};
use coracle_validation::tree::same_at;
use serde_json::Value;

/// The name of the plugin.
pub const NAME: &str = "PodResizeValidator";

/// The plugin.
pub struct PodResizeValidator;

#[async_trait]
impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate
            && at.operation == Operation::Update
            && at.kind.stored_group().is_empty()
            && at.kind.plural == "pods"
            && at.subresource == "resize"
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        let spec = Pod::of(object).spec();
        let (Some(old), Some(name)) = (at.old, spec.node_name().filled()) else { return Ok(()) };
        if same_at(Pod::of(old).spec(), spec) {
            return Ok(());
        }
        let Some(node) = at.find("", "nodes", "", name).await else {
            return Err(at.forbidden(format!("node {name:?} not found")));
        };
        let doc = node.doc();
        let refused = |reason: &'static str, why: String| {
            let mut error = at.forbidden(why);
            error.details.causes.push(FieldError::new(reason, "", String::new()));
            Err(error)
        };
        match node.meta.labels.get("kubernetes.io/os") {
            Some(os) if os != "linux" => {
                let why = format!("pod resize is only supported on linux nodes, node {name:?} is {os:?}");
                refused("UnsupportedPlatform", why)
            }
            _ => match lacking(object, doc.view::<Node>()) {
                Some(lacking) => refused(
                    "NodeCapacity",
                    format!("node didn't have enough allocatable resources: {lacking}"),
                ),
                None => Ok(()),
            },
        }
    }
}

/// What the node has less of than the pod requests; it does not matter what other pods use.
fn lacking(pod: &Value, node: View<'_, Node>) -> Option<String> {
    let mut wanted = pod_amounts(pod, "requests");
    add(&mut wanted, &amounts(&Pod::of(pod).spec().overhead().as_value()));
    let has = amounts(&node.status().allocatable().as_value());
    let of = |list: &Amounts, name: &str| list.get(name).cloned().unwrap_or_else(Quantity::zero);
    let mut lines = Vec::new();
    for (name, count) in [("cpu", Quantity::milli_value as fn(&Quantity) -> i64), ("memory", Quantity::value)]
    {
        let (requested, allocatable) = (of(&wanted, name), of(&has, name));
        if requested > allocatable {
            let (requested, allocatable) = (count(&requested), count(&allocatable));
            lines.push(format!("{name}, requested: {requested}, allocatable: {allocatable}"));
        }
    }
    (!lines.is_empty()).then(|| lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_are_compared_with_the_whole_node() {
        let node = json!({"status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}});
        let pod = |cpu: &str, memory: &str| {
            json!({"spec": {"overhead": {"cpu": "500m"}, "containers": [
                {"resources": {"requests": {"cpu": cpu, "memory": memory}}}, {"resources": {"requests": {"cpu": "500m"}}}]}})
        };
        let both =
            "cpu, requested: 3000, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824";
        for (pod, want) in [
            (pod("1", "1Gi"), None),
            (pod("1001m", "1Gi"), Some("cpu, requested: 2001, allocatable: 2000")),
            (pod("2", "2Gi"), Some(both)),
        ] {
            assert_eq!(lacking(&pod, Node::of(&node)).as_deref(), want, "{pod}");
        }
    }
}
