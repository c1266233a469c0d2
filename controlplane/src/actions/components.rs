//! ComponentStatuses: made when they are asked for. All parts live in one process, so that whoever answers is well.

use crate::apiserver::api::Reply;
use crate::apiserver::hook::{Action, Call};
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use serde_json::{Value, json};

/// The statuses.
pub struct Components;

fn status(name: &str, problem: Option<String>) -> Value {
    let condition = match problem {
        None => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Some(error) => json!({"type": "Healthy", "status": "False", "error": error}),
    };
    json!({
        "kind": "ComponentStatus", "apiVersion": "v1",
        "metadata": {"name": name}, "conditions": [condition],
    })
}

#[async_trait]
impl Action for Components {
    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError> {
        let store = call.api.store.revision().await.err().map(|error| error.to_string());
        let mut all =
            vec![status("controller-manager", None), status("etcd-0", store), status("scheduler", None)];
        if call.verb == "list" {
            let list =
                json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": all});
            return Ok(Reply::Value(200, list));
        }
        all.retain(|status| status["metadata"]["name"] == call.name);
        let found = all.pop();
        found
            .map(|status| Reply::Value(200, status))
            .ok_or_else(|| ApiError::not_found(&call.kind.group, &call.kind.plural, call.name))
    }
}
