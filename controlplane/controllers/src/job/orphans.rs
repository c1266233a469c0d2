//! Removes the tracking finalizer of pods whose Job was deleted.

use crate::adoption::JOB_TRACKING;
use async_trait::async_trait;
use coracle_informer::index::Pods;
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

struct OrphanPods {
    jobs: Resource,
    pods: Resource,
    index: Arc<Pods>,
}

/// Starts the controller; it writes as `user`.
pub(super) fn start(setup: &mut Setup<'_>, user: &'static str) {
    let jobs = setup.resource(user, "batch", "jobs");
    let pods = setup.resource(user, "", "pods");
    let index = setup.pods();
    let owned = index.clone();
    let mut handlers = setup.enqueue_matching(&pods, tracked);
    handlers.on_change(&jobs.kind, &jobs.cache, move |change, add| {
        if let Some(job) = change.old.filter(|_| change.new.is_none()) {
            owned.owned(&job.meta.uid).iter().for_each(|pod| add(Name::of(&pod.object)));
        }
    });
    let queue = handlers.queue.clone();
    setup.run(OrphanPods { jobs, pods, index }, &queue, 2);
}

fn tracked(pod: &Object) -> bool {
    pod.meta.finalizers.iter().any(|f| f == JOB_TRACKING)
}

#[async_trait]
impl Controller for OrphanPods {
    fn name(&self) -> &'static str {
        "job-strays"
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let Some(pod) = self.index.get(name).filter(|pod| tracked(&pod.object)) else {
            return Ok(Requeue::No);
        };
        let Some(owner) = pod.controller() else {
            // A terminating pod is not adopted, so nothing else would remove the finalizer.
            if pod.terminating() {
                release(&self.pods, name, pod.uid()).await?;
            }
            return Ok(Requeue::No);
        };
        if owner.kind != "Job" {
            return Ok(Requeue::No);
        }
        let job = self.jobs.get(&Name::new(&name.namespace, &owner.name));
        if job.is_some_and(|job| job.meta.uid == owner.uid) {
            return Ok(Requeue::No);
        }
        release(&self.pods, name, pod.uid()).await?;
        Ok(Requeue::No)
    }
}

/// Removes the tracking finalizer of a pod. A pod that is gone is no error, also if another has its name.
pub(super) async fn release(pods: &Resource, name: &Name, uid: &str) -> Result<(), Failure> {
    let change = json!({"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [JOB_TRACKING]}});
    let is_there = || pods.get(name).is_some_and(|pod| pod.meta.uid == uid);
    match pods.merge_lists(name, "", change).await {
        Err(error) if !error.is_not_found() && is_there() => Err(error.into()),
        _ => Ok(()),
    }
}
