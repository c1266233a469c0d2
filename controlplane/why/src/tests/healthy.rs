use super::{explain, look_around};
use crate::explain::inspect;
use crate::target::{self, Problem};
use crate::world::World;

const WELL: &str = "
kind: Deployment
metadata: {name: web, uid: d1, generation: 2}
spec: {replicas: 1, template: {metadata: {labels: {app: web}}}}
status: {observedGeneration: 2, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}
---
kind: ReplicaSet
metadata: {name: web-1, uid: r1, ownerReferences: [{uid: d1, controller: true}]}
spec: {replicas: 1}
status: {replicas: 1, readyReplicas: 1}
---
kind: Pod
metadata: {name: web-1-a, labels: {app: web}, ownerReferences: [{uid: r1, controller: true}], creationTimestamp: '2026-01-01T10:00:00Z'}
spec: {nodeName: n1, serviceAccountName: default, containers: [{name: c, image: nginx, ports: [{name: http, containerPort: 80}], livenessProbe: {httpGet: {port: 80}}, env: [{name: A, valueFrom: {configMapKeyRef: {name: config, key: a}}}]}], volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]}
status: {phase: Running, conditions: [{type: PodScheduled, status: 'True'}, {type: Ready, status: 'True'}], containerStatuses: [{name: c, ready: true, started: true, restartCount: 1, state: {running: {}}, lastState: {terminated: {exitCode: 1, reason: Error, finishedAt: '2026-01-01T10:01:00Z'}}}]}
---
kind: Event
metadata: {name: old}
involvedObject: {kind: Pod, name: web-1-a}
type: Warning
reason: Unhealthy
message: 'Liveness probe failed: it was starting'
lastTimestamp: '2026-01-01T10:01:00Z'
---
kind: ConfigMap
metadata: {name: config}
data: {a: b}
---
kind: Pod
metadata: {name: done, ownerReferences: [{uid: j1, controller: true}]}
spec: {nodeName: n1, containers: [{name: c, image: busybox}]}
status: {phase: Succeeded, containerStatuses: [{name: c, state: {terminated: {exitCode: 0, reason: Completed}}}]}
---
kind: Job
metadata: {name: done, uid: j1}
status: {succeeded: 1, conditions: [{type: Complete, status: 'True'}]}
---
kind: Pod
metadata: {name: new, creationTimestamp: '2026-01-01T11:59:58Z'}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}
---
kind: Service
metadata: {name: web}
spec: {type: ClusterIP, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
kind: Service
metadata: {name: kubernetes}
spec: {ports: [{port: 443}]}
---
kind: EndpointSlice
metadata: {name: kubernetes, labels: {kubernetes.io/service-name: kubernetes}}
endpoints: [{addresses: [10.0.0.1]}]
---
kind: IngressClass
metadata: {name: nginx}
---
kind: Ingress
metadata: {name: site}
spec: {ingressClassName: nginx, rules: [{http: {paths: [{path: /, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
kind: StorageClass
metadata: {name: local}
provisioner: example.com/local
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: local, volumeName: v1}
status: {phase: Bound}
---
kind: PersistentVolume
metadata: {name: v1}
spec: {storageClassName: local, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}}
status: {phase: Bound}
---
kind: StatefulSet
metadata: {name: db, uid: s1}
spec: {replicas: 0}
---
kind: DaemonSet
metadata: {name: log, uid: ds1}
status: {desiredNumberScheduled: 1, currentNumberScheduled: 1, updatedNumberScheduled: 1, numberReady: 1}
---
kind: CronJob
metadata: {name: night, uid: c1}
spec: {schedule: '0 0 * * *'}
---
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
status: {expectedPods: 1, currentHealthy: 1, desiredHealthy: 0, disruptionsAllowed: 1}
---
kind: HorizontalPodAutoscaler
metadata: {name: web}
status: {conditions: [{type: AbleToScale, status: 'True'}, {type: ScalingActive, status: 'True'}]}
---
kind: ResourceQuota
metadata: {name: all}
status: {hard: {pods: '10'}, used: {pods: '3'}}
---
kind: CertificateSigningRequest
metadata: {name: done}
status: {certificate: eA==}
---
kind: APIService
metadata: {name: v1.apps}
status: {conditions: [{type: Available, status: 'True'}]}
---
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks: [{name: policy.example.com, clientConfig: {service: {namespace: default, name: web, port: 80}}}]
---
kind: Lease
metadata: {name: n1, namespace: kube-node-lease}
spec: {renewTime: '2026-01-01T11:59:55.000000Z'}
";

#[test]
fn nothing_is_named_where_nothing_is_wrong() {
    let findings = look_around(WELL);
    assert!(findings.is_empty(), "{}", super::lines(&findings));
    for object in [
        "deployment/web",
        "rs/web-1",
        "pod/web-1-a",
        "pod/done",
        "pod/new",
        "job/done",
        "svc/web",
        "svc/kubernetes",
        "ingress/site",
        "pvc/data",
        "pv/v1",
        "ds/log",
        "cronjob/night",
        "pdb/web",
        "hpa/web",
        "quota/all",
        "csr/done",
        "apiservice/v1.apps",
        "node/n1",
        "ns/default",
        "configmap/config",
    ] {
        let findings = explain(WELL, object);
        assert!(findings.is_empty(), "{object}:{}", super::lines(&findings));
    }
}

fn text(objects: &[&str]) -> String {
    let pairs: Vec<(String, String)> = objects
        .iter()
        .map(|object| object.split_once('/').unwrap())
        .map(|(kind, name)| (kind.to_owned(), name.to_owned()))
        .collect();
    let starting = "
kind: Pod
metadata: {name: starting, creationTimestamp: '2999-01-01T00:00:00Z'}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Running, containerStatuses: [{name: c, state: {running: {}}}]}
";
    let cluster = super::Fixture::new(&format!("{WELL}\n---\n{starting}"));
    super::block_on(crate::run::objects(&cluster, "default", &pairs)).unwrap().text()
}

#[test]
fn what_is_well_is_said() {
    for (object, expected) in [
        ("pod/web-1-a", "pod/web-1-a is running and ready\n"),
        ("pod/done", "pod/done has ended successfully\n"),
        ("deployment/web", "deployment/web has all its pods: 1 of 1 is ready\n"),
        ("ds/log", "daemonset/log has all its pods: 1 of 1 is ready\n"),
        ("job/done", "job/done is complete\n"),
        ("svc/web", "service/web has 1 ready pod of 1\n"),
        ("svc/kubernetes", "service/kubernetes has no selector, and 1 ready endpoint of 1\n"),
        ("node/n1", "node/n1 is ready\n"),
        ("ns/default", "namespace/default is active\n"),
        ("pvc/data", "persistentvolumeclaim/data is bound to volume v1\n"),
        ("apiservice/v1.apps", "apiservice/v1.apps is available\n"),
        ("csr/done", "certificatesigningrequest/done is signed\n"),
        ("cronjob/night", "cronjob/night has the schedule 0 0 * * *, and has made no Job yet\n"),
        ("pdb/web", "poddisruptionbudget/web exists, and nothing wrong was found in it\n"),
        (
            "cm/config",
            "configmap/config exists; it has no conditions, and nothing else is looked at in its kind\n",
        ),
    ] {
        assert_eq!(text(&[object]), expected);
    }
    let unclear = text(&["pod/web-1-a", "pod/starting"]);
    let expected = "pod/web-1-a is running and ready\npod/starting: no root cause found\nlooked at: ";
    assert!(unclear.starts_with(expected), "{unclear}");
}

/// What is said about a Service of `kube-system`, beside these objects.
fn dns(more: &str) -> String {
    let service = "
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec: {clusterIP: 10.96.0.10, ports: [{port: 53, protocol: UDP}]}
";
    let cluster = super::Fixture::new(&format!("{service}---{more}"));
    let pair = ("service".to_owned(), "kube-dns".to_owned());
    super::block_on(crate::run::objects(&cluster, "kube-system", &[pair])).unwrap().text()
}

#[test]
fn endpoints_are_counted_and_nodes_that_answer_dns() {
    let agent = "
kind: Node
metadata: {name: n2}
status: {nodeInfo: {kubeletVersion: v1.36.4+coracle.0.1.0}, conditions: [{type: Ready, status: 'True'}]}
";
    assert_eq!(
        dns(agent),
        "service/kube-dns has no selector and no endpoints, only the address 10.96.0.10: 1 of 2 nodes runs an agent that answers \
         DNS there\n"
    );
    let slice = "
kind: EndpointSlice
metadata: {name: kube-dns-1, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2], conditions: {ready: false}}]
";
    assert_eq!(dns(slice), "service/kube-dns has no selector, and 1 ready endpoint of 2\n");
    let kubelets = "
kind: Node
metadata: {name: n2}
status: {nodeInfo: {kubeletVersion: v1.36.4}, conditions: [{type: Ready, status: 'True'}]}
";
    assert!(dns(kubelets).starts_with("service/kube-dns: no root cause found\n"), "{}", dns(kubelets));
}

#[test]
fn conditions_of_other_kinds_are_quoted() {
    let machine = |condition: &str| {
        let yaml = format!(
            "apiVersion: example.com/v1\nkind: Machine\nmetadata: {{name: m, namespace: default}}\nstatus: {{conditions: [{condition}]}}"
        );
        let pair = ("machine".to_owned(), "m".to_owned());
        let cluster = super::Fixture::new(&yaml);
        super::block_on(crate::run::objects(&cluster, "default", &[pair])).unwrap().text()
    };
    assert_eq!(machine("{type: Ready, status: 'True'}"), "machine/m is ready\n");
    assert_eq!(
        machine("{type: Broken, status: 'True'}"),
        "machine/m exists; what its conditions mean is not known: Broken=True\n"
    );
}

fn problem(kind: &str, name: &str) -> String {
    let cluster = super::Fixture::new(WELL);
    let mut world = World::new(super::now(), false, inspect);
    let found: Result<_, Problem> =
        super::block_on(world.explore(&cluster, |world| target::explain(world, "default", kind, name)));
    found.unwrap_err().to_string()
}

#[test]
fn what_does_not_exist_is_said_with_the_closest_name() {
    assert_eq!(
        problem("deployment", "wbe"),
        "deployment/wbe in namespace default does not exist; the closest that exists is web"
    );
    assert_eq!(problem("node", "x-y-z"), "node/x-y-z does not exist");
    assert_eq!(
        problem("deploymnt", "web"),
        "the server has no kind deploymnt; the closest that exists is deployment"
    );
    assert_eq!(problem("submarine", "web"), "the server has no kind submarine");
}

#[test]
fn a_namespace_that_does_not_exist_is_said() {
    let ask = |yaml: &str, namespace: &str| {
        let cluster = super::Fixture::new(yaml);
        let mut world = World::new(super::now(), false, inspect);
        let found: Result<_, Problem> =
            super::block_on(world.explore(&cluster, |world| target::explain(world, namespace, "pod", "x")));
        found.unwrap_err().to_string()
    };
    assert_eq!(
        ask("", "defualt"),
        "pod/x does not exist: there is no namespace defualt; the closest that exists is default"
    );
    let preempted = "
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: x}
reason: Preempted
message: Preempted by pod u-1 on node n1
lastTimestamp: '2026-01-01T11:59:00Z'
---
kind: Pod
metadata: {name: urgent, namespace: kube-system, uid: u-1}
";
    assert_eq!(
        ask(preempted, "default"),
        "pod/x in namespace default does not exist; it was preempted by pod/urgent in namespace kube-system at 2026-01-01T11:59:00Z"
    );
    let refused = "
kind: Trace
begin: '2026-01-01T11:58:59.500000000Z'
objects: [{resource: pods, namespace: default, name: x}]
spans:
- {id: a, parent: null, stage: write, name: create, text: '', object: 0, start: 700000000, code: 403, flags: [failed]}
- {id: b, parent: a, stage: validating-plugin, name: ResourceQuota, text: '', object: 0, start: 700000001, code: 0, flags: [failed]}
---
kind: ResourceQuota
metadata: {name: few}
status: {hard: {pods: '1'}, used: {pods: '1'}}
---
kind: ResourceQuota
metadata: {name: many}
status: {hard: {pods: '10'}, used: {pods: '1'}}
";
    assert_eq!(
        ask(refused, "default"),
        "pod/x in namespace default does not exist; a request to create it was refused at 2026-01-01T11:59:00Z with 403 Forbidden \
         by the admission plugin ResourceQuota; resourcequota/few is used up: pods (1 of 1)"
    );
    let written = |verb: &str| {
        format!(
            "
kind: Trace
begin: '2026-01-01T11:58:59.500000000Z'
objects: [{{resource: pods, namespace: default, name: x}}]
spans: [{{id: a, parent: null, stage: write, name: {verb}, text: '', object: 0, start: 700000000, code: 200, flags: []}}]
---
kind: Event
metadata: {{name: e}}
involvedObject: {{kind: Pod, name: x}}
reason: Killing
"
        )
    };
    assert_eq!(
        ask(&written("delete"), "default"),
        "pod/x in namespace default does not exist; it was deleted at 2026-01-01T11:59:00Z"
    );
    assert_eq!(
        ask(&written("patch"), "default"),
        "pod/x in namespace default does not exist; it was there, and was written last at 2026-01-01T11:59:00Z"
    );
}
