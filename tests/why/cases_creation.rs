//! Workloads that cannot create their pods, or are not meant to; none of them needs a node.

use crate::case::{Case, busybox, deployment, idle, object};

/// A name of 59 letters: too long for the label of a revision.
const LONG: &str = "a-name-that-is-longer-than-the-label-of-a-pod-can-ever-hold";

/// Policies and webhooks count a moment after they were written.
const REFUSED: &str = "! run probe --image=probe --dry-run=server";

fn own(rules: &str) -> String {
    format!(
        "matchConstraints: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: $NS}}}}, resourceRules: [{rules}]}}"
    )
}

pub fn cases() -> Vec<Case> {
    let rule = "{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}";
    let policy = format!(
        "spec: {{failurePolicy: Fail, {}, validations: [{{expression: 'false', message: no pods on Sundays}}]}}",
        own(rule)
    );
    let hook = format!(
        "webhooks: [{{name: away.example.com, failurePolicy: Fail, sideEffects: None, admissionReviewVersions: [v1], \
         timeoutSeconds: 2, clientConfig: {{url: 'https://127.0.0.1:9/'}}, rules: [{rule}], \
         namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: $NS}}}}}}]"
    );
    let admission = "admissionregistration.k8s.io/v1";
    let job =
        |more: &str| format!("spec: {{{more}template: {{spec: {{restartPolicy: Never, {}}}}}}}", idle());
    let pods = "ports: [{port: 80}], selector: {app: d}";
    vec![
        Case::deployment("quota-refuses", "replicas: 2", &idle())
            .with(&object("v1", "ResourceQuota", "few", "spec: {hard: {pods: '1'}}"))
            .because("the quota few refuses new pods: requested: pods=1")
            .says("exceeded quota: few", "kubectl edit resourcequota few"),
        Case::new(
            "quota-exhausted",
            "quota/few",
            "ResourceQuota/few",
            &object("v1", "ResourceQuota", "few", "spec: {hard: {configmaps: '2'}}"),
        )
        .with(&object("v1", "ConfigMap", "c", "data: {}"))
        .because("the quota is used up: configmaps (2 of 2)")
        .says("configmaps (2 of 2)", "raise spec.hard")
        .undated()
        .mended_by(r#"patch quota few --type=merge -p '{"spec":{"hard":{"configmaps":"10"}}}'"#),
        Case::deployment(
            "limit-range-refuses",
            "replicas: 1",
            &busybox("resources: {limits: {memory: 20Mi}}"),
        )
        .with(&object(
            "v1",
            "LimitRange",
            "small",
            "spec: {limits: [{type: Container, max: {memory: 10Mi}}]}",
        ))
        .because("a LimitRange of namespace w-limit-range-refuses refuses the pods: ")
        .says("maximum memory usage per Container is 10Mi", "kubectl describe limitrange"),
        Case::deployment("pod-security-refuses", "replicas: 1", &idle())
            .labelled("pod-security.kubernetes.io/enforce: restricted")
            .because("pod security of namespace w-pod-security-refuses refuses the pods: PodSecurity")
            .says("violates PodSecurity", "securityContext"),
        Case::deployment("admission-refuses", "replicas: 1", &idle())
            .with(&object(
                admission,
                "ValidatingAdmissionPolicyBinding",
                "$NS",
                "spec: {policyName: $NS, validationActions: [Deny]}",
            ))
            .with(&object(admission, "ValidatingAdmissionPolicy", "$NS", &policy))
            .then(REFUSED)
            .then("delete pods --all --now")
            .because("admission refuses the pods: ")
            .says("no pods on Sundays", "or the policy"),
        Case::deployment("webhook-call-fails", "replicas: 1", &idle())
            .with(&object(admission, "ValidatingWebhookConfiguration", "$NS", &hook))
            .then(REFUSED)
            .then("delete pods --all --now")
            .because("the admission webhook away.example.com cannot be called, so no pod can be created")
            .says("failed calling webhook", "kubectl delete validatingwebhookconfiguration"),
        Case::deployment(
            "priority-class-missing",
            "replicas: 1",
            &format!("priorityClassName: nobody, {}", idle()),
        )
        .because("the PriorityClass nobody does not exist")
        .says("no PriorityClass with name nobody", "priorityClassName"),
        Case::deployment(
            "runtime-class-missing",
            "replicas: 1",
            &format!("runtimeClassName: nobody, {}", idle()),
        )
        .because("the RuntimeClass nobody does not exist")
        .says("RuntimeClass \"nobody\"", "runtimeClassName"),
        Case::deployment(
            "service-account-missing",
            "replicas: 1",
            &format!("serviceAccountName: nobody, {}", idle()),
        )
        .because("the ServiceAccount nobody does not exist")
        .says("serviceaccount \"nobody\"", "kubectl create serviceaccount nobody"),
        // A Service answers with what keeps its pods from being created.
        Case::new(
            "quota-refuses",
            "service/s",
            "ReplicaSet/d-",
            &object("v1", "Service", "s", &format!("spec: {{{pods}}}")),
        )
        .named("service-without-pods-by-quota")
        .with(&deployment("replicas: 1", &idle()))
        .with(&object("v1", "ResourceQuota", "none", "spec: {hard: {pods: '0'}}"))
        .because("the quota none refuses new pods: requested: pods=1")
        .says("exceeded quota: none", "kubectl edit resourcequota none"),
        Case::deployment("deployment-paused", "replicas: 1, paused: true", &idle())
            .of("Deployment/d")
            .because("the Deployment is paused: changes are not rolled out")
            .says("field spec.paused", "kubectl rollout resume"),
        Case::deployment("scaled-to-zero", "replicas: 0", &idle())
            .of("Deployment/d")
            .because("the workload is scaled to zero: it has no pods")
            .says("field spec.replicas", "kubectl scale")
            .undated(),
        Case::new("suspended", "job/j", "Job/j", &object("batch/v1", "Job", "j", &job("suspend: true, ")))
            .because("the Job is suspended: it has no pods")
            .says("field spec.suspend", "kubectl patch job/j"),
        Case::new(
            "suspended",
            "cronjob/j",
            "CronJob/j",
            &object(
                "batch/v1",
                "CronJob",
                "j",
                &format!("spec: {{schedule: '* * * * *', suspend: true, jobTemplate: {{{}}}}}", job("")),
            ),
        )
        .named("suspended-cron-job")
        .because("the CronJob is suspended: it makes no Jobs")
        .says("field spec.suspend", "kubectl patch cronjob/j")
        .undated()
        .mended_by(r#"patch cronjob j --type=merge -p '{"spec":{"suspend":false,"schedule":"0 0 1 1 *"}}'"#),
        Case::new(
            "cron-job-busy",
            "cronjob/j",
            "CronJob/j",
            &object(
                "batch/v1",
                "CronJob",
                "j",
                &format!(
                    "spec: {{schedule: '* * * * *', concurrencyPolicy: Forbid, jobTemplate: {{{}}}}}",
                    job("")
                ),
            ),
        )
        .also(&["no-nodes"])
        .because("still runs, and concurrencyPolicy Forbid skips the next ones")
        .says("JobAlreadyActive", "let the Job end"),
        Case::new(
            "stateful-set-service-missing",
            "statefulset/d",
            "StatefulSet/d",
            &deployment("replicas: 1, serviceName: nobody", &idle()).replace("Deployment", "StatefulSet"),
        )
        .also(&["no-nodes"])
        .because("the governing Service nobody does not exist, so the pods have no DNS names")
        .says("field spec.serviceName", "create a headless Service nobody"),
        Case::new(
            "cron-job-missed",
            "cronjob/j",
            "CronJob/j",
            &object(
                "batch/v1",
                "CronJob",
                "j",
                &format!("spec: {{schedule: '* * * * *', jobTemplate: {{{}}}}}", job("")),
            ),
        )
        .with(&object("v1", "ResourceQuota", "none", "spec: {hard: {count/jobs.batch: '0'}}"))
        .because("the CronJob misses its schedule \"* * * * *\": ")
        .says("exceeded quota: none", "spec.jobTemplate"),
        // The pods' labels have the name of the set in them, and no more than 63 letters.
        Case::new(
            "pod-creation-fails",
            &format!("statefulset/{LONG}"),
            &format!("StatefulSet/{LONG}"),
            &deployment("replicas: 1", &idle()).replace(
                "Deployment, metadata: {name: d}",
                &format!("StatefulSet, metadata: {{name: {LONG}}}"),
            ),
        )
        .because("pods cannot be created: ")
        .says("63", "correct what the message names"),
        Case::pod("scheduling-gated", &format!("schedulingGates: [{{name: example.com/wait}}], {}", idle()))
            .because("the pod is not scheduled while it has the scheduling gate example.com/wait")
            .says("example.com/wait", "spec.schedulingGates"),
        Case::pod("no-nodes", &idle()).because("the cluster has no nodes").says("none", "add a node"),
    ]
}
