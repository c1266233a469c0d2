use super::Case;
use crate::trouble::Trouble;

pub const CASES: &[Case] = &[
    (Trouble::CommandNotFound, "pod/web", "its command is not in image nginx", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, command: [serv]}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 128, reason: StartError, message: 'exec: \"serv\": executable file not found in $PATH'}}}]}
"),
    (Trouble::CommandNotExecutable, "pod/web", "cannot be executed (exit code 126)", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 126, reason: Error}}}]}
"),
    (Trouble::OutOfMemory, "pod/web", "used too much memory (its limit is 64Mi)", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, resources: {limits: {memory: 64Mi}}}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 137, reason: OOMKilled}}}]}
"),
    (Trouble::ExitCode, "pod/web", "container c fails with exit code 3", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 3, reason: Error}}}]}
"),
    (Trouble::Signal, "pod/web", "container c was ended by SIGSEGV (11) (exit code 139)", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 139, reason: Error}}}]}
"),
    (Trouble::EndsSuccessfully, "pod/web", "ends successfully, and is restarted", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: busybox}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 0, reason: Completed}}}]}
"),
    (Trouble::InitContainerFails, "pod/web", "init container setup fails with exit code 1", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, initContainers: [{name: setup, image: busybox}], containers: [{name: c, image: nginx}]}
status:
  phase: Pending
  initContainerStatuses: [{name: setup, restartCount: 4, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, reason: Error}}}]
  containerStatuses: [{name: c, state: {waiting: {reason: PodInitializing}}}]
"),
    (Trouble::InitContainerRuns, "pod/web", "init container setup has been running for 10m and has not ended", "
kind: Log
container: setup
text: waiting for db
---
kind: Pod
metadata: {name: web, creationTimestamp: '2026-01-01T11:49:00Z'}
spec: {nodeName: n1, initContainers: [{name: setup, image: busybox}], containers: [{name: c, image: nginx}]}
status:
  phase: Pending
  initContainerStatuses: [{name: setup, state: {running: {startedAt: '2026-01-01T11:50:00Z'}}}]
  containerStatuses: [{name: c, state: {waiting: {reason: PodInitializing}}}]
"),
    (Trouble::ServiceAccountForbidden, "pod/web", "the ServiceAccount robot may not list pods in namespace default", "
kind: ServiceAccount
metadata: {name: robot}
---
kind: Log
container: c
previous: true
text: 'E0101 pods is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"'
---
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, serviceAccountName: robot, containers: [{name: c, image: operator}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, reason: Error}}}]}
"),
    (Trouble::LivenessProbeFails, "pod/web", "the liveness probe of container c fails, so it is restarted: cat: no such file", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, livenessProbe: {exec: {command: [cat, /ok]}}}]}
status: {phase: Running, containerStatuses: [{name: c, ready: true, restartCount: 2, started: true, state: {running: {}}}]}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web, fieldPath: 'spec.containers{c}'}
reason: Unhealthy
message: 'Liveness probe failed: cat: no such file'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::StartupProbeFails, "pod/web", "the startup probe of container c fails, so it is restarted: not yet", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, startupProbe: {exec: {command: [ready]}}}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 1, started: false, state: {running: {}}}]}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web, fieldPath: 'spec.containers{c}'}
reason: Unhealthy
message: 'Startup probe failed: not yet'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::ReadinessProbeFails, "pod/web", "the readiness probe of container c fails, so it gets no traffic: database is away", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, readinessProbe: {exec: {command: [check]}}}]}
status: {phase: Running, containerStatuses: [{name: c, ready: false, started: true, state: {running: {}}}]}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web, fieldPath: 'spec.containers{c}'}
reason: Unhealthy
message: 'Readiness probe failed: database is away'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::ReadinessProbeFails, "pod/web", "there is no event that says how", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, readinessProbe: {exec: {command: [check]}}}]}
status: {phase: Running, containerStatuses: [{name: c, ready: false, started: true, state: {running: {startedAt: '2026-01-01T11:00:00Z'}}}]}
"),
    (Trouble::ProbePortWrong, "pod/web", "nothing listens on port 8081; it declares 8080", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, ports: [{containerPort: 8080}], readinessProbe: {httpGet: {path: /, port: 8081}}}]}
status: {phase: Running, containerStatuses: [{name: c, ready: false, started: true, state: {running: {}}}]}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web, fieldPath: 'spec.containers{c}'}
reason: Unhealthy
message: 'Readiness probe failed: Get \"http://10.0.0.1:8081/\": dial tcp 10.0.0.1:8081: connect: connection refused'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::ProbeStatus, "pod/web", "GET /healthy is answered with status 404", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, readinessProbe: {httpGet: {path: /healthy, port: 80}}}]}
status: {phase: Running, containerStatuses: [{name: c, ready: false, started: true, state: {running: {}}}]}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web, fieldPath: 'spec.containers{c}'}
reason: Unhealthy
message: 'Readiness probe failed: HTTP probe failed with statuscode: 404'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::ProbeTimeout, "pod/web", "there is no answer within 1 s", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, livenessProbe: {httpGet: {path: /, port: 80}}}]}
status: {phase: Running, containerStatuses: [{name: c, ready: true, restartCount: 1, started: true, state: {running: {}}}]}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web, fieldPath: 'spec.containers{c}'}
reason: Unhealthy
message: 'Liveness probe failed: Get \"http://10.0.0.1:80/\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::ReadinessGate, "pod/web", "the readiness gate example.com/lb is not fulfilled", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, readinessGates: [{conditionType: example.com/lb}], containers: [{name: c, image: nginx}]}
status: {phase: Running, conditions: [{type: ContainersReady, status: 'True'}, {type: Ready, status: 'False'}], containerStatuses: [{name: c, ready: true, state: {running: {}}}]}
"),
    (Trouble::PostStartHook, "pod/web", "a postStart hook fails, and its container is killed", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, lifecycle: {postStart: {exec: {command: [x]}}}}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 2, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 137, reason: Error}}}]}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web}
reason: FailedPostStartHook
message: PostStartHook failed
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::PostStartHook, "pod/web", "the postStart hook of container c fails, and the container is killed: command 'x' exited with 4: no db", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, lifecycle: {postStart: {exec: {command: [x]}}}}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 2, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 137, reason: Error}}}]}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web, fieldPath: 'spec.containers{c}'}
reason: FailedPostStartHook
message: \"PostStartHook failed: command 'x' exited with 4: no db\"
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::PreStopHook, "pod/web", "a preStop hook failed", "
kind: Pod
metadata: {name: web, deletionTimestamp: '2026-01-01T12:00:20Z'}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Running, containerStatuses: [{name: c, ready: true, state: {running: {}}}]}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web}
reason: FailedPreStopHook
message: PreStopHook failed
lastTimestamp: '2026-01-01T11:59:55Z'
"),
    (Trouble::GracePeriod, "pod/web", "its containers have 30 s to end", "
kind: Pod
metadata: {name: web, deletionTimestamp: '2026-01-01T12:00:20Z', deletionGracePeriodSeconds: 30}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Running, containerStatuses: [{name: c, ready: true, state: {running: {}}}]}
"),
    (Trouble::TerminationNodeGone, "pod/web", "it is on node gone, which does not exist", "
kind: Pod
metadata: {name: web, deletionTimestamp: '2026-01-01T11:00:00Z'}
spec: {nodeName: gone, containers: [{name: c, image: nginx}]}
status: {phase: Running, containerStatuses: [{name: c, state: {running: {}}}]}
"),
    (Trouble::TerminationStuck, "pod/web", "the grace period is over", "
kind: Pod
metadata: {name: web, deletionTimestamp: '2026-01-01T11:00:00Z'}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Running, containerStatuses: [{name: c, state: {running: {}}}]}
"),
    (Trouble::FinalizerBlocks, "pod/web", "the finalizer example.com/x keeps it: its owner, a controller of example.com, has not removed it", "
kind: Pod
metadata: {name: web, deletionTimestamp: '2026-01-01T11:00:00Z', finalizers: [example.com/x]}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Succeeded, containerStatuses: [{name: c, state: {terminated: {exitCode: 0}}}]}
"),
    (Trouble::FinalizerBlocks, "configmap/keep", "the finalizer example.com/x keeps it", "
kind: ConfigMap
metadata: {name: keep, deletionTimestamp: '2026-01-01T11:00:00Z', finalizers: [example.com/x]}
"),
    (Trouble::Evicted, "pod/web", "evicted from node n1: The node was low on resource: memory.", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Failed, reason: Evicted, message: 'The node was low on resource: memory.'}
"),
    (Trouble::Preempted, "pod/web", "the pod, of priority 5, was preempted", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, priority: 5, containers: [{name: c, image: nginx}]}
status: {phase: Failed, conditions: [{type: DisruptionTarget, status: 'True', reason: PreemptionByScheduler, message: preempting to accommodate a higher priority pod}]}
"),
    (Trouble::DeadlineExceeded, "pod/web", "activeDeadlineSeconds of 60 s", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, activeDeadlineSeconds: 60, containers: [{name: c, image: nginx}]}
status: {phase: Failed, reason: DeadlineExceeded, message: Pod was active on the node longer than the specified deadline}
"),
    (Trouble::NodeRejected, "pod/web", "the node rejected the pod: OutOfcpu on node n1", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Failed, reason: OutOfcpu, message: Node didn't have enough resource}
"),
    (Trouble::Unexplained, "pod/web", "nothing that was looked at says why", "
kind: Pod
metadata: {name: web, creationTimestamp: '2026-01-01T11:00:00Z'}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Running, conditions: [{type: Ready, status: 'False'}], containerStatuses: [{name: c, ready: false, state: {running: {}}}]}
"),
];

#[test]
fn the_last_lines_of_the_log_are_evidence() {
    let yaml = "
kind: Log
container: c
previous: true
text: |
  starting
  panic: no database
---
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 2, reason: Error}}}]}
";
    let findings = super::explain(yaml, "pod/web");
    let log = findings[0].evidence.iter().find(|fact| fact.what.contains("log of the previous run")).unwrap();
    assert_eq!(log.text, "starting\npanic: no database");
}

#[test]
fn a_permission_that_was_given_since_is_not_the_cause() {
    let yaml = "
kind: Allowed
---
kind: Log
container: c
previous: true
text: 'forbidden: User \"system:serviceaccount:default:default\" cannot get resource \"pods\" in API group \"\" in the namespace \"default\"'
---
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, reason: Error}}}]}
";
    assert_eq!(super::explain(yaml, "pod/web")[0].trouble, Trouble::ExitCode);
}

#[test]
fn a_pre_stop_hook_that_hangs_is_named_with_a_command_that_the_api_accepts() {
    let yaml = "
kind: Pod
metadata: {name: prehang, deletionTimestamp: '2026-01-01T12:04:00Z', deletionGracePeriodSeconds: 300}
spec: {nodeName: n1, containers: [{name: c, image: nginx, lifecycle: {preStop: {exec: {command: [sleep, '1000']}}}}]}
status: {phase: Running, containerStatuses: [{name: c, ready: true, state: {running: {}}}]}
";
    let found = super::explain(yaml, "pod/prehang").remove(0);
    assert_eq!(found.trouble, Trouble::PreStopHook);
    assert!(found.cause.starts_with("container c has a preStop hook"), "{}", found.cause);
    assert_eq!(found.since.as_deref(), Some("2026-01-01T11:59:00Z"));
    assert!(found.remedy.starts_with("kubectl delete pod/prehang -n default --grace-period=1"));
    assert!(found.evidence.iter().any(|fact| fact.text == "sleep 1000"));
    assert!(super::look_around(yaml).is_empty(), "it is within its grace period");
    let soon = yaml.replace("12:04:00Z", "12:04:55Z");
    let found = super::explain(&soon, "pod/prehang").remove(0);
    assert_eq!(found.trouble, Trouble::GracePeriod, "it has just begun");
    assert!(found.remedy.ends_with("kubectl delete pod/prehang -n default --grace-period=1"));
}

#[test]
fn the_log_of_an_init_container_that_runs_is_evidence() {
    let (_, object, _, yaml) =
        CASES.iter().find(|case| case.0 == Trouble::InitContainerRuns).expect("there is a case");
    let found = super::explain(yaml, object).remove(0);
    assert_eq!(found.since.as_deref(), Some("2026-01-01T11:50:00Z"));
    assert!(found.evidence.iter().any(|fact| fact.text == "waiting for db"));
    let young = yaml.replace("11:50:00Z", "11:59:30Z");
    assert!(super::explain(&young, object).iter().all(|found| found.trouble != Trouble::InitContainerRuns));
}
