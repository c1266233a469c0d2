//! ExtendedResourceToleration: pods that request an extended resource tolerate the taint of its nodes.

use super::{Attributes, Operation, Plugin};
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The plugin.
pub struct ExtendedResourceToleration;

#[async_trait]
impl Plugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        if !matches!(at.operation, Operation::Create | Operation::Update) || !at.is("", "pods") {
            return Ok(());
        }
        let names: BTreeSet<String> = ["containers", "initContainers"]
            .iter()
            .flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten())
            .flat_map(|c| c["resources"]["requests"].as_object().into_iter().flatten())
            .map(|(name, _)| name.clone())
            .filter(|name| extended(name))
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let mut all = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        for name in names {
            if !all
                .iter()
                .any(|t| t["key"] == name.as_str() && t["operator"] == "Exists" && t["effect"].is_null())
            {
                all.push(json!({"key": name, "operator": "Exists"}));
            }
        }
        pod["spec"]["tolerations"] = json!(all);
        Ok(())
    }
}

/// A resource of somebody's own domain.
fn extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| !domain.is_empty() && !domain.ends_with("kubernetes.io"))
}
