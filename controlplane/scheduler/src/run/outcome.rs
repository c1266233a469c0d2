//! What becomes of a decision: the pod has its node, or says why not, or others make room for it.

use super::{Bound, Done, Runner};
use crate::pod::PodInfo;
use crate::preempt::Plan;
use crate::queue::{Event, Millis};
use crate::scheduling::Ended;
use crate::why::Diagnosis;
use std::sync::Arc;
use tokio::task::JoinError;

impl Runner {
    /// The pod waits: tells why, and makes room if that helps.
    pub(super) fn refuse(&mut self, pod: &Arc<PodInfo>, why: Arc<Diagnosis>, now: Millis) {
        let budgets: Vec<_> = self.state.budgets.values().cloned().collect();
        let plan = if self.clearing.contains(&pod.key) {
            Err("waiting for the preemption for this pod to be finished".into())
        } else {
            let plan = self.state.placer.make_room(pod, &why, &budgets);
            self.counted.preempted(plan.as_ref().ok().map(|plan| plan.victims.len()));
            plan
        };
        let no_room = plan.as_ref().err().cloned().unwrap_or_default();
        let message = why.message(if why.nodes == 0 { "" } else { &no_room });
        self.verdicts.0.write().insert(pod.key.clone(), (why.clone(), message.clone()));
        let news = self.state.queue.stuck(&pod.key, why, message.clone(), now);
        match plan {
            Ok(plan) => self.clear(pod, plan, message),
            Err(_) if news && !self.clearing.contains(&pod.key) => {
                // A node that was to be cleared but will not do after all is given up.
                let giving_up = !pod.nominated.is_empty() && !no_room.starts_with("not eligible");
                if giving_up {
                    self.state.placer.snapshot.nominate(pod, "");
                }
                let nominated = (!giving_up && !pod.nominated.is_empty()).then(|| pod.nominated.clone());
                self.tell(pod.clone(), message, nominated, Vec::new());
            }
            Err(_) => {}
        }
    }

    /// Removes the pods that are in the way and keeps the room for this one.
    fn clear(&mut self, pod: &Arc<PodInfo>, plan: Plan, message: String) {
        let Some(node) = self.state.placer.snapshot.node(plan.node).map(|n| n.name.clone()) else { return };
        tracing::info!(pod = %pod.key, node, victims = plan.victims.len(), "preempting");
        self.state.placer.snapshot.nominate(pod, &node);
        self.clearing.insert(pod.key.clone());
        self.tell(pod.clone(), message, Some(node), plan.victims);
    }

    fn tell(
        &mut self,
        pod: Arc<PodInfo>,
        message: String,
        nominated: Option<String>,
        victims: Vec<Arc<PodInfo>>,
    ) {
        let writes = self.writes.clone();
        self.under_way.spawn(async move {
            let mut result = writes.explain(&pod, &message, nominated.as_deref()).await;
            for victim in &victims {
                let evicted = writes.evict(victim, &pod, nominated.as_deref().unwrap_or_default()).await;
                result = result.and(evicted);
            }
            Done::Told(pod, result)
        });
    }

    pub(super) fn finish(&mut self, done: Result<Done, JoinError>) {
        if let Ok(Done::Told(pod, _)) = &done
            && self.clearing.remove(&pod.key)
        {
            // Those in the way may have gone while the pod was not to be tried.
            let now = self.now();
            self.state.queue.activate(&pod.key, now);
        }
        match done {
            Ok(Done::Decided(pod, Err(error))) => {
                self.awaiting.remove(&pod.key);
                self.give_up(&pod, &error.message);
            }
            Ok(Done::Told(pod, Err(error))) if !error.is_not_found() => {
                tracing::warn!(pod = %pod.key, %error, "a waiting pod could not be told why");
            }
            Ok(Done::Decided(_, Ok(())) | Done::Told(..)) => {}
            Err(error) => tracing::error!(%error, "a write of the scheduler broke off"),
        }
    }

    pub(super) fn bound(&mut self, bound: Result<Bound, JoinError>) {
        let bound = bound.unwrap_or_else(|error| {
            tracing::error!(%error, "bindings broke off");
            Vec::new()
        });
        for (pod, answer) in bound {
            if let Err(error) = answer {
                self.give_up(&pod, &error.message);
                continue;
            }
            if let Some(tries) = self.tries.remove(&pod.key) {
                self.counted.attempted(&pod.scheduler, Ended::Scheduled, tries.latest.elapsed());
                self.counted.placed(tries.count, tries.first.elapsed());
            }
            self.verdicts.0.write().remove(&pod.key);
            // Another one of its name may be waiting by now.
            if self.state.queue.get(&pod.key).is_some_and(|waiting| waiting.uid == pod.uid) {
                self.state.queue.remove(&pod.key);
            }
        }
    }

    /// Takes back a decision that could not be written; the pod is tried again after a while, if it is still there.
    pub(super) fn give_up(&mut self, pod: &Arc<PodInfo>, why: &str) {
        tracing::warn!(pod = %pod.key, why, "not bound");
        let took = self.tries.get(&pod.key).map(|tries| tries.latest.elapsed()).unwrap_or_default();
        self.counted.attempted(&pod.scheduler, Ended::Error, took);
        let now = self.now();
        let node = self.state.placer.snapshot.pod_node(&pod.key);
        self.state.placer.snapshot.forget(&pod.key);
        self.state.queue.wake(Event::Gone(pod, node), &self.state.placer.snapshot, now);
        self.state.queue.retry(&pod.key, now);
    }
}
