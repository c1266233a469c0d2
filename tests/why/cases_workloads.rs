//! Workloads whose pods run on real nodes, and what depends on these pods.

use crate::case::{Case, busybox, deployment, idle, object, shell};

/// A Job `j` from more of its spec and the fields of its pods' spec.
fn job(more: &str, spec: &str) -> String {
    let template =
        format!("template: {{spec: {{restartPolicy: Never, terminationGracePeriodSeconds: 1, {spec}}}}}");
    object("batch/v1", "Job", "j", &format!("spec: {{{more}, {template}}}"))
}

fn slow() -> String {
    busybox(
        "command: [sleep, '100000'], readinessProbe: {exec: {command: ['true']}, initialDelaySeconds: 1000}",
    )
}

fn labelled(spec: &str) -> String {
    format!(
        "selector: {{matchLabels: {{app: d}}}}, template: {{metadata: {{labels: {{app: d}}}}, \
         spec: {{terminationGracePeriodSeconds: 1, {spec}}}}}"
    )
}

pub fn cases() -> Vec<Case> {
    let service = |port: &str| {
        object(
            "v1",
            "Service",
            "s",
            &format!("spec: {{selector: {{app: d}}, ports: [{{port: 80, {port}}}]}}"),
        )
    };
    let policy = "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}, backoffLimit: 3";
    let served = busybox("command: [httpd, -f, -p, '8080'], ports: [{containerPort: 8080}]");
    let scaled = "spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}, maxReplicas: 2, \
                  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}";
    vec![
        Case::new("job-backoff-limit-exceeded", "job/j", "Job/j", &job("backoffLimit: 0", &shell("echo wrong; exit 1")))
            .because("backoffLimit 0")
            .says("condition Failed: BackoffLimitExceeded", "create the Job again")
            .also(&["exit-code"])
            // The list has the cause, which is that of the pod.
            .alone(),
        Case::new("job-deadline-exceeded", "job/j", "Job/j", &job("activeDeadlineSeconds: 3", &idle()))
            .because("activeDeadlineSeconds of 3 s")
            .says("condition Failed: DeadlineExceeded", "raise spec.activeDeadlineSeconds")
            .also(&["killed-by-signal", "termination-grace-period", "exit-code", "deadline-exceeded"]),
        Case::new("job-failed", "job/j", "Job/j", &job(policy, &shell("exit 42")))
            .because("the Job has failed: PodFailurePolicy: ")
            .says("PodFailurePolicy", "create the Job again")
            .also(&["exit-code"]),
        Case::deployment("progress-deadline-exceeded", "replicas: 1, progressDeadlineSeconds: 5", &slow())
            .of("Deployment/d")
            .because("no progress for 5 s")
            .says("condition Progressing", "kubectl rollout undo deployment/d")
            // Nothing says of a pod whose probe has not begun why it is not ready.
            .also(&["unexplained"])
            .alone(),
        Case::new(
            "stateful-set-waits",
            "statefulset/d",
            "StatefulSet/d",
            &object("apps/v1", "StatefulSet", "d", &format!("spec: {{replicas: 2, {}}}", labelled(&slow()))),
        )
        .because("pod d-0 is not ready, and the 1 pods after it wait for it")
        .says("1 of 2 are made", "podManagementPolicy: Parallel")
        .alone(),
        Case::new(
            "daemon-set-no-nodes",
            "daemonset/d",
            "DaemonSet/d",
            &object(
                "apps/v1",
                "DaemonSet",
                "d",
                &format!("spec: {{{}}}", labelled(&format!("nodeSelector: {{w-disk: none}}, {}", idle()))),
            ),
        )
        .because("none of the 3 nodes matches the DaemonSet's nodeSelector, affinity and tolerations")
        .says("has no label w-disk=none", "label a node"),
        Case::new("service-without-ready-endpoints", "service/s", "Service/s", &service("targetPort: 80"))
            .with(&deployment("replicas: 1", &slow()))
            .because("pod of the Service")
            .says("pods: d-", "readiness probes")
            .alone(),
        Case::new("service-target-port-undeclared", "service/s", "Service/s", &service("targetPort: 8081"))
            .with(&deployment("replicas: 1", &served))
            .because("port 80 leads to port 8081, which the selected pods do not declare: they declare 8080")
            .says("8080", "spec.ports[].targetPort")
            .undated()
            .mended_by(r#"patch service s --type=json -p '[{"op":"replace","path":"/spec/ports/0/targetPort","value":8080}]'"#),
        // Its probe has not begun, and nothing has failed.
        Case::pod("unexplained", &slow())
            .because("nothing that was looked at says why")
            .says("phase: Running", "")
            .alone(),
        // A Service answers with the cause of its pods.
        Case::new("exit-code", "service/s", "Pod/d-", &service("targetPort: 80"))
            .named("service-of-crashing-pods")
            .with(&deployment("replicas: 1", &shell("echo no licence; exit 7")))
            .because("container c fails with exit code 7 (an error of the program's own)")
            .says("no licence", "kubectl logs"),
        Case::new("budget-blocks-drain", "pdb/b", "PodDisruptionBudget/b", &object("policy/v1", "PodDisruptionBudget", "b", "spec: {minAvailable: 1, selector: {matchLabels: {app: d}}}"))
            .with(&deployment("replicas: 1", &idle()))
            .because("the budget never allows an eviction: it wants 1 of 1 pods (minAvailable 1)")
            .says("1 of 1 pods are healthy", "minAvailable")
            .mended_by("scale deployment d --replicas=2"),
        Case::new("autoscaler-without-requests", "hpa/h", "HorizontalPodAutoscaler/h", &object("autoscaling/v2", "HorizontalPodAutoscaler", "h", scaled))
            .with(&deployment("replicas: 1", &idle()))
            .because("the autoscaler cannot compute a utilization: ")
            .says("missing request for cpu", "resources.requests")
            .also(&["autoscaler-without-metrics"]),
        Case::new("namespace-content-remains", "namespace/$NS", "Namespace/$NS", &stubborn())
            .then("wait --for=condition=Ready pod/p --timeout=120s")
            .then("delete namespace $NS --wait=false")
            .because("the namespace still has objects: ")
            .says("condition Namespace", "kubectl api-resources"),
    ]
}

/// A pod that takes an hour to end.
fn stubborn() -> String {
    "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {terminationGracePeriodSeconds: 3600, containers: [{name: c, image: busybox, \
     command: [sh, -c, \"trap '' TERM; while :; do sleep 1; done\"]}]}}"
        .to_owned()
}
