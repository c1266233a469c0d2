//! Devices that a driver makes ready after their allocation: the pod is bound when all their binding conditions are true. Devices
//! of which a failure condition is true, or that take too long, are given back.

use super::wire::{Allocated, Claim, Condition, DeviceStatus};
use super::{ClaimDecision, Devices};
use crate::pod::PodInfo;

/// Why the devices of a claim cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum BindingError {
    #[error("device binding failed: claim={claim}, reason={reason}, message={message:?}")]
    Failed { claim: String, reason: String, message: String },
    #[error("device binding timeout")]
    TimedOut,
}

/// Whether a pod can be bound.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Readiness {
    Ready,
    Waiting,
    Failed(BindingError),
}

/// What a driver says of an allocated device.
fn status<'a>(claim: &'a Claim, device: &Allocated) -> Option<&'a DeviceStatus> {
    let is_about = |status: &&DeviceStatus| {
        (&status.driver, &status.pool, &status.device) == (&device.driver, &device.pool, &device.device)
            && status.share_id == device.share_id
    };
    claim.status.devices.iter().find(is_about)
}

fn is_true<'a>(status: &'a DeviceStatus, condition: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|one| one.type_ == condition && one.status == "True")
}

/// Whether the devices of a claim are ready.
fn readiness(claim: &Claim) -> Readiness {
    let Some(allocation) = &claim.status.allocation else { return Readiness::Waiting };
    for device in allocation.devices.results.iter().filter(|device| !device.binding_conditions.is_empty()) {
        let Some(status) = status(claim, device) else { return Readiness::Waiting };
        let mut failures = device.binding_failure_conditions.iter();
        if let Some(failure) = failures.find_map(|condition| is_true(status, condition)) {
            return Readiness::Failed(BindingError::Failed {
                claim: claim.metadata.name.clone(),
                reason: failure.reason.clone(),
                message: failure.message.clone(),
            });
        }
        if device.binding_conditions.iter().any(|condition| is_true(status, condition).is_none()) {
            return Readiness::Waiting;
        }
    }
    Readiness::Ready
}

impl Devices {
    /// Whether all devices of a pod's claims are ready for it.
    pub fn readiness(&self, pod: &PodInfo) -> Readiness {
        // What was written is not shown yet.
        if self.pending.values().any(|pending| pending.pod == pod.key) {
            return Readiness::Waiting;
        }
        // A claim that is gone is an error of the next attempt.
        let Ok(claims) = self.claims_of(pod) else { return Readiness::Ready };
        let mut all = claims.into_iter().map(readiness).filter(|one| *one != Readiness::Ready);
        let first = all.next().unwrap_or(Readiness::Ready);
        all.find(|one| matches!(one, Readiness::Failed(_))).unwrap_or(first)
    }

    /// Whether a pod has to wait for devices when these decisions are written.
    pub fn must_wait(&self, pod: &PodInfo, decisions: &[ClaimDecision]) -> bool {
        let is_open =
            |claim: &&Claim| claim.status.allocation.is_some() && readiness(claim) != Readiness::Ready;
        decisions.iter().any(|decision| decision.has_conditions)
            || self.claims_of(pod).is_ok_and(|claims| claims.iter().any(is_open))
    }

    /// The devices of the pod's claims took too long: they are not used, and can be given back.
    pub fn time_out(&mut self, pod: &PodInfo) {
        let Ok(claims) = self.claims_of(pod) else { return };
        let late = claims.into_iter().filter(|claim| readiness(claim) == Readiness::Waiting);
        let late: Vec<String> = late.map(Claim::key).collect();
        self.timed_out.extend(late);
        self.version += 1;
    }

    /// Whether the devices of a claim have failed, or took too long and are not ready yet.
    pub(super) fn is_unusable(&self, claim: &Claim) -> bool {
        match readiness(claim) {
            Readiness::Ready => false,
            Readiness::Waiting => self.timed_out.contains(&claim.key()),
            Readiness::Failed(_) => true,
        }
    }
}
