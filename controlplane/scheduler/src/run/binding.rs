//! From a decision to the binding: counts the pod at its node, has its claims bound, and writes the node into the pod.

use super::{Awaiting, Bound, Done, Runner, Written};
use crate::devices::{BindingError, ClaimDecision, Readiness};
use crate::metrics::{Point, Status};
use crate::pod::PodInfo;
use crate::queue::{Event, Millis};
use crate::rules::Rules;
use crate::volumes::Decision;
use crate::writes::{Placed, Writes};
use coracle_trace::{Stage, within};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Runner {
    /// Counts the pod at its node and begins to bind it.
    pub(super) fn settle(&mut self, pod: &Arc<PodInfo>, id: usize) {
        let begun = Instant::now();
        let snapshot = &mut self.state.placer.snapshot;
        let Some(node) = snapshot.node(id) else { return };
        let name = node.name.clone();
        let volumes = snapshot.volumes.decide(pod, node).unwrap_or_default();
        let devices = snapshot.devices.decide(pod, node).unwrap_or_default();
        let waits_for_devices = snapshot.devices.must_wait(pod, &devices);
        snapshot.volumes.forget_refusals(pod);
        snapshot.devices.assume(pod, &devices);
        snapshot.assume(pod, id);
        snapshot.nominate(pod, "");
        let now = self.now();
        self.state.queue.on_event(Event::Placed(pod), &self.state.placer.snapshot, now);
        let reserved = Instant::now();
        self.metrics.ran(&pod.scheduler, Point::Reserve, Status::Success, reserved - begun);
        if volumes.is_empty() && devices.is_empty() && !waits_for_devices {
            self.bind(pod.clone(), name);
        } else {
            let attempt = self.attempt(&pod.key);
            attempt.part(Stage::Reserve, (begun, reserved), &name);
            let (since, begun) = (now, reserved);
            let (pod, node) = (pod.clone(), name.clone());
            let awaiting = Awaiting { pod, node, since, begun, is_writing: true, waits_for_devices };
            let pod = awaiting.pod.clone();
            self.awaiting.insert(pod.key.clone(), awaiting);
            let writes = self.writes.clone();
            if waits_for_devices {
                writes.devices_pending(&pod, &name);
            }
            self.under_way.spawn(async move {
                let claims = decide_claims(&writes, &pod, &name, (&volumes, &devices));
                let written = within(attempt.scope(), claims).await;
                Done::Decided(pod, written)
            });
        }
    }

    fn bind(&mut self, pod: Arc<PodInfo>, node: String) {
        let attempt = self.attempt(&pod.key);
        self.decided.push(Placed { pod, node, attempt, shown: attempt.show() });
    }

    /// Begins to bind what was decided on.
    pub(super) fn write_bindings(&mut self) {
        if self.decided.is_empty() {
            return;
        }
        let mut placed = std::mem::take(&mut self.decided);
        // A report that is being written says that the pod has no node: it must not be the last word.
        self.decided = placed.extract_if(.., |placed| self.reports.has(&placed.pod.key)).collect();
        self.bind_by_extenders(&mut placed);
        if placed.is_empty() {
            return;
        }
        let writes = self.writes.clone();
        self.bindings.spawn(async move {
            let begun = Instant::now();
            let answers = writes.bind(&placed).await;
            let done = Instant::now();
            for (placed, answer) in placed.iter().zip(&answers) {
                placed.record(answer, (begun, done));
            }
            let pods = placed.into_iter().map(|placed| placed.pod).zip(answers).collect();
            Bound { pods, took: done - begun }
        });
    }

    /// Binds pods whose claims have their volumes by now, and whose devices are ready.
    pub(super) fn settle_claims(&mut self) {
        let now = self.now();
        let settled = self.awaiting.iter().filter_map(|(key, a)| Some((key.clone(), self.settled(a, now)?)));
        for (key, result) in settled.collect::<Vec<_>>() {
            let Some(Awaiting { pod, node, begun, .. }) = self.awaiting.remove(&key) else { continue };
            let (attempt, times) = (self.attempt(&key), (begun, Instant::now()));
            let Err(error) = result else {
                attempt.part(Stage::VolumeBinding, times, &node);
                self.bind(pod, node);
                continue;
            };
            if error == Unsettled::Devices(BindingError::TimedOut) {
                self.state.placer.snapshot.devices.time_out(&pod);
            }
            let why = error.to_string();
            attempt.failed_part(Stage::VolumeBinding, times, &node);
            attempt.end(Some(&why));
            self.undo_binding(&pod, &why);
        }
    }

    /// Whether a pod that waits for its claims can be bound, or never will be; nothing while that is open.
    fn settled(&self, awaiting: &Awaiting, now: Millis) -> Option<Result<(), Unsettled>> {
        if awaiting.is_writing {
            return None;
        }
        let (pod, snapshot) = (&awaiting.pod, &self.state.placer.snapshot);
        let is_late = |patience: Duration| {
            let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
            now > awaiting.since.saturating_add(patience)
        };
        let patience =
            |of: fn(&Rules) -> Duration| pod.rules.as_deref().map_or_else(|| of(&Rules::default()), of);
        if !snapshot.volumes.ready(pod) {
            let refused = snapshot.volumes.refused(pod).map(|claim| Unsettled::Refused(claim.to_string()));
            let late = || is_late(patience(|rules| rules.volume_patience)).then_some(Unsettled::Volumes);
            return refused.or_else(late).map(Err);
        }
        match awaiting.waits_for_devices.then(|| snapshot.devices.readiness(pod)) {
            None | Some(Readiness::Ready) => Some(Ok(())),
            Some(Readiness::Failed(error)) => Some(Err(Unsettled::Devices(error))),
            Some(Readiness::Waiting) => is_late(patience(|rules| rules.device_patience))
                .then_some(Err(Unsettled::Devices(BindingError::TimedOut))),
        }
    }
}

/// Why a pod is not bound to the node that was chosen for it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Unsettled {
    #[error("binding volumes: selectedNode annotation reset for PVC {0:?}")]
    Refused(String),
    #[error("binding volumes: context deadline exceeded")]
    Volumes,
    #[error(transparent)]
    Devices(BindingError),
}

/// Writes what was decided about a pod's claims, up to the first error.
async fn decide_claims(
    writes: &Writes,
    pod: &PodInfo,
    node: &str,
    (volumes, devices): (&[Decision], &[ClaimDecision]),
) -> Written {
    let mut written = Written { devices: Vec::new(), result: Ok(()) };
    for decision in volumes {
        if let Err(error) = writes.decide(pod, node, decision).await {
            return Written { result: Err(error), ..written };
        }
    }
    for decision in devices {
        match writes.reserve(pod, decision).await {
            Ok(reserved) => written.devices.push((decision.claim.clone(), reserved)),
            Err(error) => return Written { result: Err(error), ..written },
        }
    }
    written
}
