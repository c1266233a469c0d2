//! The next step of a CronJob. No clock, no tasks.

use super::schedule;
use super::zone::{UnknownTimeZone, Zones};
use coracle_fields::batch::v1;
use coracle_fields::core::v1::ObjectReference;
use coracle_fields::meta::{ObjectMeta, OwnerReference};
use coracle_fields::{Made, Schema as _, View, fields, make};
use coracle_informer::conditions::{self, Condition};
use coracle_informer::selector::Labels;
use coracle_informer::time;
use coracle_kinds::object::Object;
use coracle_proto::cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use std::sync::Arc;

/// The annotation of a job that was made from a CronJob out of turn.
const INSTANTIATE: &str = "cronjob.kubernetes.io/instantiate";

fields! {
    /// The wanted state.
    #[derive(Debug, Clone)]
    pub struct Spec: v1::CronJobSpec {
        /// When.
        pub schedule: String,
        /// The name of the time zone of the schedule.
        pub time_zone: Option<String>,
        /// How late a start may be.
        pub starting_deadline_seconds: Option<i64>,
        /// `Allow`, `Forbid` or `Replace`.
        pub concurrency_policy: String,
        /// Whether it waits.
        pub suspend: bool,
        /// What a job looks like.
        pub job_template: Value,
        /// How many successful jobs to keep.
        pub successful_jobs_history_limit: Option<i64>,
        /// How many failed jobs to keep.
        pub failed_jobs_history_limit: Option<i64>,
    }

    struct JobFields: v1::Job {
        metadata: JobMetadata,
        status: JobStatus,
    }

    struct JobMetadata: ObjectMeta {
        annotations: Labels,
    }

    struct JobStatus: v1::JobStatus {
        conditions: Vec<Condition>,
        start_time: Option<String>,
        completion_time: Option<String>,
    }
}

/// A job of a CronJob.
#[derive(Debug, Clone)]
pub struct Job {
    /// The whole object.
    pub object: Arc<Object>,
    /// `Complete` or `Failed`, once it has ended.
    pub ended: Option<&'static str>,
    /// When it started.
    pub started: Option<Timestamp>,
    /// When it succeeded.
    pub completed: Option<Timestamp>,
    /// Whether it was created manually from the CronJob, and belongs to no scheduled time.
    pub manual: bool,
}

impl Job {
    /// Reads a job.
    pub fn read(object: &Arc<Object>) -> Self {
        let JobFields { metadata, status } = object.typed().unwrap_or_default();
        let ended = ["Complete", "Failed"].into_iter().find(|k| conditions::is_true(&status.conditions, k));
        Self {
            object: object.clone(),
            ended,
            started: time::parse(status.start_time.as_deref()),
            completed: time::parse(status.completion_time.as_deref()),
            manual: metadata.annotations.get(INSTANTIATE).is_some_and(|how| how == "manual"),
        }
    }
}

/// The reference to a job in the status.
pub fn reference(job: &Object) -> Made<ObjectReference> {
    make!(part ObjectReference {
        api_version: "batch/v1",
        kind: "Job",
        name: &job.meta.name,
        namespace: &job.meta.namespace,
        uid: &job.meta.uid,
        resource_version: job.revision.to_string(),
    })
}

/// What to do now.
#[derive(Debug, Default)]
pub struct Plan {
    /// Jobs to delete.
    pub delete: Vec<Job>,
    /// The time a job is to be started for.
    pub start: Option<Timestamp>,
    /// The new status, before the start.
    pub status: Value,
    /// Events: whether a warning, reason, message.
    pub events: Vec<(bool, &'static str, String)>,
    /// When to look again.
    pub again: Option<Timestamp>,
}

/// Plans the next step. `jobs` are the CronJob's own.
pub fn plan(
    spec: &Spec,
    status: &Value,
    created: Timestamp,
    jobs: &[Job],
    zones: Result<Zones, UnknownTimeZone>,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan { delete: beyond_history(spec, jobs), ..Plan::default() };
    let status = v1::CronJobStatus::of(status);
    plan.events = job_events(status, jobs);
    // One that a server made and had no time to tell of counts; one that a person made does not.
    let active: Vec<&Job> =
        jobs.iter().filter(|j| j.ended.is_none() && (!j.manual || known_as(status, j).is_some())).collect();
    plan.status = new_status(status, jobs, &active);
    if spec.suspend {
        return plan;
    }
    let last = time::parse(status.last_schedule_time().get());
    let Some(due) = plan.due(spec, zones, (created, last), now) else { return plan };
    match spec.concurrency_policy.as_str() {
        "Forbid" if !active.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.events.push((false, "JobAlreadyActive", message.into()));
            return plan;
        }
        "Replace" => {
            plan.delete.extend(active.iter().map(|j| (*j).clone()));
            // What we delete ourselves does not go missing.
            v1::CronJobStatus::edit(&mut plan.status).active().clear();
        }
        _ => {}
    }
    plan.start = Some(due);
    plan
}

impl Plan {
    /// The scheduled time to start a job for, unless it is too late. Sets `again`.
    fn due(
        &mut self,
        spec: &Spec,
        zones: Result<Zones, UnknownTimeZone>,
        (created, last): (Timestamp, Option<Timestamp>),
        now: Timestamp,
    ) -> Option<Timestamp> {
        let schedule = match cron::parse(&spec.schedule) {
            Ok(schedule) => schedule,
            Err(error) => {
                let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
                self.events.push((true, "UnparseableSchedule", message));
                return None;
            }
        };
        let zone = match zones {
            Ok(zones) => zones.schedule,
            Err(error) => {
                self.events.push((true, "UnknownTimeZone", error.to_string()));
                return None;
            }
        };
        let earliest = last.unwrap_or(created);
        let limit = spec.starting_deadline_seconds.map(|s| time::after(now, -s));
        let (due, next, many) =
            schedule::due(&schedule, limit.map_or(earliest, |l| l.max(earliest)), now, &zone);
        self.again = next;
        if many {
            let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.events.push((true, "TooManyMissedTimes", message.into()));
        }
        let due = due.filter(|d| last != Some(*d))?;
        if spec.starting_deadline_seconds.is_some_and(|s| time::after(due, s) < now) {
            let at = due.strftime("%a, %d %b %Y %H:%M:%S +0000");
            let message = format!("Missed scheduled time to start a job: {at}");
            self.events.push((true, "MissSchedule", message));
            return None;
        }
        Some(due)
    }
}

/// The reference to a job in the status, if it has one.
fn known_as<'a>(status: View<'a, v1::CronJobStatus>, job: &Job) -> Option<View<'a, ObjectReference>> {
    status.active().items().find(|k| k.uid() == job.object.meta.uid)
}

/// Events of jobs that ended, appeared or went missing since the status was written.
fn job_events(status: View<'_, v1::CronJobStatus>, jobs: &[Job]) -> Vec<(bool, &'static str, String)> {
    let mut events = Vec::new();
    for job in jobs {
        let name = &job.object.meta.name;
        match (job.ended, known_as(status, job)) {
            (Some(what), Some(_)) => {
                let message = format!("Saw completed job: {name}, condition: {what}");
                events.push((false, "SawCompletedJob", message));
            }
            (None, None) if job.manual => {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                events.push((true, "UnexpectedJob", message));
            }
            _ => {}
        }
    }
    for gone in status.active().items().filter(|k| jobs.iter().all(|j| k.uid() != j.object.meta.uid)) {
        let message = format!("Active job went missing: {}", gone.name().text());
        events.push((false, "MissingJob", message));
    }
    events
}

/// The status with its active jobs and its last times.
fn new_status(status: View<'_, v1::CronJobStatus>, jobs: &[Job], active: &[&Job]) -> Value {
    let last_success = jobs.iter().filter_map(|j| j.completed).max();
    let told_success = time::parse(status.last_successful_time().get());
    let last = time::parse(status.last_schedule_time().get());
    let mut told = make!(part v1::CronJobStatus {
        last_successful_time: last_success.max(told_success).map(time::seconds),
        last_schedule_time: last.map(time::seconds),
    });
    if !active.is_empty() {
        let told_as = |job: &&Job| match known_as(status, job) {
            Some(known) => known.to_value(),
            None => reference(&job.object).into_value(),
        };
        let mut list: Vec<Value> = active.iter().map(told_as).collect();
        list.sort_by_key(|r| ObjectReference::of(r).name().text().to_owned());
        told.edit().active().put(Value::Array(list));
    }
    told.into_value()
}

/// Jobs that ended, beyond what is kept, oldest first.
fn beyond_history(spec: &Spec, jobs: &[Job]) -> Vec<Job> {
    let mut gone = Vec::new();
    let limits =
        [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
    for (how, limit) in limits {
        let Some(limit) = limit.and_then(|l| usize::try_from(l).ok()) else { continue };
        let mut ended: Vec<&Job> = jobs.iter().filter(|j| j.ended == Some(how)).collect();
        ended.sort_by(|a, b| (a.started, &a.object.meta.name).cmp(&(b.started, &b.object.meta.name)));
        let excess = ended.len().saturating_sub(limit);
        gone.extend(ended.into_iter().take(excess).cloned());
    }
    gone
}

/// The job for a time; its name follows from the time, so that it is made once.
pub fn job(
    cron: &Object,
    spec: &Spec,
    at: Timestamp,
    zone: &TimeZone,
    reference: Made<OwnerReference>,
) -> Made<v1::Job> {
    let template = v1::JobTemplateSpec::of(&spec.job_template);
    let minutes = at.as_second() / 60;
    let name = format!("{}-{minutes}", cron.meta.name);
    let local = at.to_zoned(zone.clone());
    let stamp = local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    let stamp = if zone == &TimeZone::UTC { time::seconds(at) } else { stamp };
    let mut job = make!(v1::Job {
        metadata: {
            name,
            namespace: &cron.meta.namespace,
            labels: template.metadata().labels(),
            annotations: template.metadata().annotations(),
            owner_references: [reference],
        },
        spec: template.spec(),
    });
    job.edit().metadata().annotations().insert("batch.kubernetes.io/cronjob-scheduled-timestamp", stamp);
    job
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    const NOW: &str = "2026-01-01T00:05:10Z";

    fn job_at(name: &str, ended: Option<&'static str>) -> Job {
        let object = object(json!({"metadata": {"name": name, "uid": name, "namespace": "d"}}));
        Job { object, ended, started: None, completed: None, manual: false }
    }

    fn run(spec: Value, status: Value, jobs: &[Job]) -> Plan {
        let spec: Spec = serde_json::from_value(spec).unwrap();
        let created = "2026-01-01T00:00:30Z".parse().unwrap();
        let zones = Zones::of(spec.time_zone.as_deref(), &TimeZone::UTC);
        plan(&spec, &status, created, jobs, zones, NOW.parse().unwrap())
    }

    #[test]
    fn without_a_time_zone_the_schedule_is_in_local_time_and_the_annotation_in_utc() {
        let local = TimeZone::get("Asia/Kolkata").unwrap();
        let cron = object(json!({"metadata": {"name": "c", "namespace": "d", "uid": "c"}}));
        let created = "2026-01-01T00:00:30Z".parse().unwrap();
        for (zone, now, start, annotation) in [
            (None, "2026-01-01T03:30:10Z", "2026-01-01T03:30:00Z", "2026-01-01T03:30:00Z"),
            (
                Some("Europe/Berlin"),
                "2026-01-01T08:00:10Z",
                "2026-01-01T08:00:00Z",
                "2026-01-01T09:00:00+01:00",
            ),
        ] {
            let spec: Spec =
                serde_json::from_value(json!({"schedule": "0 9 * * *", "timeZone": zone})).unwrap();
            let zones = Zones::of(spec.time_zone.as_deref(), &local).unwrap();
            let plan = plan(&spec, &json!({}), created, &[], Ok(zones.clone()), now.parse().unwrap());
            let at = plan.start.unwrap();
            assert_eq!(at.to_string(), start, "{zone:?}");
            let owner = crate::adoption::reference("batch/v1", "CronJob", &cron.meta);
            let job = job(&cron, &spec, at, &zones.annotation, owner).into_value();
            let stamp = &job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
            assert_eq!(stamp, annotation, "{zone:?}");
        }
    }

    #[test]
    fn starts_the_last_one_that_is_due() {
        let started = run(json!({"schedule": "* * * * *"}), json!({}), &[]);
        assert_eq!(started.start.unwrap().to_string(), "2026-01-01T00:05:00Z");
        assert_eq!(started.again.unwrap().to_string(), "2026-01-01T00:06:00Z");
        let again =
            run(json!({"schedule": "* * * * *"}), json!({"lastScheduleTime": "2026-01-01T00:05:00Z"}), &[]);
        assert_eq!(again.start, None);
        assert_eq!(run(json!({"schedule": "* * * * *", "suspend": true}), json!({}), &[]).start, None);
        let late = run(json!({"schedule": "0 * * * *", "startingDeadlineSeconds": 60}), json!({}), &[]);
        assert_eq!(late.start, None);
        let late = run(json!({"schedule": "0 0 * * *", "startingDeadlineSeconds": 900}), json!({}), &[]);
        assert_eq!((late.start, late.events.len()), (None, 0), "before it was made");
        let wrong = run(json!({"schedule": "often"}), json!({}), &[]);
        assert_eq!(wrong.events[0].1, "UnparseableSchedule");
    }

    #[test]
    fn one_at_a_time_or_the_newest() {
        let running = [job_at("a", None)];
        let forbid =
            run(json!({"schedule": "* * * * *", "concurrencyPolicy": "Forbid"}), json!({}), &running);
        assert_eq!((forbid.start, forbid.events[0].1), (None, "JobAlreadyActive"));
        let replace =
            run(json!({"schedule": "* * * * *", "concurrencyPolicy": "Replace"}), json!({}), &running);
        assert!(replace.start.is_some() && replace.status["active"].is_null());
        assert_eq!(replace.delete[0].object.meta.name, "a");
        let allow = run(json!({"schedule": "* * * * *", "concurrencyPolicy": "Allow"}), json!({}), &running);
        assert_eq!((allow.start.is_some(), allow.delete.len()), (true, 0));
        assert_eq!(allow.status["active"][0]["name"], "a");
    }

    #[test]
    fn what_a_person_started_is_nobodys_turn() {
        let by_hand = [Job { manual: true, ..job_at("by-hand", None) }];
        for policy in ["Forbid", "Replace"] {
            let spec = json!({"schedule": "* * * * *", "concurrencyPolicy": policy});
            let plan = run(spec, json!({"active": [{"name": "lost", "uid": "lost"}]}), &by_hand);
            assert!(plan.start.is_some() && plan.delete.is_empty(), "{policy}");
            assert!(plan.status["active"].is_null());
            let events: Vec<&str> = plan.events.iter().map(|(_, reason, _)| *reason).collect();
            assert_eq!(events, ["UnexpectedJob", "MissingJob"]);
        }
    }

    #[test]
    fn history_is_limited() {
        let jobs: Vec<Job> = ["a", "b", "c"].iter().map(|n| job_at(n, Some("Complete"))).collect();
        let plan = run(json!({"schedule": "0 0 1 1 *", "successfulJobsHistoryLimit": 1}), json!({}), &jobs);
        let names: Vec<&str> = plan.delete.iter().map(|j| j.object.meta.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
