//! Jobs and CronJobs.

use super::{Room, shell};

fn job(name: &str, spec: &str, line: &str) -> String {
    let pod = shell(line).replacen('{', "{restartPolicy: Never, ", 1);
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n{spec}  template: {{spec: {pod}}}\n"
    )
}

pub fn jobs(room: &Room) {
    room.apply(&job("six", "  completions: 6\n  parallelism: 3\n", "exit 0"));
    room.run("wait --for=condition=Complete job/six --timeout=120s");
    assert_eq!(room.run("get job six -o jsonpath={.status.succeeded}"), "6");
    assert_eq!(room.run("get job six -o jsonpath={.status.uncountedTerminatedPods}"), "{}");
    assert_eq!(room.pods().len(), 6);
    let finalizers = "get pods -l job-name=six -o jsonpath={.items[*].metadata.finalizers}";
    assert_eq!(room.run(finalizers), "");

    room.apply(&job("bad", "  backoffLimit: 1\n", "exit 7"));
    room.run("wait --for=condition=Failed job/bad --timeout=120s");
    let failed = |name: &str, field: &str| {
        room.run(&format!("get job {name} -o jsonpath={{.status.conditions[?(@.type==\"Failed\")].{field}}}"))
    };
    assert_eq!(failed("bad", "reason"), "BackoffLimitExceeded");
    assert_eq!(room.run("get job bad -o jsonpath={.status.failed}"), "2");

    // An exit code that ends it at once.
    let policy = "  backoffLimit: 6\n  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}\n";
    room.apply(&job("final", policy, "exit 42"));
    room.run("wait --for=condition=Failed job/final --timeout=120s");
    assert_eq!(failed("final", "reason"), "PodFailurePolicy");
    let why = failed("final", "message");
    assert!(why.contains("failed with exit code 42 matching FailJob rule at index 0"), "{why}");

    // A pod that was evicted is no failure of the job's.
    let policy = "  backoffLimit: 0\n  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}\n";
    room.apply(&job("evicted", policy, "sleep 3600"));
    let names = "get pods -l job-name=evicted --field-selector=status.phase=Running -o jsonpath={.items[*].metadata.name}";
    room.until_with(names, |names| names.starts_with("evicted-"));
    let first = room.run(names);
    assert!(room.evict(&first, "").ok);
    room.until_with(names, |names| names.starts_with("evicted-") && names != first);
    assert_eq!(room.run("get job evicted -o jsonpath={.status.failed}"), "");
    room.run("delete job evicted --wait");
    room.until("get pods -l job-name=evicted -o name", "");

    room.apply(&job("held", "  suspend: true\n", "exit 0"));
    room.until("get job held -o jsonpath={.status.conditions[?(@.type==\"Suspended\")].status}", "True");
    assert!(room.pods().iter().all(|pod| !pod.starts_with("held-")));
    room.run(r#"patch job held -p '{"spec":{"suspend":false}}'"#);
    room.run("wait --for=condition=Complete job/held --timeout=120s");

    room.apply(&job("late", "  activeDeadlineSeconds: 1\n", "sleep 3600"));
    room.run("wait --for=condition=Failed job/late --timeout=120s");
    assert_eq!(failed("late", "reason"), "DeadlineExceeded");

    room.apply(&job("brief", "  ttlSecondsAfterFinished: 1\n", "exit 0"));
    room.run("wait --for=delete job/brief --timeout=120s");
    room.until("get pods -l job-name=brief -o name", "");
}

pub fn indexed_jobs(room: &Room) {
    let spec = "  completionMode: Indexed\n  completions: 4\n  parallelism: 4\n  backoffLimitPerIndex: 0\n";
    room.apply(&job("half", spec, "exit $(($JOB_COMPLETION_INDEX % 2))"));
    room.run("wait --for=condition=Failed job/half --timeout=120s");
    assert_eq!(room.run("get job half -o jsonpath={.status.completedIndexes}"), "0,2");
    assert_eq!(room.run("get job half -o jsonpath={.status.failedIndexes}"), "1,3");
    let reason = room.run("get job half -o jsonpath={.status.conditions[?(@.type==\"Failed\")].reason}");
    assert_eq!(reason, "FailedIndexes");

    // Enough when the first has succeeded.
    let spec = "  completionMode: Indexed\n  completions: 3\n  parallelism: 3\n  successPolicy: {rules: [{succeededIndexes: \"0\"}]}\n";
    room.apply(&job("leader", spec, "test $JOB_COMPLETION_INDEX = 0 || sleep 3600"));
    room.run("wait --for=condition=Complete job/leader --timeout=120s");
    let reason =
        room.run("get job leader -o jsonpath={.status.conditions[?(@.type==\"SuccessCriteriaMet\")].reason}");
    assert_eq!(reason, "SuccessPolicy");
    room.until("get pods -l job-name=leader --field-selector=status.phase=Running -o name", "");
}

pub fn cron(room: &Room) {
    let pod = shell("sleep 3600").replacen('{', "{restartPolicy: Never, ", 1);
    room.apply(&format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: tick}}\nspec:\n  schedule: \"* * * * *\"\n  timeZone: Etc/UTC\n\
         \x20 concurrencyPolicy: Forbid\n  jobTemplate: {{spec: {{template: {{spec: {pod}}}}}}}\n"
    ));
    room.run("create job now --from=cronjob/tick");
    room.until("get pods -l job-name=now -o jsonpath={.items[*].status.phase}", "Running");
    // What a person starts is out of turn and stands in nobody's way.
    room.until_with(
        "get events --field-selector reason=UnexpectedJob -o jsonpath={.items[*].message}",
        |said| said.starts_with("Saw a job that the controller did not create or forgot: now"),
    );
    room.until_with("get cronjob tick -o jsonpath={.status.active[*].name}", |name| {
        name.starts_with("tick-")
    });
    let at = room.run("get cronjob tick -o jsonpath={.status.lastScheduleTime}");
    assert!(at.ends_with(":00Z"), "on the minute: {at}");
    assert_eq!(room.run("get job now -o jsonpath={.status.active}"), "1");
    room.run(r#"patch cronjob tick -p '{"spec":{"suspend":true}}'"#);
    room.run("delete cronjob tick --wait");
    room.until_with("get jobs -o name", |jobs| !jobs.contains("job.batch/tick-"));
}
