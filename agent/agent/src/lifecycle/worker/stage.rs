//! Stages of a pod: Pending → (Preempting →) Running → Ending, never backwards.

use std::sync::Arc;
use std::time::Instant;

use crate::pod::observed::Observed;
use crate::volume::prepare::Prepared;

/// Where a pod is in its life.
#[derive(Debug)]
pub(super) enum Stage {
    /// Not admitted yet.
    Pending,
    /// Admitted: waits until the pods that make room for it have ended.
    Preempting,
    /// Admitted: reconciled with its spec.
    Running(Volumes),
    /// Being stopped, or stopped; final.
    Ending(Termination),
}

/// Volumes of a running pod.
#[derive(Debug)]
pub(super) enum Volumes {
    /// No attempt has ended yet.
    Unprepared,
    /// At least one attempt failed: the sandbox waits for the next one.
    Failed,
    /// They can be mounted.
    Ready { prepared: Arc<Prepared>, refresh: Refresh },
}

/// The task that refreshes volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refresh {
    Idle,
    Running,
    /// Running, and needed once more afterwards.
    RunningAgain,
}

/// How a pod ends.
#[derive(Debug)]
pub(super) struct Termination {
    /// Why the node ended it; `None` for a pod that was deleted or has completed.
    pub(super) reason: Option<EndReason>,
    pub(super) step: Step,
}

/// Reason and message on the status of a pod that the node ended.
#[derive(Debug)]
pub(super) struct EndReason {
    pub(super) reason: String,
    pub(super) message: String,
    /// Message of the condition `DisruptionTarget`, if the node ended it for its own sake.
    pub(super) disruption: Option<String>,
}

/// Steps of a termination, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Containers have until then to stop.
    Stopping(Instant),
    /// Nothing is running.
    Stopped,
    /// Volumes and resources of the node are released; logs and exited containers are left.
    Released,
    /// Nothing is left on the node; the deletion of the API object was requested.
    Removed,
}

impl Stage {
    pub(super) fn is_ending(&self) -> bool {
        matches!(self, Stage::Ending(_))
    }

    /// The step of the termination; `None` before it.
    pub(super) fn step(&self) -> Option<Step> {
        match self {
            Stage::Ending(termination) => Some(termination.step),
            Stage::Pending | Stage::Preempting | Stage::Running(_) => None,
        }
    }

    /// Goes on to a step of the termination that has begun.
    pub(super) fn advance(&mut self, step: Step) {
        if let Stage::Ending(termination) = self {
            termination.step = step;
        }
    }

    /// Reason and message of a pod that the node ended.
    pub(super) fn failure(&self) -> Option<(&str, &str)> {
        self.end_reason().map(|end| (end.reason.as_str(), end.message.as_str()))
    }

    /// Message of the disruption of a pod that the node ended for its own sake.
    pub(super) fn disruption(&self) -> Option<&str> {
        self.end_reason()?.disruption.as_deref()
    }

    fn end_reason(&self) -> Option<&EndReason> {
        match self {
            Stage::Ending(termination) => termination.reason.as_ref(),
            Stage::Pending | Stage::Preempting | Stage::Running(_) => None,
        }
    }

    /// The volumes of a running pod.
    pub(super) fn volumes(&self) -> Option<&Volumes> {
        match self {
            Stage::Running(volumes) => Some(volumes),
            Stage::Pending | Stage::Preempting | Stage::Ending(_) => None,
        }
    }

    /// The volumes, once they are ready.
    pub(super) fn prepared(&self) -> Option<&Arc<Prepared>> {
        match self {
            Stage::Running(Volumes::Ready { prepared, .. }) => Some(prepared),
            _ => None,
        }
    }
}

impl Volumes {
    /// Whether containers use the volumes although this worker has not prepared them: an earlier agent or worker has.
    /// They are renewed only once this one has, too.
    pub(super) fn are_to_be_adopted(&self, observed: &Observed) -> bool {
        !matches!(self, Volumes::Ready { .. }) && observed.is_any_running()
    }

    /// Takes over what a job did to the volumes.
    pub(super) fn record(&mut self, made: Option<Arc<Prepared>>, failed: bool) {
        if let Some(prepared) = made {
            let refresh = match self {
                Volumes::Ready { refresh, .. } => *refresh,
                Volumes::Unprepared | Volumes::Failed => Refresh::Idle,
            };
            *self = Volumes::Ready { prepared, refresh };
        } else if failed && matches!(self, Volumes::Unprepared) {
            *self = Volumes::Failed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::observed::instance;
    use coracle_proto::cri;

    #[test]
    fn a_job_does_not_end_a_refresh_and_its_failure_does_not_take_volumes_away() {
        let mut volumes = Volumes::Unprepared;
        volumes.record(None, false);
        assert!(matches!(volumes, Volumes::Unprepared));
        volumes.record(None, true);
        assert!(matches!(volumes, Volumes::Failed));
        volumes.record(Some(Arc::default()), false);
        assert!(matches!(volumes, Volumes::Ready { refresh: Refresh::Idle, .. }));
        volumes = Volumes::Ready { prepared: Arc::default(), refresh: Refresh::RunningAgain };
        volumes.record(Some(Arc::default()), false);
        assert!(matches!(volumes, Volumes::Ready { refresh: Refresh::RunningAgain, .. }));
        volumes.record(None, true);
        assert!(matches!(volumes, Volumes::Ready { .. }));
    }

    #[test]
    fn volumes_of_running_containers_are_adopted_once() {
        let with = |state| {
            let status = cri::ContainerStatus { state, ..cri::ContainerStatus::default() };
            Observed { instances: vec![instance(status, "s".to_owned())], ..Observed::default() }
        };
        let running = with(cri::ContainerState::ContainerRunning.into());
        let exited = with(cri::ContainerState::ContainerExited.into());
        for volumes in [Volumes::Unprepared, Volumes::Failed] {
            assert!(volumes.are_to_be_adopted(&running), "{volumes:?}");
            assert!(!volumes.are_to_be_adopted(&exited), "{volumes:?}: the next start prepares them");
        }
        let ready = Volumes::Ready { prepared: Arc::default(), refresh: Refresh::Idle };
        assert!(!ready.are_to_be_adopted(&running));
    }

    #[test]
    fn only_a_termination_has_steps() {
        let mut stage = Stage::Running(Volumes::Unprepared);
        stage.advance(Step::Released);
        assert_eq!((stage.step(), stage.is_ending(), stage.failure()), (None, false, None));
        let reason = EndReason { reason: "Evicted".to_owned(), message: "disk".to_owned(), disruption: None };
        stage = Stage::Ending(Termination { reason: Some(reason), step: Step::Stopped });
        stage.advance(Step::Released);
        assert_eq!(stage.step(), Some(Step::Released));
        assert_eq!((stage.failure(), stage.disruption()), (Some(("Evicted", "disk")), None));
    }
}
