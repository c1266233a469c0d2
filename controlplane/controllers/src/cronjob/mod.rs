//! CronJobs: jobs by the clock.

// Cron expressions.
pub mod schedule;
// Time zones.
pub mod zone;
// The next step.
pub mod plan;

use super::adoption;
use async_trait::async_trait;
use coracle_fields::batch::v1;
use coracle_fields::meta::ObjectMeta;
use coracle_fields::{Made, fields};
use coracle_informer::index::Owned;
use coracle_informer::informer::Name;
use coracle_informer::resource::{Resource, same_uid};
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_informer::time;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use plan::{Job, Spec};
use serde_json::Value;
use zone::Zones;

const NAME: &str = "cronjob-controller";

struct CronJobs {
    crons: Resource,
    jobs: Resource,
    owned: Owned,
    /// The time zone of CronJobs that name none.
    local: TimeZone,
}

fields! {
    struct CronJob: v1::CronJob {
        metadata: Metadata,
        spec: Spec,
        status: Value,
    }

    struct Metadata: ObjectMeta {
        creation_timestamp: Option<String>,
    }
}

/// Starts the controller. CronJobs that name no time zone follow the `local` one.
pub fn start(setup: &mut Setup<'_>, local: TimeZone) {
    let crons = setup.resource(NAME, "batch", "cronjobs");
    let jobs = setup.resource(NAME, "batch", "jobs");
    let mut handlers = setup.enqueue_on_change(&crons);
    handlers.owned(&jobs.kind, &jobs.cache, "CronJob");
    let queue = handlers.queue.clone();
    let owned = Owned::by_owner(jobs.cache.clone());
    setup.run(CronJobs { crons, jobs, owned, local }, &queue, 2);
}

#[async_trait]
impl Controller for CronJobs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn acts_on_time(&self) -> bool {
        true
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let cron = self.crons.get(name).filter(|c| c.meta.deletion_timestamp.is_none());
        let Some(cron) = cron else { return Ok(Requeue::No) };
        let CronJob { metadata, spec, status } = cron.typed()?;
        let jobs: Vec<Job> = self.owned.of(&cron.meta.uid).iter().map(Job::read).collect();
        let created = time::parse(metadata.creation_timestamp.as_deref()).unwrap_or(now);
        let zones = Zones::of(spec.time_zone.as_deref(), &self.local);
        let annotation = zones.as_ref().map_or(TimeZone::UTC, |zones| zones.annotation.clone());
        let plan = plan::plan(&spec, &status, created, &jobs, zones, now);
        for (warning, reason, message) in plan.events {
            if warning {
                self.crons.warn(&cron, reason, message)
            } else {
                self.crons.normal(&cron, reason, message)
            }
        }
        for job in &plan.delete {
            let mut options = same_uid(&job.object);
            options.propagation_policy = Some("Background".into());
            self.jobs.delete_with(&Name::of(&job.object), options).await?;
            self.crons.normal(&cron, "SuccessfulDelete", format!("Deleted job {}", job.object.meta.name));
        }
        let mut told = Made::<v1::CronJobStatus>::new(plan.status);
        if let Some(at) = plan.start {
            let reference = adoption::reference("batch/v1", "CronJob", &cron.meta);
            let body = plan::job(&cron, &spec, at, &annotation, reference);
            match self.jobs.create(&name.namespace, body).await {
                Ok(job) => {
                    self.crons.normal(&cron, "SuccessfulCreate", format!("Created job {}", job.meta.name));
                    told.edit().active().push(plan::reference(&job));
                }
                Err(error) if error.is_already_exists() => {}
                Err(error) if error.is_namespace_terminating() => return Ok(Requeue::No),
                Err(error) => {
                    self.crons.warn(&cron, "FailedCreate", format!("Error creating job: {error}"));
                    return Err(error.into());
                }
            }
            told.edit().last_schedule_time().set(time::seconds(at));
        }
        self.crons.set_status(&cron, told).await?;
        Ok(plan.again.into())
    }
}
