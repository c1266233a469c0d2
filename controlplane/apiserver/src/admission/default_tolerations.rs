//! DefaultTolerationSeconds: pods tolerate the not-ready and unreachable taints for five minutes.

use super::{Attributes, Operation, Plugin};
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use serde_json::{Value, json};

const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The plugin.
pub struct DefaultTolerationSeconds;

#[async_trait]
impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        // Of a change, too: one that leaves them out does not mean to take them away.
        if !matches!(at.operation, Operation::Create | Operation::Update) || !at.is("", "pods") {
            return Ok(());
        }
        let mut all = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        for taint in TAINTS {
            let tolerated = all.iter().any(|t| {
                let key = t["key"].as_str().unwrap_or_default();
                let effect = t["effect"].as_str().unwrap_or_default();
                (key == taint || key.is_empty()) && matches!(effect, "" | "NoExecute")
            });
            if !tolerated {
                all.push(json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
            }
        }
        pod["spec"]["tolerations"] = json!(all);
        Ok(())
    }
}
