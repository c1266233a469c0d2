//! Priority: resolves a pod's priority class to a number.

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
        if !at.is("", "pods") {
            return Ok(());
        }
        if let Some(old) = at.old.filter(|_| at.operation == Operation::Update) {
            // What was computed stays when the client does not say it.
            for field in ["priority", "preemptionPolicy"] {
                if pod["spec"][field].is_null() && !old["spec"][field].is_null() {
                    pod["spec"][field] = old["spec"][field].clone();
                }
            }
            return Ok(());
        }
        if at.operation != Operation::Create {
            return Ok(());
        }
        let kind = at
            .api
            .objects()
            .registry
            .resource("scheduling.k8s.io", "v1", "priorityclasses")
            .ok_or_else(ApiError::no_such_path)?;
        let name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
        let class = if name.is_empty() {
            let all = at.api.objects().cache(&kind)?.list(None);
            let defaults = all.iter().map(|c| c.value()).filter(|c| c["globalDefault"] == json!(true));
            defaults.min_by_key(|c| c["value"].as_i64())
        } else {
            let found = at.api.objects().get(&kind, "", &name).await;
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

    async fn validate(&self, at: &mut Attributes<'_>, class: &Value) -> Result<(), ApiError> {
        let writes = matches!(at.operation, Operation::Create | Operation::Update);
        if !writes || !at.is("scheduling.k8s.io", "priorityclasses") || class["globalDefault"] != true {
            return Ok(());
        }
        let all = at.cached("scheduling.k8s.io", "priorityclasses", None);
        let defaults = all.iter().map(|c| c.value()).filter(|c| c["globalDefault"] == true);
        let Some(other) = defaults.min_by_key(|c| c["value"].as_i64()) else { return Ok(()) };
        let other = other["metadata"]["name"].as_str().unwrap_or_default();
        if at.operation == Operation::Update && class["metadata"]["name"] == other {
            return Ok(());
        }
        Err(at.forbidden(format!(
            "PriorityClass {other} is already marked as default. Only one default can exist"
        )))
    }
}
