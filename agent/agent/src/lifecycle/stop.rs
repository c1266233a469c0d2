//! Stops one container: preStop hook, stop signal, grace period, kill.

use coracle_cli::causes;
use coracle_trace::{Stage, tracked};
use k8s_openapi::api::core::v1::Pod;
use std::time::{Duration, Instant};

use super::hooks::{self, HookError};
use crate::events::{Kind, Recorder};
use crate::pod::plan::{Cause, Kill};
use crate::pod::spec;
use coracle_engine::runtime::Runtime;

/// Minimum time to stop after a preStop hook used up the grace period.
const MIN_GRACE: Duration = Duration::from_secs(2);

/// Grace period of a container, by the cause of the stop.
pub fn grace(pod: &Pod, kill: &Kill, pod_grace: Duration) -> Duration {
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

/// Stops a container; returns when it is stopped or could not be.
pub async fn stop(
    runtime: &dyn Runtime,
    events: &Recorder,
    pod: &Pod,
    kill: Kill,
    grace: Duration,
    ip: String,
) {
    events.container(pod, &kill.name, Kind::Normal, "Killing", kill.message.clone());
    let began = Instant::now();
    let spec = spec::spec(pod);
    let container = spec::container(&spec, &kill.name).map(|(_, container)| container.into_owned());
    let hook = container.as_ref().and_then(|c| c.lifecycle.as_ref()).and_then(|l| l.pre_stop.as_ref());
    if let (Some(hook), Some(container)) = (hook, &container)
        && !grace.is_zero()
    {
        let run = hooks::run(runtime, hook, container, &kill.id, &ip);
        let run = async { tokio::time::timeout(grace, run).await.unwrap_or(Err(HookError::GracePeriod)) };
        if let Err(error) = tracked(Stage::PreStop, &kill.name, run).await {
            tracing::info!(uid = spec::uid(pod), container = kill.name, error = %causes::chain(&error), "preStop hook failed");
            events.container(pod, &kill.name, Kind::Warning, "FailedPreStopHook", "PreStopHook failed");
        }
    }
    let left = grace.saturating_sub(began.elapsed()).max(MIN_GRACE.min(grace));
    let label = format!("{}\n{} s", kill.name, left.as_secs());
    if let Err(error) = tracked(Stage::Stop, &label, runtime.stop_container(&kill.id, left)).await {
        tracing::warn!(uid = spec::uid(pod), container = kill.name, id = kill.id, error = %causes::chain(&error), "container not stopped, will retry");
        let text = format!("error killing pod: failed to \"KillContainer\" for {:?}: {error}", kill.name);
        events.pod(pod, Kind::Warning, "FailedKillPod", text);
        // Delays the retry if the runtime fails immediately.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
