//! Field rules of Jobs and CronJobs.

use super::field_ref::{Field, walk_as};
use super::field_rules::{NumberRules as _, TextRules as _};
use super::job_template;
use super::meta;
use super::names::domain_prefixed_path;
use super::pods;
use super::workloads::matches_template;
use coracle_fields::batch::v1::{CronJob, Job, JobSpec, PodFailurePolicyOnExitCodesRequirement};
use coracle_fields::{Int32, Schema, Text};
use coracle_proto::cron;
use coracle_proto::names::{dns1123_label, qualified_name};
use coracle_proto::selector::LabelSelector as Selector;
use coracle_proto::status::FieldError;
use jiff::tz::TimeZone;
use serde_json::Value;
use std::collections::HashSet;

/// How long a list of indexes may be.
const MAX_INDEXES: usize = 64 * 1024;
/// More completions than this have limits of their own.
const MANY: i64 = 100_000;

/// A Job.
pub fn job(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Job>(object, errors, |root| {
        let spec = root.spec();
        generated_selector(&root);
        job_spec(&spec);
        if spec.selector().is_set() {
            meta::selector(&spec.selector());
        } else {
            spec.selector().required("");
        }
        matches_template(&spec.selector(), &spec.template());
        let completions = spec.view().completions().or(0);
        if spec.view().completion_mode().text() == "Indexed" && completions > 0 {
            let host = format!("{}-{}", root.view().metadata().name().text(), completions - 1);
            if !dns1123_label(&host).is_empty() {
                root.metadata()
                    .name()
                    .invalid(format!("will not able to create pod with invalid DNS label: {host}"));
            }
        }
    });
}

fn generated_selector(job: &Field<'_, Job>) {
    let (meta, spec) = (job.view().metadata(), job.view().spec());
    if spec.manual_selector().flag() || !spec.selector().is_set() {
        return;
    }
    let labels = job.spec().template().metadata().labels();
    let (uid, name) = (meta.uid().text(), meta.name().text());
    if uid.is_empty() {
        job.metadata().uid().required("");
    }
    let generated = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    for (label, expected) in generated {
        match labels.view().key(label).get() {
            None => labels.key(label).required(&format!("must be '{expected}'")),
            Some(actual) if actual != expected => {
                labels.key(label).invalid_as(labels.value.clone(), format!("must be '{expected}'"));
            }
            Some(_) => {}
        }
    }
    let expected: Value = generated.into_iter().map(|(label, value)| (label.to_owned(), value)).collect();
    let selector = job.spec().selector();
    if Selector::from_object(selector.value).is_ok_and(|selector| !selector.matches_value(&expected)) {
        selector.invalid("`selector` not auto-generated");
    }
}

fn job_spec(spec: &Field<'_, JobSpec>) {
    spec.parallelism().non_negative();
    spec.completions().non_negative();
    spec.active_deadline_seconds().non_negative();
    spec.backoff_limit().non_negative();
    spec.ttl_seconds_after_finished().non_negative();
    spec.backoff_limit_per_index().non_negative();
    spec.max_failed_indexes().non_negative();
    if spec.max_failed_indexes().is_set() && !spec.backoff_limit_per_index().is_set() {
        spec.backoff_limit_per_index().required("when maxFailedIndexes is specified");
    }
    let managed = spec.managed_by();
    if managed.is_set() {
        domain_prefixed_path(&managed);
    }
    if managed.text().len() > 63 {
        managed.too_long(63);
    }
    completion(spec);
    if spec.pod_failure_policy().is_set() {
        failure_policy(spec);
    }
    success_policy(spec);
    let replacement = spec.pod_replacement_policy();
    if replacement.is_set() {
        let only_failed = spec.pod_failure_policy().is_set();
        replacement.one_of(if only_failed { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] });
    }
    pods::template(&spec.template());
    let restart = spec.template().spec().restart_policy();
    match restart.text() {
        "" | "Always" => restart.required("valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.pod_failure_policy().is_set() => {
            restart.invalid("only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        _ => restart.unsupported(&["OnFailure", "Never"]),
    }
}

fn completion(spec: &Field<'_, JobSpec>) {
    let mode = spec.completion_mode();
    if mode.is_set() {
        mode.one_of(&["NonIndexed", "Indexed"]);
    }
    let (failed, parallel) = (spec.max_failed_indexes(), spec.parallelism());
    if mode.text() != "Indexed" {
        if mode.is_set() && mode.text() != "NonIndexed" {
            return;
        }
        for field in [spec.backoff_limit_per_index(), failed] {
            if field.is_set() {
                field.invalid("requires indexed completion mode");
            }
        }
        return;
    }
    let completions = spec.completions().int();
    if completions.is_none() {
        spec.completions().required("when completion mode is Indexed");
    }
    if parallel.int().is_some_and(|count| count > 100_000) {
        parallel.invalid("must be less than or equal to 100000 when completion mode is Indexed");
    }
    if failed.int() > completions && completions.is_some() {
        failed.invalid("must be less than or equal to completions");
    }
    if failed.int().is_some_and(|count| count > 100_000) {
        failed.invalid("must be less than or equal to 100000");
    }
    if completions.is_some_and(|count| count > MANY) && spec.backoff_limit_per_index().is_set() {
        many_completions(&parallel, &failed);
    }
}

/// Jobs with many completions and a back-off limit per index run fewer pods at a time: the status names all failed indexes.
fn many_completions(parallel: &Field<'_, Int32>, failed: &Field<'_, Int32>) {
    if !failed.is_set() {
        failed.required(&format!("must be specified when completions is above {MANY}"));
    }
    for field in [parallel, failed] {
        if field.int().is_some_and(|count| count > 10_000) {
            field.invalid(format!(
                "must be less than or equal to 10000 when completions are above {MANY} and used with backoff limit per index"
            ));
        }
    }
}

fn failure_policy(spec: &Field<'_, JobSpec>) {
    let rules = spec.pod_failure_policy().rules();
    if rules.len() > 20 {
        rules.too_many(20);
    }
    let pod = spec.view().template().spec();
    let containers = pod.containers().items().chain(pod.init_containers().items());
    let names: HashSet<&str> = containers.map(|container| container.name().text()).collect();
    for rule in rules.items() {
        let action = rule.action();
        match action.text() {
            "" => action.required("valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
            "FailIndex" if !spec.backoff_limit_per_index().is_set() => {
                action.invalid("requires the backoffLimitPerIndex to be set");
            }
            _ => action.one_of(&["Count", "FailIndex", "FailJob", "Ignore"]),
        }
        let (codes, conditions) = (rule.on_exit_codes(), rule.on_pod_conditions());
        let omitted = |text: &str| {
            rule.report(FieldError::new("FieldValueInvalid", rule.path(), format!("Invalid value: {text}")));
        };
        if codes.is_set() {
            exit_codes(&codes, &names);
        }
        if conditions.len() > 20 {
            conditions.too_many(20);
        }
        for pattern in conditions.items() {
            pattern.type_().follows(qualified_name);
            let status = pattern.status();
            if status.has_text("valid values: [\"False\" \"True\" \"Unknown\"]") {
                status.one_of(&["False", "True", "Unknown"]);
            }
        }
        match (codes.is_set(), !conditions.is_empty()) {
            (true, true) => omitted("specifying both OnExitCodes and OnPodConditions is not supported"),
            (false, false) => omitted("specifying one of OnExitCodes and OnPodConditions is required"),
            _ => {}
        }
    }
}

fn exit_codes(codes: &Field<'_, PodFailurePolicyOnExitCodesRequirement>, names: &HashSet<&str>) {
    let operator = codes.operator();
    if operator.has_text("valid values: [\"In\" \"NotIn\"]") {
        operator.one_of(&["In", "NotIn"]);
    }
    let container = codes.container_name();
    if container.is_set() && !names.contains(container.text()) {
        container.invalid("must be one of the container or initContainer names in the pod template");
    }
    let values = codes.values();
    if values.is_empty() {
        values.invalid("at least one value is required");
    } else if values.len() > 255 {
        values.too_many(255);
    }
    let mut seen = HashSet::new();
    let mut last = i64::MIN;
    let mut ordered = true;
    for value in values.items() {
        let code = value.or(0);
        if operator.text() == "In" && code == 0 {
            value.invalid("must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            value.duplicate();
        }
        ordered &= last <= code;
        last = code;
    }
    if !ordered {
        values.invalid("must be ordered");
    }
}

fn success_policy(spec: &Field<'_, JobSpec>) {
    let policy = spec.success_policy();
    if !policy.is_set() {
        return;
    }
    if spec.view().completion_mode().text() != "Indexed" {
        return policy.invalid("requires indexed completion mode");
    }
    let rules = policy.rules();
    if rules.is_empty() {
        rules.required("at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > 20 {
        rules.too_many(20);
    }
    let completions = spec.view().completions().or(0);
    for rule in rules.items() {
        let (count, indexes) = (rule.succeeded_count(), rule.succeeded_indexes());
        if !count.is_set() && !indexes.is_set() {
            rule.required("at least one of succeededCount or succeededIndexes must be specified");
        }
        let total = indexes.is_set().then(|| succeeded_indexes(&indexes, completions));
        count.non_negative();
        if count.int().is_some_and(|count| count > completions) {
            count.invalid(format!(
                "must be less than or equal to {completions} (the number of specified completions)"
            ));
        }
        if let (Some(wanted), Some(total)) = (count.int(), total)
            && wanted > total
        {
            count.invalid(format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            ));
        }
    }
}

/// How many indexes a rule names; none if it is wrong.
fn succeeded_indexes(indexes: &Field<'_, Text>, completions: i64) -> i64 {
    if indexes.text().len() > MAX_INDEXES {
        indexes.too_long(MAX_INDEXES);
    }
    count_indexes(indexes.text(), completions).unwrap_or_else(|why| {
        indexes.invalid(format!("error parsing succeededIndexes: {why}"));
        0
    })
}

/// How many indexes a list such as `0,2-4` names, or what is wrong with it.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None);
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (low, high) = interval(part, completions)?;
        if let Some(previous) = last.filter(|previous| *previous >= low) {
            return Err(format!("non-increasing order, previous: {previous}, current: {low}"));
        }
        total += high - low + 1;
        last = Some(high);
    }
    Ok(total)
}

/// An index such as `2`, or several such as `2-4`.
fn interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let bound = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {text:?}")),
        Ok(index) if index >= completions => Err(format!("too large index: {text:?}")),
        Ok(index) => Ok(index),
    };
    let Some((low, high)) = part.split_once('-') else {
        return bound(part).map(|index| (index, index));
    };
    if high.contains('-') {
        return Err(format!(
            "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        ));
    }
    let (low, high) = (bound(low)?, bound(high)?);
    if low >= high {
        return Err(format!("non-increasing order, previous: {low}, current: {high}"));
    }
    Ok((low, high))
}

/// A change of a Job.
pub fn job_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = Job::of(old);
    walk_as::<Job>(new, errors, |root| {
        let (spec, before) = (root.spec(), old.spec());
        let completions = spec.completions();
        if spec.view().completion_mode().text() != "Indexed" {
            completions.immutable(before.completions());
        } else if completions.is_set()
            && !completions.view().same_as(before.completions())
            && !completions.view().same_as(spec.view().parallelism())
        {
            completions.invalid("can only be modified in tandem with spec.parallelism");
        }
        spec.selector().immutable(before.selector());
        job_template::update(&spec.template(), old);
        spec.completion_mode().immutable(before.completion_mode());
        spec.pod_failure_policy().immutable(before.pod_failure_policy());
        spec.backoff_limit_per_index().immutable(before.backoff_limit_per_index());
        spec.managed_by().immutable(before.managed_by());
        spec.success_policy().immutable(before.success_policy());
    });
}

/// A CronJob.
pub fn cron_job(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<CronJob>(object, errors, |root| {
        let spec = root.spec();
        let schedule = spec.schedule();
        if schedule.has_text("")
            && let Err(why) = cron::parse(schedule.text())
        {
            schedule.invalid(why.to_string());
        }
        if schedule.text().contains("TZ") {
            schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        }
        spec.starting_deadline_seconds().non_negative();
        spec.concurrency_policy().required_one_of(&["Allow", "Forbid", "Replace"]);
        let job = spec.job_template().spec();
        job_spec(&job);
        if job.selector().is_set() {
            job.selector().invalid("`selector` will be auto-generated");
        }
        if job.view().manual_selector().flag() {
            job.manual_selector().unsupported(&["nil", "false"]);
        }
        spec.successful_jobs_history_limit().non_negative();
        spec.failed_jobs_history_limit().non_negative();
    });
}

/// A new CronJob's name leaves room for the names of its Jobs.
pub fn new_cron_job(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<CronJob>(object, errors, |root| {
        if root.view().metadata().name().text().len() > 52 {
            root.metadata().name().invalid("must be no more than 52 characters");
        }
        time_zone(&root.spec().time_zone());
        pods::new_template(&root.spec().job_template().spec().template(), None);
    });
}

/// A changed CronJob: a time zone that was accepted before may stay.
pub fn cron_job_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<CronJob>(new, errors, |root| {
        let zone = root.spec().time_zone();
        let before = CronJob::of(old).spec().time_zone();
        if zone.view().get() != before.get() {
            time_zone(&zone);
        }
        let before = CronJob::of(old).spec().job_template().spec().template();
        pods::new_template(&root.spec().job_template().spec().template(), Some(before));
    });
}

/// A time zone by its IANA name as Go knows it, in exactly this case: `Europe/Berlin`, not `europe/berlin`.
pub fn time_zone_named(name: &str) -> Option<TimeZone> {
    let zone = TimeZone::get(name).ok().filter(|zone| !zone.is_unknown())?;
    (zone.iana_name() == Some(name)).then_some(zone)
}

fn time_zone(zone: &Field<'_, Text>) {
    if !zone.is_set() {
        return;
    }
    if zone.text().is_empty() {
        return zone.invalid("timeZone must be nil or non-empty string");
    }
    let sane = |part: &str| {
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+'))
    };
    if !zone.text().split('/').all(sane) {
        return zone.invalid(format!("unknown time zone {}", zone.text()));
    }
    if zone.text().eq_ignore_ascii_case("local") {
        zone.invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    }
    // Go knows "Local" as that of the server.
    if zone.text() != "Local" && time_zone_named(zone.text()).is_none() {
        zone.invalid(format!("unknown time zone {}", zone.text()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, errors};
    use super::*;
    use serde_json::json;

    fn job_with(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        crate::defaults::jobs::job(&mut object);
        // What the strategy adds before validation.
        if object["spec"]["manualSelector"] != true {
            object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}});
            let labels = &mut object["spec"]["template"]["metadata"]["labels"];
            for (key, value) in [("job-name", "j"), ("controller-uid", "u")] {
                labels[key] = json!(value);
                labels[format!("batch.kubernetes.io/{key}")] = json!(value);
            }
        }
        object
    }

    #[test]
    fn jobs() {
        assert_eq!(errors(job, &job_with(json!({}))), [""; 0]);
        assert_eq!(errors(job, &job_with(json!({"managedBy": "acme.io/foo"}))), [""; 0]);
        let codes = |values: Value| json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": values}}]});
        let cases = [
            (
                json!({"managedBy": "foo"}),
                "spec.managedBy: Invalid value: \"foo\": must be a domain-prefixed path (such as \"acme.io/foo\")",
            ),
            (
                json!({"parallelism": -1}),
                "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"completionMode": "Indexed", "parallelism": 1}),
                "spec.completions: Required value: when completion mode is Indexed",
            ),
            (
                json!({"backoffLimitPerIndex": 1}),
                "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
            ),
            (
                json!({"podFailurePolicy": codes(json!([2, 1]))}),
                "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,1]: must be ordered",
            ),
            (
                json!({"podFailurePolicy": codes(json!([0]))}),
                "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
            ),
            (
                json!({"completionMode": "Indexed", "completions": 3, "successPolicy": {"rules": [{"succeededIndexes": "0-5"}]}}),
                "spec.successPolicy.rules[0].succeededIndexes: Invalid value: \"0-5\": error parsing succeededIndexes: too large index: \"5\"",
            ),
            (
                json!({"completionMode": "Indexed", "completions": 100_001, "parallelism": 1, "backoffLimitPerIndex": 1}),
                "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
            ),
            (
                json!({"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001, "backoffLimitPerIndex": 1, "maxFailedIndexes": 1}),
                "spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index",
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(errors(job, &job_with(spec.clone())), [expected], "{spec}");
        }
        let mut always = job_with(json!({}));
        always["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
        assert_eq!(
            errors(job, &always),
            ["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""]
        );
    }

    #[test]
    fn lists_of_indexes() {
        let order =
            |last: i64, index: i64| Err(format!("non-increasing order, previous: {last}, current: {index}"));
        let number = |text: &str| Err(format!("cannot convert string to integer for index: {text:?}"));
        for (text, wanted) in [
            ("", Ok(0)),
            ("0,2-4", Ok(4)),
            ("2,2", order(2, 2)),
            ("4-2", order(4, 2)),
            ("2-2", order(2, 2)),
            ("9", Err("too large index: \"9\"".to_owned())),
            ("0,", number("")),
            ("a", number("a")),
        ] {
            assert_eq!(count_indexes(text, 5), wanted, "{text}");
        }
        assert!(
            count_indexes("1-2-3", 5).is_err_and(|why| why.starts_with("the fragment \"1-2-3\" violates"))
        );
    }

    #[test]
    fn generated_selectors() {
        let mut selected = job_with(json!({}));
        selected["spec"]["selector"] = json!({"matchLabels": {"controller-uid": "u"}});
        assert_eq!(errors(job, &selected), [""; 0]);
        let labels = &mut selected["spec"]["template"]["metadata"]["labels"];
        labels["a"] = json!("b");
        selected["spec"]["selector"] = json!({"matchLabels": {"a": "b"}});
        assert_eq!(
            errors(job, &selected),
            ["spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: `selector` not auto-generated"]
        );
    }

    #[test]
    fn a_jobs_pods_are_fixed() {
        let old = job_with(json!({}));
        let mut new = old.clone();
        new["spec"]["parallelism"] = json!(2);
        assert_eq!(changes(job_update, &new, &old), [""; 0]);
        new["spec"]["template"]["spec"]["nodeSelector"] = json!({"a": "b"});
        assert!(changes(job_update, &new, &old)[0].ends_with("field is immutable"));
        let mut suspended = old.clone();
        suspended["spec"]["suspend"] = json!(true);
        assert_eq!(changes(job_update, &new, &suspended), [""; 0]);
    }

    #[test]
    fn cron_jobs() {
        let cron = |schedule: &str, zone: Value| {
            let mut object = json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {"schedule": schedule, "timeZone": zone,
                "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}});
            crate::defaults::jobs::cron_job(&mut object);
            object
        };
        assert_eq!(errors(cron_job, &cron("*/5 * * * *", json!("Europe/Berlin"))), [""; 0]);
        assert_eq!(
            errors(cron_job, &cron("never", json!("UTC"))),
            ["spec.schedule: Invalid value: \"never\": expected exactly 5 fields, found 1: [never]"]
        );
        let old = cron("*/5 * * * *", json!("europe/berlin"));
        assert_eq!(changes(cron_job_update, &cron("1 * * * *", json!("europe/berlin")), &old), [""; 0]);
        assert_eq!(changes(cron_job_update, &cron("1 * * * *", json!("europe/paris")), &old).len(), 1);
        let explicit =
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned();
        let unknown = |zone: &str| format!("unknown time zone {zone}");
        for (zone, said) in [
            ("UTC", vec![]),
            ("Etc/UTC", vec![]),
            ("America/New_York", vec![]),
            ("US/Eastern", vec![]),
            ("utc", vec![unknown("utc")]),
            ("europe/berlin", vec![unknown("europe/berlin")]),
            ("EUROPE/BERLIN", vec![unknown("EUROPE/BERLIN")]),
            ("Etc/Unknown", vec![unknown("Etc/Unknown")]),
            ("Europe/../UTC", vec![unknown("Europe/../UTC")]),
            ("Local", vec![explicit.clone()]),
            ("local", vec![explicit, unknown("local")]),
            ("", vec!["timeZone must be nil or non-empty string".to_owned()]),
        ] {
            let wanted: Vec<String> =
                said.iter().map(|why| format!("spec.timeZone: Invalid value: {zone:?}: {why}")).collect();
            assert_eq!(errors(new_cron_job, &cron("*/5 * * * *", json!(zone))), wanted, "{zone}");
        }
    }
}
