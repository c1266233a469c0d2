//! CronJobs.

use super::owned_by;
use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::batch::v1::{CronJob, Job};

/// Why a CronJob does not do its work.
pub fn explain(world: &World, cron: View<'_, CronJob>, trail: &[ObjectRef]) -> Vec<Finding> {
    if cron.spec().suspend().flag() {
        let object = ObjectRef::to(cron);
        let patch = r#"-p '{"spec":{"suspend":false}}'"#;
        let command = format!("kubectl patch {} {patch}", object.arguments());
        let cause = "the CronJob is suspended: it makes no Jobs";
        return vec![
            Finding::new(object, Trouble::Suspended, cause)
                .evidence("field spec.suspend", "true")
                .remedy(command),
        ];
    }
    let mut jobs = owned_by::<Job>(world, cron.metadata());
    jobs.sort_by_key(|job| std::cmp::Reverse(job.metadata().creation_timestamp().text()));
    let mut findings: Vec<Finding> =
        missed(world, cron).or_else(|| busy(world, cron, &jobs)).into_iter().collect();
    // An older failure is history once a later Job has succeeded.
    if let Some(last) = jobs.first() {
        findings.extend(follow(world, trail, ObjectRef::to(*last)));
    }
    findings
}

fn missed(world: &World, cron: View<'_, CronJob>) -> Option<Finding> {
    let object = ObjectRef::to(cron);
    let all = world.events(&object);
    let reasons = [
        "TooManyMissedTimes",
        "MissSchedule",
        "UnknownTimeZone",
        "InvalidSchedule",
        "UnparseableCronJobSchedule",
        "FailedCreate",
        "FailedNeedsStart",
    ];
    let event = events::last(&all, &reasons, |_| true)?;
    let later = cron.status().last_schedule_time().text() > events::last_seen(event);
    let cause = format!(
        "the CronJob misses its schedule {:?}: {}",
        cron.spec().schedule().text(),
        event.message().text()
    );
    let remedy = match event.reason().text() {
        "UnknownTimeZone" => "correct spec.timeZone",
        "InvalidSchedule" | "UnparseableCronJobSchedule" => "correct spec.schedule",
        "FailedCreate" => "correct what the message names in spec.jobTemplate",
        _ => "raise spec.startingDeadlineSeconds, and check that the controllers run",
    };
    (!later).then(|| {
        Finding::new(object, Trouble::CronJobMissed, cause)
            .since(events::first_seen(event))
            .with([events::evidence(event)])
            .remedy(remedy)
    })
}

/// A Job that still runs and forbids the next.
fn busy(world: &World, cron: View<'_, CronJob>, jobs: &[View<'_, Job>]) -> Option<Finding> {
    let running = jobs.iter().find(|job| job.status().active().or(0) > 0)?;
    let all = world.events(&ObjectRef::to(cron));
    let event = events::last(&all, &["JobAlreadyActive"], |_| true)?;
    let started = running.status().start_time().text();
    if cron.spec().concurrency_policy() != "Forbid" || events::last_seen(event) < started {
        return None;
    }
    let name = running.metadata().name().text();
    let cause = format!("Job {name} still runs, and concurrencyPolicy Forbid skips the next ones");
    let finding = Finding::new(ObjectRef::to(cron), Trouble::CronJobBusy, cause)
        .since(started)
        .with([events::evidence(event)])
        .remedy("let the Job end (activeDeadlineSeconds in spec.jobTemplate), or allow concurrent Jobs");
    Some(finding)
}
