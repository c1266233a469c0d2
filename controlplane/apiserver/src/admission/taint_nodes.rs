//! TaintNodesByCondition: taints new nodes as not ready, so that no pods are scheduled to them yet.

use super::{Attributes, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::core::v1::{Node, Taint};
use coracle_fields::{Schema as _, make};
use coracle_proto::status::ApiError;
use serde_json::Value;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The plugin.
pub struct TaintNodesByCondition;

#[async_trait]
impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Mutate && at.is_new() && at.is("", "nodes")
    }

    async fn mutate(&self, at: &mut Attributes<'_>, node: &mut Value) -> Result<(), ApiError> {
        if !at.is_new() || !at.is("", "nodes") {
            return Ok(());
        }
        let taints = Node::of(node).spec().taints();
        if !taints.items().any(|taint| taint.key() == NOT_READY && taint.effect() == "NoSchedule") {
            let taint = make!(part Taint { key: NOT_READY, effect: "NoSchedule" });
            Node::edit(node).spec().taints().push(taint);
        }
        Ok(())
    }
}
