//! Stops one container: preStop hook, its turn among the containers of its pod, stop signal, grace period, kill.

use coracle_cli::causes;
use coracle_trace::{Stage, tracked};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

use super::hooks::{self, HookError};
use crate::events::{Kind, Recorder};
use crate::pod::plan::{Cause, Kill};
use crate::pod::spec;
use coracle_engine::runtime::Runtime;

/// Minimum time to stop, also after a preStop hook or other containers used up the grace period.
const MIN_GRACE: Duration = Duration::from_secs(2);
/// `Instant` cannot represent every grace period that users may write.
const MAX_GRACE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Grace period of a container, by the cause of the stop.
pub fn grace(pod: &Pod, kill: &Kill, pod_grace: Duration) -> Duration {
    if kill.cause == Cause::RestartAll {
        return Duration::ZERO;
    }
    let spec = spec::spec(pod);
    let container = spec::container(&spec, &kill.name).map(|(_, container)| container.into_owned());
    let probe = container.and_then(|container| match kill.cause {
        Cause::Liveness => container.liveness_probe,
        Cause::Startup => container.startup_probe,
        _ => None,
    });
    let own = probe
        .and_then(|probe| probe.termination_grace_period_seconds)
        .and_then(|seconds| u64::try_from(seconds).ok());
    own.map_or(pod_grace, Duration::from_secs)
}

/// When a container of a terminating pod gets its stop signal: after these have ended.
pub struct Turn {
    /// Names of the containers that are alive.
    alive: watch::Receiver<BTreeSet<String>>,
    after: BTreeSet<String>,
}

impl Turn {
    /// After the containers of `after`, as far as they are alive.
    pub fn after(alive: watch::Receiver<BTreeSet<String>>, after: BTreeSet<String>) -> Self {
        Turn { alive, after }
    }

    /// It need not wait.
    pub fn now() -> Self {
        Turn { alive: watch::channel(BTreeSet::new()).1, after: BTreeSet::new() }
    }

    async fn wait(mut self) {
        // The sender is gone when nothing is stopped in order any more.
        let _ = self.alive.wait_for(|alive| alive.is_disjoint(&self.after)).await;
    }
}

/// Runs the preStop hook and waits for the container's turn, both within the grace period; returns what is left of it.
async fn before_stop(grace: Duration, hook: impl Future<Output = ()>, turn: Turn) -> Duration {
    let deadline = Instant::now() + grace.min(MAX_GRACE);
    hook.await;
    let _ = tokio::time::timeout_at(deadline, turn.wait()).await;
    deadline.saturating_duration_since(Instant::now()).max(MIN_GRACE)
}

/// Stops a container; returns when it is stopped or could not be.
pub async fn stop(
    runtime: &dyn Runtime,
    events: &Recorder,
    pod: &Pod,
    kill: Kill,
    grace: Duration,
    ip: String,
    turn: Turn,
) {
    events.container(pod, &kill.name, Kind::Normal, "Killing", kill.message.clone());
    let spec = spec::spec(pod);
    let container = spec::container(&spec, &kill.name).map(|(_, container)| container.into_owned());
    let hook = container.as_ref().and_then(|c| c.lifecycle.as_ref()).and_then(|l| l.pre_stop.as_ref());
    let hook = async {
        let (Some(hook), Some(container), false) = (hook, &container, grace.is_zero()) else { return };
        let run = hooks::run(runtime, hook, container, &kill.id, &ip);
        let run = async { tokio::time::timeout(grace, run).await.unwrap_or(Err(HookError::GracePeriod)) };
        if let Err(error) = tracked(Stage::PreStop, &kill.name, run).await {
            tracing::info!(uid = spec::uid(pod), container = kill.name, error = %causes::chain(&error), "preStop hook failed");
            let text = error.event("PreStopHook");
            events.container(pod, &kill.name, Kind::Warning, "FailedPreStopHook", text);
        }
    };
    let left = before_stop(grace, hook, turn).await;
    let label = format!("{}\n{} s", kill.name, left.as_secs());
    if let Err(error) = tracked(Stage::Stop, &label, runtime.stop_container(&kill.id, left)).await {
        tracing::warn!(uid = spec::uid(pod), container = kill.name, id = kill.id, error = %causes::chain(&error), "container not stopped, will retry");
        let text = format!("error killing pod: failed to \"KillContainer\" for {:?}: {error}", kill.name);
        events.pod(pod, Kind::Warning, "FailedKillPod", text);
        // Delays the retry if the runtime fails immediately.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_sidecar_whose_grace_was_used_up_still_has_two_seconds() {
        let grace = Duration::from_secs(30);
        for (main_ends, hook, waits, left) in [
            (5, 0, 5, 25),
            (60, 0, 30, 2),
            // Its hook runs at once, while the main container stops.
            (5, 10, 10, 20),
            (20, 10, 20, 10),
            (0, 30, 30, 2),
        ] {
            let (alive, changes) = watch::channel(names(&["main", "sidecar"]));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(main_ends)).await;
                alive.send_replace(names(&["sidecar"]));
                std::future::pending::<()>().await;
            });
            let began = Instant::now();
            let hook = tokio::time::sleep(Duration::from_secs(hook));
            let got = before_stop(grace, hook, Turn::after(changes, names(&["main"]))).await;
            let seconds = |duration: Duration| duration.as_secs_f64().round();
            let want = (f64::from(waits), f64::from(left));
            assert_eq!((seconds(began.elapsed()), seconds(got)), want, "main ends after {main_ends} s");
        }
        assert_eq!(before_stop(Duration::ZERO, async {}, Turn::now()).await, MIN_GRACE);
    }
}
