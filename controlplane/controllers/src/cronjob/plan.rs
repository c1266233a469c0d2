//! The next step of a CronJob. No clock, no tasks.

use super::schedule;
use coracle_informer::conditions::{self, Condition};
use coracle_informer::selector::Labels;
use coracle_informer::time;
use coracle_kinds::object::Object;
use coracle_proto::cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The annotation of a job that was made from a CronJob out of turn.
const INSTANTIATE: &str = "cronjob.kubernetes.io/instantiate";

/// The wanted state.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// When.
    pub schedule: String,
    /// By whose clocks.
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    metadata: WireMeta,
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireMeta {
    annotations: Labels,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    conditions: Vec<Condition>,
    start_time: Option<String>,
    completion_time: Option<String>,
}

impl Job {
    /// Reads a job.
    pub fn read(object: &Arc<Object>) -> Self {
        let wire: Wire = object.typed().unwrap_or_default();
        let ended =
            ["Complete", "Failed"].into_iter().find(|k| conditions::is_true(&wire.status.conditions, k));
        Self {
            object: object.clone(),
            ended,
            started: time::parse(wire.status.start_time.as_deref()),
            completed: time::parse(wire.status.completion_time.as_deref()),
            manual: wire.metadata.annotations.get(INSTANTIATE).is_some_and(|how| how == "manual"),
        }
    }

    fn reference(&self) -> Value {
        let meta = &self.object.meta;
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": meta.name, "namespace": meta.namespace, "uid": meta.uid,
            "resourceVersion": self.object.revision.to_string()})
    }
}

/// No time zone has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid timeZone: \"{0}\": unknown time zone {0}")]
pub struct UnknownTimeZone(pub String);

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
    zone: Result<TimeZone, UnknownTimeZone>,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan { delete: beyond_history(spec, jobs), ..Plan::default() };
    let known = status["active"].as_array().cloned().unwrap_or_default();
    let known_as = |job: &Job| known.iter().find(|k| k["uid"] == job.object.meta.uid);
    for job in jobs {
        let name = &job.object.meta.name;
        match (job.ended, known_as(job)) {
            (Some(what), Some(_)) => {
                let message = format!("Saw completed job: {name}, condition: {what}");
                plan.events.push((false, "SawCompletedJob", message));
            }
            (None, None) if job.manual => {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                plan.events.push((true, "UnexpectedJob", message));
            }
            _ => {}
        }
    }
    for gone in known.iter().filter(|k| jobs.iter().all(|j| k["uid"] != j.object.meta.uid)) {
        let message = format!("Active job went missing: {}", gone["name"].as_str().unwrap_or_default());
        plan.events.push((false, "MissingJob", message));
    }
    // One that a server made and had no time to tell of counts; one that a person made does not.
    let active: Vec<&Job> =
        jobs.iter().filter(|j| j.ended.is_none() && (!j.manual || known_as(j).is_some())).collect();
    let mut told = json!({});
    let last_success = jobs.iter().filter_map(|j| j.completed).max();
    let told_success = time::parse(status["lastSuccessfulTime"].as_str());
    if let Some(at) = last_success.max(told_success) {
        told["lastSuccessfulTime"] = json!(time::seconds(at));
    }
    if !active.is_empty() {
        let told_as = |job: &&Job| known_as(job).cloned().unwrap_or_else(|| job.reference());
        let mut list: Vec<Value> = active.iter().map(told_as).collect();
        list.sort_by_key(|r| r["name"].to_string());
        told["active"] = json!(list);
    }
    let last = time::parse(status["lastScheduleTime"].as_str());
    if let Some(at) = last {
        told["lastScheduleTime"] = json!(time::seconds(at));
    }
    plan.status = told;
    if spec.suspend {
        return plan;
    }
    let schedule = match cron::parse(&spec.schedule) {
        Ok(schedule) => schedule,
        Err(error) => {
            let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
            plan.events.push((true, "UnparseableSchedule", message));
            return plan;
        }
    };
    let zone = match zone {
        Ok(zone) => zone,
        Err(error) => {
            plan.events.push((true, "UnknownTimeZone", error.to_string()));
            return plan;
        }
    };
    let earliest = last.unwrap_or(created);
    let limit = spec.starting_deadline_seconds.map(|s| time::after(now, -s));
    let (due, next, many) = schedule::due(&schedule, limit.map_or(earliest, |l| l.max(earliest)), now, &zone);
    plan.again = next;
    if many {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.events.push((true, "TooManyMissedTimes", message.into()));
    }
    let Some(due) = due.filter(|d| last != Some(*d)) else { return plan };
    if spec.starting_deadline_seconds.is_some_and(|s| time::after(due, s) < now) {
        let at = due.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let message = format!("Missed scheduled time to start a job: {at}");
        plan.events.push((true, "MissSchedule", message));
        return plan;
    }
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
            if let Some(status) = plan.status.as_object_mut() {
                status.remove("active");
            }
        }
        _ => {}
    }
    plan.start = Some(due);
    plan
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
pub fn job(cron: &Object, spec: &Spec, at: Timestamp, zone: &TimeZone, reference: Value) -> Value {
    let template = &spec.job_template;
    let minutes = at.as_second() / 60;
    let name = format!("{}-{minutes}", cron.meta.name);
    let mut annotations = template["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let local = at.to_zoned(zone.clone());
    let stamp = local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    let stamp = if zone == &TimeZone::UTC { time::seconds(at) } else { stamp };
    annotations.insert("batch.kubernetes.io/cronjob-scheduled-timestamp".into(), json!(stamp));
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": cron.meta.namespace, "labels": template["metadata"]["labels"],
            "annotations": annotations, "ownerReferences": [reference]},
        "spec": template["spec"],
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;

    const NOW: &str = "2026-01-01T00:05:10Z";

    fn job_at(name: &str, ended: Option<&'static str>) -> Job {
        let object = object(json!({"metadata": {"name": name, "uid": name, "namespace": "d"}}));
        Job { object, ended, started: None, completed: None, manual: false }
    }

    fn run(spec: Value, status: Value, jobs: &[Job]) -> Plan {
        let spec: Spec = serde_json::from_value(spec).unwrap();
        let created = "2026-01-01T00:00:30Z".parse().unwrap();
        plan(&spec, &status, created, jobs, Ok(TimeZone::UTC), NOW.parse().unwrap())
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
