//! From a decision to the binding: counts the pod at its node, has its claims bound, and writes the node into the pod.

use super::{Awaiting, Bound, Done, Runner, Written};
use crate::devices::ClaimDecision;
use crate::metrics::{Point, Status};
use crate::pod::{PodInfo, PodKey};
use crate::queue::{Event, Millis};
use crate::rules::Rules;
use crate::volumes::Decision;
use crate::writes::{Placed, Writes};
use coracle_trace::{Stage, within};
use std::sync::Arc;
use std::time::Instant;

impl Runner {
    /// Counts the pod at its node and begins to bind it.
    pub(super) fn settle(&mut self, pod: &Arc<PodInfo>, id: usize) {
        let begun = Instant::now();
        let snapshot = &mut self.state.placer.snapshot;
        let Some(node) = snapshot.node(id) else { return };
        let name = node.name.clone();
        let volumes = snapshot.volumes.decide(pod, node).unwrap_or_default();
        let devices = snapshot.devices.decide(pod, node).unwrap_or_default();
        snapshot.volumes.forget_refusals(pod);
        snapshot.devices.assume(pod, &devices);
        snapshot.assume(pod, id);
        snapshot.nominate(pod, "");
        let now = self.now();
        self.state.queue.on_event(Event::Placed(pod), &self.state.placer.snapshot, now);
        let reserved = Instant::now();
        self.metrics.ran(&pod.scheduler, Point::Reserve, Status::Success, reserved - begun);
        if volumes.is_empty() && devices.is_empty() {
            self.bind(pod.clone(), name);
        } else {
            let attempt = self.attempt(&pod.key);
            attempt.part(Stage::Reserve, (begun, reserved), &name);
            let (since, begun) = (now, reserved);
            let awaiting = Awaiting { pod: pod.clone(), node: name.clone(), since, begun, is_writing: true };
            self.awaiting.insert(pod.key.clone(), awaiting);
            let (writes, pod) = (self.writes.clone(), pod.clone());
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

    /// Binds pods whose claims have their volumes by now.
    pub(super) fn settle_claims(&mut self) {
        let now = self.now();
        let volumes = &self.state.placer.snapshot.volumes;
        let ready = |a: &Awaiting| {
            let is_settled = volumes.ready(&a.pod) || volumes.refused(&a.pod).is_some();
            !a.is_writing && (is_settled || now > a.since.saturating_add(patience(&a.pod)))
        };
        let keys: Vec<PodKey> =
            self.awaiting.iter().filter(|(_, a)| ready(a)).map(|(k, _)| k.clone()).collect();
        for key in keys {
            let Some(Awaiting { pod, node, begun, .. }) = self.awaiting.remove(&key) else { continue };
            let (attempt, times) = (self.attempt(&key), (begun, Instant::now()));
            if self.state.placer.snapshot.volumes.ready(&pod) {
                attempt.part(Stage::VolumeBinding, times, &node);
                self.bind(pod, node);
            } else {
                let refused = self.state.placer.snapshot.volumes.refused(&pod);
                let why = match refused {
                    Some(claim) => {
                        format!("binding volumes: selectedNode annotation reset for PVC {claim:?}")
                    }
                    None => "binding volumes: context deadline exceeded".to_owned(),
                };
                attempt.failed_part(Stage::VolumeBinding, times, &node);
                attempt.end(Some(&why));
                self.undo_binding(&pod, &why);
            }
        }
    }
}

/// How long the claims of a pod may take to get their volumes.
fn patience(pod: &PodInfo) -> Millis {
    let rules = pod.rules.as_deref();
    let patience = rules.map_or_else(|| Rules::default().volume_patience, |rules| rules.volume_patience);
    u64::try_from(patience.as_millis()).unwrap_or(u64::MAX)
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
            Ok(revision) => written.devices.push((decision.claim.clone(), revision)),
            Err(error) => return Written { result: Err(error), ..written },
        }
    }
    written
}
