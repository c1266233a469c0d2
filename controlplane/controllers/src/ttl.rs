//! Deletes finished Jobs after `ttlSecondsAfterFinished`.

use super::job::{plan::finished, view};
use async_trait::async_trait;
use coracle_informer::informer::Name;
use coracle_informer::resource::{Resource, same_uid};
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_informer::{conditions, time};
use jiff::Timestamp;

const NAME: &str = "ttl-after-finished-controller";

struct Ttl {
    jobs: Resource,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let jobs = setup.resource(NAME, "batch", "jobs");
    let queue = setup.enqueue_on_change(&jobs).queue.clone();
    setup.run(Ttl { jobs }, &queue, 1);
}

#[async_trait]
impl Controller for Ttl {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(job) = self.jobs.get(name).filter(|j| j.meta.deletion_timestamp.is_none()) else {
            return Ok(Requeue::No);
        };
        let view::Job { spec, status } = job.typed()?;
        let (Some(ttl), true) = (spec.ttl_seconds_after_finished, finished(&status)) else {
            return Ok(Requeue::No);
        };
        let ended = ["Complete", "Failed"]
            .iter()
            .filter_map(|kind| conditions::find(&status.conditions, kind))
            .find_map(|c| time::parse(c.last_transition_time.as_deref()));
        let due = time::after(ended.unwrap_or(now), ttl);
        if due > now {
            return Ok(Requeue::At(due));
        }
        let mut options = same_uid(&job);
        options.propagation_policy = Some("Foreground".into());
        self.jobs.delete_with(name, options).await?;
        Ok(Requeue::No)
    }
}
