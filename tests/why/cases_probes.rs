//! Probes, hooks, gates, and pods that are being deleted.

use crate::case::{Case, busybox, idle};

fn probed(probe: &str) -> String {
    busybox(&format!("command: [sleep, '100000'], {probe}"))
}

/// An HTTP server on port 8080 that has no pages.
fn server(probe: &str) -> String {
    busybox(&format!("command: [httpd, -f, -p, '8080'], ports: [{{containerPort: 8080}}], {probe}"))
}

/// Ignores SIGTERM.
const STUBBORN: &str = "command: [sh, -c, \"trap '' TERM; while :; do sleep 1; done\"]";

pub fn cases() -> Vec<Case> {
    let long = |fields: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{terminationGracePeriodSeconds: 3600, \
             containers: [{{name: c, image: busybox, {STUBBORN}{fields}}}]}}}}"
        )
    };
    let deleted = |case: Case| {
        case.then("wait --for=condition=Ready pod/p --timeout=120s").then("delete pod p --wait=false").alone()
    };
    let hook = |command: &str| format!(", lifecycle: {{preStop: {{exec: {{command: {command}}}}}}}");
    vec![
        Case::pod("liveness-probe-fails", &probed("livenessProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 1}"))
            .because("the liveness probe of container c fails, so it is restarted")
            .says("run false", "livenessProbe of container c"),
        Case::pod(
            "readiness-probe-fails",
            &probed("readinessProbe: {exec: {command: [sh, -c, 'echo database is away; false']}, periodSeconds: 1}"),
        )
        .because("the readiness probe of container c fails, so it gets no traffic: ")
        .says("database is away", "readinessProbe of container c"),
        Case::pod("startup-probe-fails", &probed("startupProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 1}"))
            .because("the startup probe of container c fails, so it is restarted")
            .says("run false", "startupProbe of container c"),
        Case::pod("probe-port-wrong", &server("readinessProbe: {tcpSocket: {port: 8081}, periodSeconds: 1}"))
            .because("nothing listens on port 8081; it declares 8080")
            .says("connect to port 8081", "set the port"),
        Case::pod("probe-status", &server("readinessProbe: {httpGet: {path: /healthy, port: 8080}, periodSeconds: 1}"))
            .because("GET /healthy is answered with status 404")
            .says("GET /healthy on port 8080", "set the path"),
        Case::pod("probe-timeout", &probed("readinessProbe: {exec: {command: [sleep, '10']}, periodSeconds: 2, timeoutSeconds: 1}"))
            .because("no answer within 1 s")
            .says("timeout 1 s", "raise timeoutSeconds"),
        Case::pod("readiness-gate-unfulfilled", &format!("readinessGates: [{{conditionType: example.com/lb}}], {}", idle()))
            .because("all containers are ready, but the readiness gate example.com/lb is not fulfilled")
            .says("example.com/lb", "the controller of the gate")
            .mended_by(r#"patch pod p --subresource=status --type=strategic -p '{"status":{"conditions":[{"type":"example.com/lb","status":"True"}]}}'"#),
        Case::pod("post-start-hook-fails", &probed("lifecycle: {postStart: {exec: {command: ['false']}}}"))
            .because("the postStart hook of container c fails, and the container is killed")
            .says("FailedPostStartHook", "lifecycle.postStart"),
        Case::pod(
            "post-start-hook-fails",
            &probed("lifecycle: {postStart: {exec: {command: [sh, -c, 'echo no database; exit 4']}}}"),
        )
        .named("post-start-hook-output")
        .because("the postStart hook of container c fails, and the container is killed")
        .says("exited with 4: no database", "lifecycle.postStart"),
        Case::pod("post-start-hook-fails", &probed("lifecycle: {postStart: {exec: {command: [sleep, '100000']}}}"))
            .named("post-start-hook-hangs")
            .because("has not ended yet")
            .says("event ", "lifecycle.postStart"),
        deleted(Case::new("pre-stop-hook-fails", "pod/p", "Pod/p", &long(&hook("[no-such-program]"))))
            .because("the preStop hook of container c failed while the pod was being deleted")
            .says("FailedPreStopHook", "lifecycle.preStop"),
        deleted(Case::new("termination-grace-period", "pod/p", "Pod/p", &long("")))
            .because("have 3600 s to end")
            .says("deleted at the latest", "--grace-period=1"),
        deleted(Case::new("pre-stop-hook-fails", "pod/p", "Pod/p", &long(&hook("[sleep, '100000']"))))
            .named("pre-stop-hook-hangs")
            .because("container c has a preStop hook and has not ended since the pod was deleted")
            .says("sleep 100000", "kubectl delete pod/p"),
    ]
}
