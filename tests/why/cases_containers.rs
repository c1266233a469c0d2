//! Containers that cannot be created, or that end.

use crate::case::{Case, busybox, idle, object, shell};

/// A container with more fields that would run.
fn idle_with(fields: &str) -> String {
    busybox(&format!("command: [sleep, '100000'], {fields}"))
}

/// A request to the API server as the pod's own account, which is refused.
const LIST_PODS: &str = "containers: [{name: c, image: coracle.local/tools, imagePullPolicy: IfNotPresent, command: [sh, -c, \
    'curl -sk -H \"Authorization: Bearer $(cat /var/run/secrets/kubernetes.io/serviceaccount/token)\" \
    https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/$NS/pods; exit 1']}]";

pub fn created() -> Vec<Case> {
    let volume = |source: &str, mount: &str| {
        let mounted = idle_with(&format!("volumeMounts: [{{name: v, mountPath: /v{mount}}}]"));
        format!("volumes: [{{name: v, {source}}}], {mounted}")
    };
    let from = |kind: &str, name: &str| {
        idle_with(&format!("env: [{{name: A, valueFrom: {{{kind}: {{name: {name}, key: wrong}}}}}}]"))
    };
    vec![
        Case::pod("config-map-missing", &idle_with("envFrom: [{configMapRef: {name: settings}}]"))
            .because("the ConfigMap settings does not exist")
            .says("settings", "create the ConfigMap settings")
            .mended_by("create configmap settings --from-literal=a=b"),
        Case::pod("config-map-missing", &volume("configMap: {name: settings}", ""))
            .named("config-map-volume-missing")
            .because("the ConfigMap settings does not exist (volume v)")
            .says("FailedMount", "create the ConfigMap settings"),
        Case::pod("config-map-key-missing", &from("configMapKeyRef", "settings"))
            .with(&object("v1", "ConfigMap", "settings", "data: {right: '1'}"))
            .because("has no key wrong")
            .says("settings", "add the key wrong"),
        Case::pod("secret-missing", &volume("secret: {secretName: keys}", ""))
            .because("the Secret keys does not exist")
            .says("keys", "create the Secret keys")
            .mended_by("create secret generic keys --from-literal=a=b"),
        Case::pod("secret-key-missing", &from("secretKeyRef", "keys"))
            .with(&object("v1", "Secret", "keys", "stringData: {right: '1'}"))
            .because("has no key wrong")
            .says("keys", "add the key wrong"),
        Case::pod("run-as-non-root", &idle_with("securityContext: {runAsNonRoot: true}"))
            .because("container c has runAsNonRoot, and image busybox runs as root")
            .says("image will run as root", "securityContext.runAsUser"),
        Case::pod("sub-path-invalid", &volume("emptyDir: {}", ", subPathExpr: $(NOBODY)"))
            .because("container c: a subPath cannot be mounted: ")
            .says("missing value", "volumeMounts[].subPath"),
        Case::pod("volume-mount-failed", &volume("hostPath: {path: /no/such, type: Directory}", ""))
            .because("a volume cannot be mounted: ")
            .says("FailedMount", "correct the volume"),
        Case::pod("sandbox-failed", &format!("runtimeClassName: $NS, {}", idle()))
            .with(&object("node.k8s.io/v1", "RuntimeClass", "$NS", "handler: nobody"))
            .because("the pod's sandbox or network cannot be set up: ")
            .says("FailedCreatePodSandBox", "network plugin"),
        Case::pod(
            "node-rejected-pod",
            &format!("nodeName: node-1, {}", idle_with("resources: {requests: {cpu: '1000'}}")),
        )
        .because("the node rejected the pod: OutOfcpu on node node-1")
        .says("OutOfcpu", "kubectl delete pod/p"),
    ]
}

pub fn ended() -> Vec<Case> {
    vec![
        Case::pod("command-not-found", &busybox("command: [no-such-program]"))
            .because("container c: its command is not in image busybox: ")
            .says("executable file not found", "correct command and args"),
        Case::pod("command-not-found", &shell("no-such-program"))
            .named("command-not-found-by-shell")
            .because("container c: a command was not found in image busybox (exit code 127)")
            .says("exit code 127", "correct command and args"),
        Case::pod("command-not-executable", &busybox("command: [/etc/passwd]"))
            .because("container c: its command cannot be executed: ")
            .says("permission denied", "executable"),
        Case::pod("container-create-failed", &busybox("command: [sleep, '100000'], workingDir: /etc/passwd"))
            .because("container c cannot be created: ")
            .says("not a directory", "correct what the message names"),
        Case::pod("exit-code", &shell("echo boom; exit 3"))
            .because("container c fails with exit code 3 (an error of the program's own)")
            .says("boom", "kubectl logs"),
        Case::pod("killed-by-signal", &shell("sh -c \"kill -SEGV \\$\\$\"; exit $?"))
            .because("container c was ended by SIGSEGV (11) (exit code 139)")
            .says("SIGSEGV", "kubectl logs"),
        Case::pod("ends-successfully", &busybox("command: ['true']"))
            .because("container c ends successfully, and is restarted because restartPolicy is Always")
            .says("exit code 0", "use a Job"),
        Case::pod(
            "init-container-fails",
            &format!("initContainers: [{{name: i, image: busybox, command: [sh, -c, 'echo no database; exit 1']}}], {}", idle()),
        )
        .because("init container i fails with exit code 1 (an error), so the others do not start")
        .says("no database", "kubectl logs"),
        Case::pod(
            "init-container-runs",
            &format!("initContainers: [{{name: i, image: busybox, command: [sh, -c, 'until false; do echo waiting for db; sleep 1; done']}}], {}", idle()),
        )
        .because("has not ended, so the other containers do not start")
        .says("waiting for db", "kubectl logs"),
        Case::pod("service-account-forbidden", LIST_PODS)
            .because("may not list pods")
            .says("container c, last end", "kubectl create role default"),
        Case::pod("evicted", &format!("volumes: [{{name: v, emptyDir: {{sizeLimit: 1Mi}}}}], {}", busybox(
            "command: [sh, -c, 'dd if=/dev/zero of=/v/big bs=1M count=4; sleep 100000'], volumeMounts: [{name: v, mountPath: /v}]",
        )))
        .because("exceeds the limit")
        .says("event Evicted", "set requests"),
        Case::pod("deadline-exceeded", &format!("activeDeadlineSeconds: 2, {}", idle()))
            .because("longer than its activeDeadlineSeconds of 2 s")
            .says("status", "raise spec.activeDeadlineSeconds"),
    ]
}

/// Needs the memory controller of cgroups.
pub fn out_of_memory() -> Case {
    Case::pod("out-of-memory", &busybox("command: [tail, /dev/zero], resources: {limits: {memory: 16Mi}}"))
        .because("its limit is 16Mi")
        .says("OOMKilled", "raise resources.limits.memory")
}
