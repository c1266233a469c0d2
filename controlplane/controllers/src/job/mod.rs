//! Jobs: pods that end.

// Sets of indexes.
pub mod indexes;
// What the plan sees.
pub mod view;
// Rules by which pods are judged.
mod policy;
// When pods that failed are replaced.
mod backoff;
// The next step.
pub mod plan;
// Pods that outlive their Job.
mod orphans;
#[cfg(test)]
mod plan_tests;

use super::adoption::JOB_TRACKING;
use super::replicas::{PodControl, pod_of};
use async_trait::async_trait;
use coracle_fields::core::v1;
use coracle_fields::{Edit, Made, Schema as _, make};
use coracle_informer::index::Pods;
use coracle_informer::informer::Name;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::selector;
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use futures::future::try_join_all;
use jiff::Timestamp;
use plan::New;
use serde_json::json;
use std::sync::Arc;
use view::{INDEX, INDEX_FAILURES, INDEX_IGNORED_FAILURES, Job, JobPod, Spec};

const NAME: &str = "job-controller";
/// The value of `managedBy` that means this controller.
const MANAGER: &str = "kubernetes.io/job-controller";

struct Jobs {
    control: PodControl,
    pods: Arc<Pods>,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let owners = setup.resource(NAME, "batch", "jobs");
    let pods = setup.resource(NAME, "", "pods");
    let index = setup.pods();
    let mut handlers = setup.enqueue_on_change(&owners);
    handlers.owned_or_matching(&pods.kind, &pods.cache, "Job");
    let queue = handlers.queue.clone();
    let control = PodControl { owners, pods, finalizer: Some(JOB_TRACKING) };
    setup.run(Jobs { control, pods: index }, &queue, 5);
    orphans::start(setup, NAME);
}

#[async_trait]
impl Controller for Jobs {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(job) = self.control.owners.get(name) else { return Ok(Requeue::No) };
        let Job { spec, status } = job.typed()?;
        if spec.managed_by.as_ref().is_some_and(|m| m != MANAGER) {
            return Ok(Requeue::No);
        }
        let own = self.pods.owned(&job.meta.uid);
        if plan::finished(&status) || job.meta.deletion_timestamp.is_some() {
            // Nobody counts any more: nothing is held back.
            let held = own.iter().map(JobPod::read).filter(JobPod::tracked);
            try_join_all(held.map(|pod| self.release(pod))).await?;
            return Ok(Requeue::No);
        }
        let selector = selector::of_workload(&job).unwrap_or_default();
        let mut candidates = own;
        if !selector.is_empty() {
            candidates.extend(
                self.pods.orphans(&name.namespace).into_iter().filter(|p| selector.matches(p.labels())),
            );
        }
        let mine = self.control.claim(&job, &selector, candidates).await?;
        let pods: Vec<JobPod> = mine.iter().map(JobPod::read).collect();
        let plan = plan::plan(&name.name, &spec, &status, &pods, now);

        let bodies = plan.create.iter().map(|new| self.body(&job, &spec, *new)).collect();
        let (_, created) = self.control.create_all(&job, bodies).await;
        let deleted = self.control.delete_all(&job, plan.delete.iter().map(|p| &*p.pod.object)).await;
        self.control.owners.set_status(&job, json!(plan.status)).await?;
        for (warning, reason, message) in plan.events {
            if warning {
                self.control.owners.warn(&job, reason, message);
            } else {
                self.control.owners.normal(&job, reason, message);
            }
        }
        let release = plan.release.into_iter().map(|pod| self.release(pod));
        try_join_all(release).await?;
        created?;
        deleted?;
        // What was released is counted with the next turn, which the pods' change brings.
        Ok(plan.again.into())
    }
}

impl Jobs {
    async fn release(&self, pod: JobPod) -> Result<(), Failure> {
        orphans::release(&self.control.pods, &Name::of(&pod.pod.object), pod.pod.uid()).await
    }

    fn body(&self, job: &Object, spec: &Spec, new: New) -> Made<v1::Pod> {
        let mut pod = pod_of(v1::PodTemplateSpec::of(&spec.template), job, self.control.reference(job));
        pod.edit().metadata().finalizers().push(JOB_TRACKING);
        let Some(index) = new.index else { return pod };
        let name: String = job.meta.name.chars().take(50).collect();
        let mut root = pod.edit();
        let mut meta = root.metadata();
        meta.generate_name().set(format!("{name}-{index}-"));
        meta.annotations().insert(INDEX, index.to_string());
        meta.labels().insert(INDEX, index.to_string());
        if spec.backoff_limit_per_index.is_some() {
            meta.annotations().insert(INDEX_FAILURES, new.failures.to_string());
            if new.ignored > 0 {
                meta.annotations().insert(INDEX_IGNORED_FAILURES, new.ignored.to_string());
            }
        }
        let mut body = root.spec();
        if !body.view().hostname().is_set() {
            let room = 63usize.saturating_sub(index.to_string().len() + 1);
            let name: String = job.meta.name.chars().take(room).collect();
            body.hostname().set(format!("{name}-{index}"));
        }
        body.containers().each(add_index_variable);
        body.init_containers().each(add_index_variable);
        pod
    }
}

/// Adds the environment variable with the index of the pod.
fn add_index_variable(mut container: Edit<'_, v1::Container>) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    if container.view().env().items().any(|variable| variable.name() == NAME) {
        return;
    }
    container.env().push(make!(part v1::EnvVar {
        name: NAME,
        value_from: { field_ref: { api_version: "v1", field_path: format!("metadata.labels['{INDEX}']") } },
    }));
}
