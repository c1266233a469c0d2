//! Pods that extenders are asked about. The loop goes on meanwhile; what they say is applied to the cluster as it is then.

use super::reports::{Report, Why};
use super::{Bound, Runner};
use crate::diagnosis::Diagnosis;
use crate::extender::{self, Candidate, Extender, ExtenderError, Verdict, Victim, Victims};
use crate::metrics::AttemptResult;
use crate::pod::PodInfo;
use crate::preempt::{self, Budget, Plan};
use crate::queue::Millis;
use crate::snapshot::NodeId;
use crate::writes::Placed;
use coracle_cli::causes;
use coracle_proto::status::ApiError;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinError;

/// What extenders were asked about a pod, and what they said.
pub(super) enum Consulted {
    /// Its node. The version of the snapshot is that of the question.
    Nodes(Arc<PodInfo>, u64, Result<Verdict, ExtenderError>),
    /// The pods that may be removed for it.
    Preemption(Preempting, Result<Victims, ExtenderError>),
    /// To bind it.
    Bound(Bound),
}

/// A preemption that extenders have a say in.
pub(super) struct Preempting {
    pod: Arc<PodInfo>,
    /// The summary of why the pod has no node.
    message: String,
    plans: Vec<Plan>,
}

impl Runner {
    /// Asks extenders about the nodes on which a pod can run.
    pub(super) fn consult(&mut self, pod: &Arc<PodInfo>, extenders: Vec<Arc<Extender>>, now: Millis) {
        let begun = Instant::now();
        let possible = match self.state.placer.feasible(pod) {
            Ok(possible) => possible,
            Err(why) => {
                self.metrics.attempted(&pod.scheduler, AttemptResult::Unschedulable, begun.elapsed());
                return self.mark_unschedulable(pod, why, now);
            }
        };
        let snapshot = &self.state.placer.snapshot;
        let candidate = |id: &NodeId| {
            let name = snapshot.node(*id)?.name.clone();
            Some(Candidate { object: self.writes.node(&name)?, name })
        };
        let nodes: Vec<Candidate> = possible.iter().filter_map(candidate).collect();
        let Some(object) = self.writes.pod(pod) else {
            // It is gone, which the next turn sees.
            return self.state.queue.retry(&pod.key, now);
        };
        let (pod, version) = (pod.clone(), self.state.placer.snapshot.version());
        self.consulting.spawn(async move {
            let verdict = extender::consult(&extenders, &object, nodes).await;
            Consulted::Nodes(pod, version, verdict)
        });
    }

    /// Extenders have answered.
    pub(super) fn consulted(&mut self, answer: Result<Consulted, JoinError>) {
        match answer {
            Ok(Consulted::Nodes(asked, version, verdict)) => self.place_by(&asked, version, verdict),
            Ok(Consulted::Preemption(asked, victims)) => self.preempt_by(asked, victims),
            Ok(Consulted::Bound(bound)) => self.bound(Ok(bound)),
            Err(error) => {
                // Whose answer it was is not known: all pods are read again.
                tracing::error!(error = %causes::chain(&error), "question to extenders failed");
                self.broken = true;
            }
        }
    }

    fn place_by(&mut self, asked: &PodInfo, version: u64, verdict: Result<Verdict, ExtenderError>) {
        // It may have been deleted, or bound by another scheduler, and another one of its name may be there.
        let current = self.state.queue.get(&asked.key).filter(|pod| pod.uid == asked.uid);
        let Some(pod) = current.cloned() else { return };
        let (now, latest) = (self.now(), self.tries.get(&pod.key).map(|tries| tries.latest));
        let took = latest.map(|latest| latest.elapsed()).unwrap_or_default();
        let Verdict { nodes, refused } = match verdict {
            Ok(verdict) => verdict,
            Err(error) => {
                self.metrics.attempted(&pod.scheduler, AttemptResult::Error, took);
                return self.fail(pod, &causes::chain(&error), now);
            }
        };
        self.metrics.decided(took);
        if nodes.is_empty() {
            let mut why = self.state.placer.diagnose(&pod);
            why.rejections.extend(refused);
            why.rejections.sort_by(|(a, _), (b, _)| a.cmp(b));
            why.rejections.dedup_by(|(a, _), (b, _)| a == b);
            self.metrics.attempted(&pod.scheduler, AttemptResult::Unschedulable, took);
            let is_changed = pod.class != asked.class || pod.labels != asked.labels;
            let is_outdated = is_changed || self.state.placer.snapshot.version() != version;
            self.mark_unschedulable(&pod, Arc::new(why), now);
            // Events while extenders were asked have not moved it, nor has its own change: it was not unschedulable yet.
            if is_outdated {
                self.state.queue.retry(&pod.key, now);
            }
            return;
        }
        let snapshot = &self.state.placer.snapshot;
        let given = nodes.iter().filter_map(|(name, score)| Some((snapshot.node_named(name)?, *score)));
        let given: Vec<(NodeId, i64)> = given.collect();
        let chosen = self.state.placer.place_among(&pod, &given);
        self.record_choice(&pod, chosen);
        match chosen {
            Some(id) => self.settle(&pod, id),
            None => {
                // Others took the room while extenders were asked.
                self.metrics.attempted(&pod.scheduler, AttemptResult::Error, took);
                self.fail(pod, "the nodes that extenders left were taken by other pods", now);
            }
        }
    }

    /// An attempt failed, not because of the nodes: the pod says so and is retried with backoff.
    fn fail(&mut self, pod: Arc<PodInfo>, message: &str, now: Millis) {
        tracing::warn!(pod = %pod.key, why = message, "cannot schedule pod, will retry");
        self.state.queue.retry(&pod.key, now);
        let attempt = self.attempt(&pod.key);
        let why = (Arc::new(Diagnosis::default()), message.to_owned());
        let before = self.pending.0.write().insert(pod.key.clone(), why);
        if before.is_some_and(|(_, before)| before == message) {
            return attempt.end(Some(message));
        }
        self.tell(Report { pod, message: message.to_owned(), why: Why::Error, attempt });
    }

    /// Asks extenders about the preemptions that would help a pod. Whether there are such extenders and preemptions.
    pub(super) fn consult_preemption(
        &mut self,
        pod: &Arc<PodInfo>,
        why: &Arc<Diagnosis>,
        budgets: &[Budget],
        now: Millis,
    ) -> bool {
        let extenders = self.extenders.preemptors(pod);
        if extenders.is_empty() {
            return false;
        }
        let (Ok(plans), Some(object)) =
            (self.state.placer.preemptions(pod, why, budgets), self.writes.pod(pod))
        else {
            return false;
        };
        let message = why.message("");
        self.pending.0.write().insert(pod.key.clone(), (why.clone(), message.clone()));
        self.record_failure(pod, why, &message, true);
        self.state.queue.mark_unschedulable(&pod.key, why.clone(), message.clone(), now);
        self.preempting.insert(pod.key.clone());
        let victims = self.victims(&plans);
        let asked = Preempting { pod: pod.clone(), message, plans };
        self.consulting.spawn(async move {
            let left = extender::consult_preemption(&extenders, &object, victims).await;
            Consulted::Preemption(asked, left)
        });
        true
    }

    fn victims(&self, plans: &[Plan]) -> Victims {
        let entry = |plan: &Plan| {
            let node = self.state.placer.snapshot.node(plan.node)?.name.clone();
            let victim = |pod: &Arc<PodInfo>| Victim { uid: pod.uid.clone(), object: self.writes.pod(pod) };
            Some((node, (plan.victims.iter().map(victim).collect(), plan.violations)))
        };
        plans.iter().filter_map(entry).collect()
    }

    fn preempt_by(&mut self, asked: Preempting, victims: Result<Victims, ExtenderError>) {
        let Preempting { pod, message, plans } = asked;
        self.preempting.remove(&pod.key);
        let waits = self.state.queue.get(&pod.key).is_some_and(|current| current.uid == pod.uid);
        if !waits {
            return;
        }
        let left = match victims {
            Ok(left) => left,
            Err(error) => {
                let why = causes::chain(&error);
                tracing::warn!(pod = %pod.key, why, "no preemption: an extender failed");
                return self.report(pod, format!("{message} preemption: {why}"), None, Vec::new());
            }
        };
        let snapshot = &self.state.placer.snapshot;
        let allowed = plans.into_iter().filter_map(|mut plan| {
            let (pods, violations) = left.get(&snapshot.node(plan.node)?.name)?;
            plan.victims.retain(|victim| pods.iter().any(|pod| pod.uid == victim.uid));
            plan.violations = *violations;
            Some(plan)
        });
        let plan = preempt::cheapest(allowed.collect());
        self.metrics.preempted(plan.as_ref().map(|plan| plan.victims.len()));
        match plan {
            Some(plan) => self.start_preemption(&pod, plan, message),
            None => {
                let message = format!("{message} preemption: extenders allow none");
                self.report(pod, message, None, Vec::new());
            }
        }
    }

    /// Has extenders bind those pods that they bind, and takes them out of the list.
    pub(super) fn bind_by_extenders(&mut self, placed: &mut Vec<Placed>) {
        let extenders = &self.extenders;
        for placed in placed.extract_if(.., |placed| extenders.binder(&placed.pod).is_some()) {
            let Some(extender) = self.extenders.binder(&placed.pod) else { continue };
            let writes = self.writes.clone();
            self.consulting.spawn(async move {
                let begun = Instant::now();
                let answer = extender.bind(&placed.pod, &placed.node).await;
                let answer = answer.map_err(|error| ApiError::internal(causes::chain(&error)));
                let done = Instant::now();
                placed.record(&answer, (begun, done));
                if answer.is_ok() {
                    writes.note_bound(&placed.pod, &placed.node);
                }
                Consulted::Bound(Bound { pods: vec![(placed.pod, answer)], took: done - begun })
            });
        }
    }
}
