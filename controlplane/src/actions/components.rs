//! ComponentStatuses: made when they are asked for, from what this server knows of the parts.

use crate::apiserver::api::{Api, Reply};
use crate::apiserver::hook::{Action, Call};
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Where scheduler and controllers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loops {
    /// In this process.
    Here,
    /// In the process that holds their lease.
    Elected,
    /// Not in this process, and nobody says where.
    Unknown,
}

/// The statuses.
pub struct Components(pub Loops);

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

/// Why nobody is known to do the work of a lease; nothing while somebody renews it.
fn stale(lease: Option<&Value>, now: Timestamp) -> Option<String> {
    let spec = lease.map_or(&Value::Null, |lease| &lease["spec"]);
    let holder = spec["holderIdentity"].as_str().unwrap_or_default();
    let renewed = spec["renewTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let Some(renewed) = renewed.filter(|_| !holder.is_empty()) else {
        return Some("nobody holds its lease".into());
    };
    let life = SignedDuration::from_secs(spec["leaseDurationSeconds"].as_i64().unwrap_or_default());
    (now.duration_since(renewed) > life)
        .then(|| format!("{holder} has not renewed its lease since {renewed}"))
}

impl Components {
    fn problem(&self, api: &Api, lease: &str) -> Option<String> {
        match self.0 {
            Loops::Here => None,
            Loops::Unknown => Some("this server does not run it and does not know who does".into()),
            Loops::Elected => {
                let kind = api.registry.resource("coordination.k8s.io", "v1", "leases")?;
                let lease = api.cached(&kind, "kube-system", lease).ok().map(|lease| lease.value());
                stale(lease.as_ref(), Timestamp::now())
            }
        }
    }
}

#[async_trait]
impl Action for Components {
    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError> {
        let store = call.api.store.revision().await.err().map(|error| error.to_string());
        let mut all = vec![
            status("controller-manager", self.problem(call.api, "kube-controller-manager")),
            status("etcd-0", store),
            status("scheduler", self.problem(call.api, "kube-scheduler")),
        ];
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_lease_that_nobody_renews_is_a_problem() {
        let lease = |holder: &str| {
            json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z"}})
        };
        let at = |seconds: i64| {
            "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
        };
        assert_eq!(stale(Some(&lease("a")), at(10)), None);
        assert!(stale(Some(&lease("a")), at(16)).unwrap().starts_with("a has not renewed"));
        assert!(stale(Some(&lease("")), at(1)).is_some() && stale(None, at(1)).is_some());
    }
}
