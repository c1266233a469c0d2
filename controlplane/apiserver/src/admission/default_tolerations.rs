//! DefaultTolerationSeconds: pods tolerate the not-ready and unreachable taints for five minutes.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::core::v1::{Pod, Toleration};
use coracle_fields::{Schema as _, make};
use coracle_proto::status::ApiError;
use serde_json::Value;

const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The plugin.
pub struct DefaultTolerationSeconds;

#[async_trait]
impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Mutate && at.writes() && at.is("", "pods")
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        // Of a change, too: one that leaves them out does not mean to take them away.
        if !matches!(at.operation, Operation::Create | Operation::Update) || !at.is("", "pods") {
            return Ok(());
        }
        for taint in TAINTS {
            let tolerated = Pod::of(pod).spec().tolerations().items().any(|own| {
                let (key, effect) = (own.key().text(), own.effect().text());
                (key == taint || key.is_empty()) && matches!(effect, "" | "NoExecute")
            });
            if !tolerated {
                Pod::edit(pod).spec().tolerations().push(make!(part Toleration {
                    key: taint,
                    operator: "Exists",
                    effect: "NoExecute",
                    toleration_seconds: 300,
                }));
            }
        }
        Ok(())
    }
}
