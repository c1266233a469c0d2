use super::Case;
use crate::trouble::Trouble;

pub const CASES: &[Case] = &[
    (Trouble::ProgressDeadline, "deployment/web", "the rollout has made no progress for 60 s: 0 of 1 pods are ready", "
kind: Deployment
metadata: {name: web, uid: d1}
spec: {replicas: 1, progressDeadlineSeconds: 60}
status: {conditions: [{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded}]}
"),
    (Trouble::WebhookRefuses, "deployment/web", "the last request of deployment-controller to update replicasets.apps web-1 was refused with 422 Unprocessable Entity by the admission policy fixed", "
kind: Deployment
metadata: {name: web, uid: d1, generation: 2}
spec: {replicas: 1}
status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, availableReplicas: 1}
---
kind: Trace
begin: '2026-01-01T11:58:59.500000000Z'
objects: [{resource: replicasets.apps, namespace: default, name: web-1}]
spans:
- {id: a, parent: null, stage: reconcile, name: deployment-controller, text: default/web, object: null, start: 0, code: 0, flags: [failed]}
- {id: b, parent: a, stage: write, name: update, text: '', object: 0, start: 700000000, code: 422, flags: [failed]}
- {id: c, parent: b, stage: validating-policy, name: fixed, text: '', object: 0, start: 700000001, code: 0, flags: [failed]}
"),
    (Trouble::QuotaRefuses, "deployment/web", "the quota small refuses new pods: requested: pods=1, used: pods=2, limited: pods=2", "
kind: Deployment
metadata: {name: web, uid: d1}
spec: {replicas: 1}
---
kind: ReplicaSet
metadata: {name: web-1, uid: r1, ownerReferences: [{uid: d1, controller: true}]}
spec: {replicas: 1}
status: {replicas: 0, conditions: [{type: ReplicaFailure, status: 'True', message: 'pods \"web-1-a\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2'}]}
"),
    (Trouble::PodSecurityRefuses, "rs/web", "pod security of namespace default refuses the pods: PodSecurity \"restricted:latest\"", "
kind: ReplicaSet
metadata: {name: web, uid: r1}
spec: {replicas: 1}
---
kind: Deployment
metadata: {name: web, uid: d1}
spec: {replicas: 1}
---
kind: ReplicaSet
metadata: {name: web-2, uid: r2, ownerReferences: [{uid: d1}]}
spec: {replicas: 1}
---
kind: Event
metadata: {name: e2}
involvedObject: {kind: ReplicaSet, name: web-2}
reason: FailedCreate
message: 'Error creating: pods \"web-2-a\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false'
lastTimestamp: '2026-01-01T11:59:00Z'
---
kind: Event
metadata: {name: e}
involvedObject: {kind: ReplicaSet, name: web}
reason: FailedCreate
message: 'Error creating: pods \"web-a\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::LimitRangeRefuses, "rc/web", "a LimitRange of namespace default refuses the pods", "
kind: ReplicationController
metadata: {name: web, uid: r1}
spec: {replicas: 1}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: ReplicationController, name: web}
reason: FailedCreate
message: 'Error creating: pods \"web-a\" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::WebhookRefuses, "rc/web", "admission refuses the pods", "
kind: ReplicationController
metadata: {name: web, uid: r1}
spec: {replicas: 1}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: ReplicationController, name: web}
reason: FailedCreate
message: 'Error creating: admission webhook \"policy.example.com\" denied the request: no latest tags'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::WebhookFails, "rc/web", "the admission webhook policy.example.com cannot be called", "
kind: ReplicationController
metadata: {name: web, uid: r1}
spec: {replicas: 1}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: ReplicationController, name: web}
reason: FailedCreate
message: 'Error creating: Internal error occurred: failed calling webhook \"policy.example.com\": connection refused'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::ServiceAccountMissing, "rc/web", "the ServiceAccount robt does not exist; the closest that exists is robot", "
kind: ServiceAccount
metadata: {name: robot}
---
kind: ReplicationController
metadata: {name: web, uid: r1}
spec: {replicas: 1}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: ReplicationController, name: web}
reason: FailedCreate
message: 'Error creating: pods \"web-a\" is forbidden: error looking up service account default/robt: serviceaccount \"robt\" not found'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::PriorityClassMissing, "rc/web", "the PriorityClass hihg does not exist; the closest that exists is high", "
kind: PriorityClass
metadata: {name: high}
---
kind: ReplicationController
metadata: {name: web, uid: r1}
spec: {replicas: 1}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: ReplicationController, name: web}
reason: FailedCreate
message: 'Error creating: pods \"web-a\" is forbidden: no PriorityClass with name hihg was found'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::RuntimeClassMissing, "rc/web", "the RuntimeClass kata does not exist", "
kind: ReplicationController
metadata: {name: web, uid: r1}
spec: {replicas: 1}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: ReplicationController, name: web}
reason: FailedCreate
message: 'Error creating: pods \"web-a\" is forbidden: pod rejected: RuntimeClass \"kata\" not found'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::PodCreationFails, "rc/web", "pods cannot be created: Pod \"web-a\" is invalid", "
kind: ReplicationController
metadata: {name: web, uid: r1}
spec: {replicas: 1}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: ReplicationController, name: web}
reason: FailedCreate
message: 'Error creating: Pod \"web-a\" is invalid: spec.containers[0].image: Required value'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::DeploymentPaused, "deployment/web", "the Deployment is paused", "
kind: Deployment
metadata: {name: web, uid: d1}
spec: {replicas: 1, paused: true}
"),
    (Trouble::ScaledToZero, "deployment/web", "scaled to zero", "
kind: Deployment
metadata: {name: web, uid: d1}
spec: {replicas: 0}
"),
    (Trouble::StatefulSetWaits, "sts/db", "pod db-0 is not ready, and the 2 pods after it wait for it", "
kind: StatefulSet
metadata: {name: db, uid: s1}
spec: {replicas: 3}
status: {replicas: 1}
---
kind: Pod
metadata: {name: db-0, creationTimestamp: '2026-01-01T11:59:50Z', ownerReferences: [{uid: s1}]}
spec: {nodeName: n1, containers: [{name: c, image: db}]}
status: {phase: Running, containerStatuses: [{name: c, ready: false, state: {running: {}}}]}
"),
    (Trouble::StatefulSetService, "sts/db", "the governing Service dbs does not exist, so the pods have no DNS names", "
kind: StatefulSet
metadata: {name: db, uid: s1}
spec: {replicas: 1, serviceName: dbs}
status: {replicas: 1, readyReplicas: 1}
"),
    (Trouble::DaemonSetNoNodes, "ds/log", "none of the 1 nodes matches", "
kind: DaemonSet
metadata: {name: log, uid: d1}
spec: {template: {spec: {nodeSelector: {disk: ssd}}}}
status: {desiredNumberScheduled: 0}
"),
    (Trouble::JobBackoffLimit, "job/work", "given up after 3 failed pods (backoffLimit 2)", "
kind: Job
metadata: {name: work, uid: j1}
spec: {backoffLimit: 2}
status: {failed: 3, conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded}]}
"),
    (Trouble::ExitCode, "job/work", "fails with exit code 4", "
kind: Job
metadata: {name: work, uid: j1}
spec: {backoffLimit: 0}
status: {failed: 1, conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded}]}
---
kind: Pod
metadata: {name: work-a, ownerReferences: [{uid: j1}]}
spec: {nodeName: n1, restartPolicy: Never, containers: [{name: c, image: x}]}
status: {phase: Failed, containerStatuses: [{name: c, state: {terminated: {exitCode: 4, reason: Error}}}]}
"),
    (Trouble::JobDeadline, "job/work", "activeDeadlineSeconds of 30 s", "
kind: Job
metadata: {name: work, uid: j1}
spec: {activeDeadlineSeconds: 30}
status: {conditions: [{type: Failed, status: 'True', reason: DeadlineExceeded}]}
"),
    (Trouble::JobFailed, "job/work", "the Job has failed: PodFailurePolicy: exit code 42", "
kind: Job
metadata: {name: work, uid: j1}
status: {conditions: [{type: Failed, status: 'True', reason: PodFailurePolicy, message: exit code 42}]}
"),
    (Trouble::Suspended, "cronjob/night", "the CronJob is suspended", "
kind: CronJob
metadata: {name: night, uid: c1}
spec: {schedule: '0 0 * * *', suspend: true}
"),
    (Trouble::CronJobMissed, "cronjob/night", "misses its schedule \"0 0 * * *\": unknown time zone Mars", "
kind: CronJob
metadata: {name: night, uid: c1}
spec: {schedule: '0 0 * * *'}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: CronJob, name: night}
reason: UnknownTimeZone
message: unknown time zone Mars
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::CronJobBusy, "cronjob/night", "Job night-1 still runs, and concurrencyPolicy Forbid skips the next ones", "
kind: CronJob
metadata: {name: night, uid: c1}
spec: {schedule: '* * * * *', concurrencyPolicy: Forbid}
---
kind: Job
metadata: {name: night-1, uid: j1, ownerReferences: [{uid: c1}]}
status: {active: 1, startTime: '2026-01-01T11:00:00Z'}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: CronJob, name: night}
reason: JobAlreadyActive
message: Not starting job because prior execution is running and concurrency policy is Forbid
lastTimestamp: '2026-01-01T11:59:00Z'
"),
];

#[test]
fn pods_with_the_same_cause_are_one_finding() {
    let pod = |name: &str| {
        format!(
            "
kind: Pod
metadata: {{name: {name}, ownerReferences: [{{uid: r1}}]}}
spec: {{nodeName: n1, containers: [{{name: c, image: 'nginx:nope'}}]}}
status: {{phase: Pending, containerStatuses: [{{name: c, state: {{waiting: {{reason: ErrImagePull, message: not found}}}}}}]}}
---"
        )
    };
    let set = "
kind: ReplicaSet
metadata: {name: web, uid: r1}
spec: {replicas: 2}
status: {replicas: 2}
";
    let findings = super::explain(&format!("{}{}{set}", pod("web-a"), pod("web-b")), "rs/web");
    assert_eq!(findings.len(), 2);
    let world = crate::world::World::new(super::now(), false, crate::explain::inspect);
    let report = crate::report::Report::new(&world, Vec::new(), findings);
    assert_eq!((report.findings.len(), report.findings[0].others.len()), (1, 1));
}

#[test]
fn a_webhook_whose_service_is_missing_is_deleted_or_gets_one() {
    let yaml = "
kind: ValidatingWebhookConfiguration
metadata: {name: check}
webhooks: [{name: check.example.com, clientConfig: {service: {namespace: default, name: checker}}}]
---
kind: Deployment
metadata: {name: hooked, uid: d1}
spec: {replicas: 1}
status: {conditions: [{type: ReplicaFailure, status: 'True', message: 'Internal error occurred: failed calling webhook \"check.example.com\": no such host'}]}
";
    let remedy = "create the Service checker in namespace default, or delete the configuration: \
                  kubectl delete validatingwebhookconfiguration/check";
    for object in ["deployment/hooked", "validatingwebhookconfiguration/check"] {
        let found = super::explain(yaml, object).remove(0);
        assert_eq!(found.remedy, remedy, "{object}");
        assert!(found.cause.contains("does not exist"), "{}", found.cause);
    }
    let aggregated = "
kind: APIService
metadata: {name: v1.example.com}
spec: {service: {namespace: default, name: gone}}
status: {conditions: [{type: Available, status: 'False', reason: ServiceNotFound, message: no answer}]}
";
    let found = super::explain(aggregated, "apiservice/v1.example.com").remove(0);
    assert!(found.cause.ends_with("the Service gone does not exist in namespace default"), "{}", found.cause);
    assert!(
        found.remedy.starts_with("create the Service gone in namespace default, or "),
        "{}",
        found.remedy
    );
}

#[test]
fn a_rollout_without_progress_is_said_beside_pods_of_which_nothing_is_known() {
    let yaml = "
kind: Deployment
metadata: {name: web, uid: d1}
spec: {replicas: 1, progressDeadlineSeconds: 60}
status:
  conditions: [{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded, lastTransitionTime: '2026-01-01T11:50:00Z'}]
---
kind: ReplicaSet
metadata: {name: web-1, uid: r1, ownerReferences: [{uid: d1, controller: true}]}
spec: {replicas: 1}
status: {replicas: 1}
---
kind: Pod
metadata: {name: web-1-a, creationTimestamp: '2026-01-01T11:00:00Z', ownerReferences: [{uid: r1, controller: true}]}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
status: {phase: Running, containerStatuses: [{name: c, ready: false, state: {running: {startedAt: '2026-01-01T11:00:00Z'}}}]}
";
    let found: Vec<Trouble> = super::explain(yaml, "deployment/web").iter().map(|one| one.trouble).collect();
    assert_eq!(found, [Trouble::Unexplained, Trouble::ProgressDeadline]);
}
