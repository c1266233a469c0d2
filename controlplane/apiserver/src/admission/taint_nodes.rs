//! TaintNodesByCondition: taints new nodes as not ready, so that no pods are scheduled to them yet.

use super::{Attributes, Operation, Plugin};
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use serde_json::{Value, json};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The plugin.
pub struct TaintNodesByCondition;

#[async_trait]
impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    async fn mutate(&self, at: &mut Attributes<'_>, node: &mut Value) -> Result<(), ApiError> {
        if at.operation != Operation::Create || !at.is("", "nodes") {
            return Ok(());
        }
        let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        if !taints.iter().any(|t| t["key"] == NOT_READY && t["effect"] == "NoSchedule") {
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        }
        node["spec"]["taints"] = json!(taints);
        Ok(())
    }
}
