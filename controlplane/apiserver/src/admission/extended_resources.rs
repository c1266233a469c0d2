//! ExtendedResourceToleration: pods that request an extended resource tolerate the taint of its nodes.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::core::v1::{Pod, Toleration};
use coracle_fields::{Schema as _, make};
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::collections::BTreeSet;

/// The plugin.
pub struct ExtendedResourceToleration;

#[async_trait]
impl Plugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Mutate && at.writes() && at.is("", "pods")
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        if !matches!(at.operation, Operation::Create | Operation::Update) || !at.is("", "pods") {
            return Ok(());
        }
        let spec = Pod::of(pod).spec();
        let containers = spec.containers().items().chain(spec.init_containers().items());
        let names: BTreeSet<String> = containers
            .flat_map(|container| container.resources().requests().entries())
            .map(|(name, _)| name.to_owned())
            .filter(|name| extended(name))
            .collect();
        for name in names {
            let tolerated = Pod::of(pod)
                .spec()
                .tolerations()
                .items()
                .any(|own| own.key() == name && own.operator() == "Exists" && !own.effect().is_set());
            if !tolerated {
                let toleration = make!(part Toleration { key: name, operator: "Exists" });
                Pod::edit(pod).spec().tolerations().push(toleration);
            }
        }
        Ok(())
    }
}

/// A resource of somebody's own domain.
fn extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| !domain.is_empty() && !domain.ends_with("kubernetes.io"))
}
