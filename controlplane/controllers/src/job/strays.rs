//! Pods whose Job is gone: nobody counts them any more, so nothing holds them back.

use super::view::TRACKING;
use async_trait::async_trait;
use coracle_informer::index::Pods;
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Again, Controller, Failure};
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

struct Strays {
    jobs: Resource,
    pods: Resource,
    index: Arc<Pods>,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let jobs = setup.resource(super::NAME, "batch", "jobs");
    let pods = setup.resource(super::NAME, "", "pods");
    let index = setup.pods();
    let owned = index.clone();
    let mut feed = setup.feed_only(&pods, tracked);
    feed.also(&jobs.kind, &jobs.cache, move |change, add| {
        if let Some(job) = change.old.filter(|_| change.new.is_none()) {
            owned.owned(&job.meta.uid).iter().for_each(|pod| add(Name::of(&pod.object)));
        }
    });
    let queue = feed.queue.clone();
    setup.run(Strays { jobs, pods, index }, &queue, 2);
}

fn tracked(pod: &Object) -> bool {
    pod.meta.finalizers.iter().any(|f| f == TRACKING)
}

#[async_trait]
impl Controller for Strays {
    fn name(&self) -> &'static str {
        "job-strays"
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Again, Failure> {
        let Some(pod) = self.index.get(name).filter(|pod| tracked(&pod.object)) else { return Ok(Again::No) };
        let Some(owner) = pod.controller() else {
            // A pod that ends is nobody's to adopt, and nothing else would let it go.
            if pod.terminating() {
                release(&self.pods, name, pod.uid()).await?;
            }
            return Ok(Again::No);
        };
        if owner.kind != "Job" {
            return Ok(Again::No);
        }
        let job = self.jobs.get(&Name::new(&name.namespace, &owner.name));
        if job.is_some_and(|job| job.meta.uid == owner.uid) {
            return Ok(Again::No);
        }
        release(&self.pods, name, pod.uid()).await?;
        Ok(Again::No)
    }
}

/// Lets a pod go: it is written down, or nobody writes it down.
pub(super) async fn release(pods: &Resource, name: &Name, uid: &str) -> Result<(), Failure> {
    let change = |value: &mut Value| {
        if value["metadata"]["uid"] == json!(uid)
            && let Some(list) = value["metadata"]["finalizers"].as_array_mut()
        {
            list.retain(|f| f != TRACKING);
        }
    };
    match pods.modify(name, change).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
