//! Priority: a pod's class becomes a number.

use super::{Attributes, Operation, Plugin};
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use serde_json::{Value, json};

/// The plugin.
pub struct Priority;

#[async_trait]
impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        if at.operation != Operation::Create || !at.is("", "pods") {
            return Ok(());
        }
        let kind = at
            .api
            .registry
            .resource("scheduling.k8s.io", "v1", "priorityclasses")
            .ok_or_else(ApiError::no_such_path)?;
        let name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
        let class = if name.is_empty() {
            let all = at.api.cache(&kind)?.list(None);
            let defaults = all.iter().map(|c| c.value()).filter(|c| c["globalDefault"] == json!(true));
            defaults.min_by_key(|c| c["value"].as_i64())
        } else {
            let found = at.api.get(&kind, "", &name).await;
            Some(
                found
                    .map_err(|_| at.forbidden(format!("no PriorityClass with name {name} was found")))?
                    .value(),
            )
        };
        let (value, policy) = match &class {
            Some(class) => {
                pod["spec"]["priorityClassName"] = class["metadata"]["name"].clone();
                (class["value"].as_i64().unwrap_or(0), class["preemptionPolicy"].as_str())
            }
            None => (0, None),
        };
        let asked = &pod["spec"]["priority"];
        if asked.as_i64().is_some_and(|asked| asked != value) {
            return Err(at.forbidden(format!(
                "the integer value of priority ({asked}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
            )));
        }
        pod["spec"]["priority"] = json!(value);
        let policy = policy.unwrap_or("PreemptLowerPriority").to_owned();
        if pod["spec"]["preemptionPolicy"].is_null() {
            pod["spec"]["preemptionPolicy"] = json!(policy);
        } else if pod["spec"]["preemptionPolicy"] != policy.as_str() {
            return Err(at.forbidden(format!(
                "the string value of PreemptionPolicy ({}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name",
                pod["spec"]["preemptionPolicy"].as_str().unwrap_or_default()
            )));
        }
        Ok(())
    }
}
