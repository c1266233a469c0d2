//! ComponentStatuses: computed on request from the health checks.

use crate::objects::Objects;
use crate::run_action::{Action, Call};
use crate::verb::Verb;
use crate::wellknown::store_health;
use async_trait::async_trait;
use coracle_cli::health::Checks;
use coracle_client::pipeline::Reply;
use coracle_fields::coordination::v1::Lease;
use coracle_fields::core::v1::ComponentStatus;
use coracle_fields::{Made, View, make};
use coracle_proto::status::ApiError;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// The part of the program that is the scheduler.
pub const SCHEDULER: &str = "scheduler";
/// The part of the program that is the controllers.
pub const CONTROLLERS: &str = "controller-manager";

/// The process that runs scheduler and controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopPlacement {
    /// In this process.
    Here,
    /// In the process that holds their lease.
    Elected,
    /// Not in this process; unknown where.
    Unknown,
}

/// The statuses.
pub struct Components {
    /// Where scheduler and controllers run.
    pub loops: LoopPlacement,
    /// What health pages ask.
    pub checks: Checks,
}

fn status(name: &str, problem: Option<String>) -> Made<ComponentStatus> {
    let healthy = problem.is_none();
    make!(ComponentStatus {
        metadata: { name },
        conditions: [{
            type_: "Healthy",
            status: if healthy { "True" } else { "False" },
            message: healthy.then_some("ok"),
            error: problem,
        }],
    })
}

/// Why nobody is known to do the work of a lease; nothing while somebody renews it.
fn stale(lease: Option<View<'_, Lease>>, now: Timestamp) -> Option<String> {
    let spec = lease.map(|lease| lease.spec());
    let holder = spec.and_then(|spec| spec.holder_identity().filled());
    let renewed = spec.and_then(|spec| spec.renew_time().get()?.parse::<Timestamp>().ok());
    let (Some(spec), Some(holder), Some(renewed)) = (spec, holder, renewed) else {
        return Some("nobody holds its lease".into());
    };
    let life = SignedDuration::from_secs(spec.lease_duration_seconds().or(0));
    (now.duration_since(renewed) > life)
        .then(|| format!("{holder} has not renewed its lease since {renewed}"))
}

impl Components {
    fn problem(&self, objects: &Objects, part: &str) -> Option<String> {
        match self.loops {
            LoopPlacement::Here => self.problem_here(part),
            LoopPlacement::Unknown => Some("this server does not run it and does not know who does".into()),
            LoopPlacement::Elected => {
                let kind = objects.registry.resource("coordination.k8s.io", "v1", "leases")?;
                let lease = format!("kube-{part}");
                let lease = objects.cached(&kind, "kube-system", &lease).ok();
                let lease = lease.as_ref().map(|lease| lease.doc());
                // Tasks that are dead while this server leads renew no less.
                let lease = lease.as_ref().map(|lease| lease.view());
                stale(lease, Timestamp::now()).or_else(|| self.checks.dead(part))
            }
        }
    }

    /// Why a part that runs in this process does not work.
    fn problem_here(&self, part: &str) -> Option<String> {
        if !self.checks.has_begun(part) {
            return Some("it has not started yet".into());
        }
        self.checks.dead(part)
    }
}

#[async_trait]
impl Action for Components {
    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError> {
        let store = store_health(call.api.store.as_ref()).await.result;
        let store = store.err().map(|error| error.to_string());
        let mut all = vec![
            status(CONTROLLERS, self.problem(&call.api.objects, CONTROLLERS)),
            status("etcd-0", store),
            status(SCHEDULER, self.problem(&call.api.objects, SCHEDULER)),
        ];
        if call.verb == Verb::List {
            let list =
                json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": all});
            return Ok(Reply::Value(200, list));
        }
        all.retain(|status| status.view().metadata().name() == call.name);
        let found = all.pop();
        found
            .map(|status| Reply::Value(200, status.into_value()))
            .ok_or_else(|| ApiError::not_found(&call.kind.group, &call.kind.plural, call.name))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_cli::supervise::{RestartBackoff, Supervisor};
    use coracle_fields::Schema as _;
    use std::time::Duration;

    #[tokio::test]
    async fn a_part_whose_tasks_are_dead_or_not_started_is_unhealthy() {
        let pace = RestartBackoff { first: Duration::from_millis(1), most: 2, ..RestartBackoff::default() };
        let (supervisor, checks) = (Supervisor::with_backoff(pace), Checks::default());
        checks.add_tasks(supervisor.clone());
        let components = Components { loops: LoopPlacement::Here, checks };
        assert_eq!(components.problem_here(SCHEDULER).as_deref(), Some("it has not started yet"));
        let well = supervisor.of_part(CONTROLLERS).spawn("gc", std::future::pending::<()>);
        let bad = supervisor.of_part(SCHEDULER).spawn("scheduler", || async { panic!("never works") });
        for _ in 0..1000 {
            if !supervisor.dead().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let problem = components.problem_here(SCHEDULER);
        assert!(problem.as_ref().unwrap().contains("never works"), "{problem:?}");
        let shown = status(SCHEDULER, problem).into_value();
        assert_eq!(shown["conditions"][0]["status"], "False", "{shown}");
        assert_eq!(components.problem_here(CONTROLLERS), None);
        bad.abort();
        well.abort();
    }

    #[test]
    fn a_lease_that_nobody_renews_is_a_problem() {
        let lease = |holder: &str| {
            json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z"}})
        };
        let at = |seconds: i64| {
            "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
        };
        assert_eq!(stale(Some(Lease::of(&lease("a"))), at(10)), None);
        assert!(stale(Some(Lease::of(&lease("a"))), at(16)).unwrap().starts_with("a has not renewed"));
        assert!(stale(Some(Lease::of(&lease(""))), at(1)).is_some() && stale(None, at(1)).is_some());
    }
}
