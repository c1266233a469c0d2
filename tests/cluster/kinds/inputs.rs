//! What controllers cannot work with, and what is said of it.

use super::{Room, shell};

pub fn refused(room: &Room) {
    let deployment = |replicas: i32, label: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: bad}}\nspec:\n  replicas: {replicas}\n  selector: {{matchLabels: \
             {{app: bad}}}}\n  template:\n    metadata: {{labels: {{app: {label}}}}}\n    spec: {}\n",
            shell("exit 0")
        )
    };
    let cron = |schedule: &str, zone: &str| {
        let pod = shell("exit 0").replacen('{', "{restartPolicy: Never, ", 1);
        format!(
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: bad}}\nspec:\n  schedule: \"{schedule}\"\n  timeZone: {zone}\n\
             \x20 jobTemplate: {{spec: {{template: {{spec: {pod}}}}}}}\n"
        )
    };
    let cases = [
        (
            deployment(1, "other"),
            r#"spec.template.metadata.labels: Invalid value: {"app":"other"}: `selector` does not match template `labels`"#,
        ),
        (deployment(-1, "bad"), "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        (cron("every day", "Etc/UTC"), "spec.schedule: Invalid value: \"every day\": "),
        (cron("* * * * *", "Mars/Base"), "spec.timeZone: Invalid value: \"Mars/Base\": unknown time zone Mars/Base"),
        (
            format!("apiVersion: batch/v1\nkind: Job\nmetadata: {{name: bad}}\nspec: {{template: {{spec: {}}}}}\n", shell("exit 0")),
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ),
        (
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: bad}\nspec: {minAvailable: 1, maxUnavailable: 1}\n"
                .to_owned(),
            "minAvailable and maxUnavailable cannot be both set",
        ),
        (
            "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: bad}\nspec: {maxReplicas: 0, scaleTargetRef: \
             {kind: Deployment, name: x}}\n"
                .to_owned(),
            "spec.maxReplicas: Required value: must be set and greater than 0",
        ),
    ];
    for (manifest, why) in cases {
        let said = room.refused(&manifest);
        assert!(said.contains(why), "{said}\ninstead of\n{why}");
    }
    let twice = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: two\n  ownerReferences:\n  - {apiVersion: v1, kind: Pod, name: a, \
                 uid: a, controller: true}\n  - {apiVersion: v1, kind: Pod, name: b, uid: b, controller: true}\n";
    let said = room.refused(twice);
    assert!(said.contains("Only one reference can have Controller set to true"), "{said}");
}

pub fn quota(room: &Room) {
    room.run("create quota two --hard=pods=2");
    room.run("create deployment many --image=busybox --replicas=3 -- sleep 3600");
    let failure =
        "get replicasets -o jsonpath={.items[0].status.conditions[?(@.type==\"ReplicaFailure\")].message}";
    room.until_with(failure, |text| {
        text.contains("exceeded quota: two, requested: pods=1, used: pods=2, limited: pods=2")
    });
    room.until_with(
        "get events --field-selector reason=FailedCreate -o jsonpath={.items[0].message}",
        |text| {
            text.starts_with("Error creating: pods \"many-")
                && text.contains("is forbidden: exceeded quota: two")
        },
    );
    assert_eq!(room.pods().len(), 2);
    // The cause goes away.
    room.run(r#"patch quota two -p '{"spec":{"hard":{"pods":"3"}}}'"#);
    room.until("get deployment many -o jsonpath={.status.readyReplicas}", "3");
    room.until("get quota two -o jsonpath={.status.used.pods}", "3");
}
