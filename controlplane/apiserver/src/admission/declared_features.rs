//! NodeDeclaredFeatureValidator: a change of a pod that runs is rejected if its node does not declare the features it needs.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::core::v1::{Node, Pod, PodSpec};
use coracle_fields::{Schema as _, View};
use coracle_proto::status::ApiError;
use coracle_validation::tree::same_at;
use serde_json::Value;

/// The name of the plugin.
pub const NAME: &str = "NodeDeclaredFeatureValidator";

/// Whether a change from the first to the second spec needs the feature.
type Needs = fn(View<'_, PodSpec>, View<'_, PodSpec>) -> bool;

/// Features of upstream's registry that changes of pods need, sorted by name.
const FEATURES: [(&str, Needs); 2] = [
    ("InPlacePodLevelResourcesVerticalScaling", |old, new| !same_at(old.resources(), new.resources())),
    ("InPlacePodVerticalScalingInitContainers", resizes_init_containers),
];

/// The plugin.
pub struct NodeDeclaredFeatureValidator;

#[async_trait]
impl Plugin for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate
            && at.operation == Operation::Update
            && at.kind.stored_group().is_empty()
            && at.kind.plural == "pods"
            && matches!(at.subresource, "" | "resize")
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        let new = Pod::of(object).spec();
        let (Some(old), Some(name)) = (at.old, new.node_name().filled()) else { return Ok(()) };
        let needed = needed(Pod::of(old).spec(), new);
        if needed.is_empty() {
            return Ok(());
        }
        let Some(node) = at.find("", "nodes", "", name).await else {
            return Err(at.forbidden(format!("node {name:?} not found")));
        };
        let doc = node.doc();
        let declared = doc.view::<Node>().status().declared_features();
        let missing: Vec<&str> = needed.into_iter().filter(|feature| !declared.has(feature)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        Err(at.forbidden(format!(
            "pod update requires features {missing} which are not available on node {name:?}"
        )))
    }
}

fn needed(old: View<'_, PodSpec>, new: View<'_, PodSpec>) -> Vec<&'static str> {
    FEATURES.iter().filter(|(_, needs)| needs(old, new)).map(|(name, _)| *name).collect()
}

/// Whether an init container that runs once gets other resources; nodes of every version resize sidecars.
fn resizes_init_containers(old: View<'_, PodSpec>, new: View<'_, PodSpec>) -> bool {
    let mut pairs = old.init_containers().items().zip(new.init_containers());
    pairs.any(|(old, new)| old.restart_policy() != "Always" && !same_at(old.resources(), new.resources()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_change_needs() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let pod = |whole: Value, container: &str, once: &str, sidecar: &str| {
            json!({"resources": whole, "containers": [{"name": "c", "resources": cpu(container)}], "initContainers": [
                {"name": "i", "resources": cpu(once)},
                {"name": "s", "restartPolicy": "Always", "resources": cpu(sidecar)}]})
        };
        let (whole, init) = (FEATURES[0].0, FEATURES[1].0);
        let old = pod(Value::Null, "1", "1", "1");
        for (new, want) in [
            (old.clone(), vec![]),
            (pod(json!({}), "2", "1", "2"), vec![]),
            (pod(Value::Null, "1", "2", "1"), vec![init]),
            (pod(cpu("3"), "1", "1", "1"), vec![whole]),
            (pod(cpu("3"), "1", "2", "1"), vec![whole, init]),
        ] {
            assert_eq!(needed(PodSpec::of(&old), PodSpec::of(&new)), want, "{new}");
        }
    }
}
