use super::Case;
use crate::trouble::Trouble;

pub const CASES: &[Case] = &[
    (Trouble::NodeNotReady, "node/n2", "not ready: container runtime is down", "
kind: Node
metadata: {name: n2}
status: {conditions: [{type: Ready, status: 'False', reason: KubeletNotReady, message: container runtime is down}]}
"),
    (Trouble::NodeUnreachable, "node/n2", "the node does not report", "
kind: Node
metadata: {name: n2}
status: {conditions: [{type: Ready, status: Unknown, reason: NodeStatusUnknown, message: Kubelet stopped posting node status.}]}
---
kind: Lease
metadata: {name: n2, namespace: kube-node-lease}
spec: {renewTime: '2026-01-01T10:00:00.000000Z'}
"),
    (Trouble::NodeMemoryPressure, "node/n2", "short of memory", "
kind: Node
metadata: {name: n2}
status: {conditions: [{type: Ready, status: 'True'}, {type: MemoryPressure, status: 'True'}]}
"),
    (Trouble::NodeDiskPressure, "node/n2", "short of disk space", "
kind: Node
metadata: {name: n2}
status: {conditions: [{type: Ready, status: 'True'}, {type: DiskPressure, status: 'True'}]}
"),
    (Trouble::NodePidPressure, "node/n2", "short of process ids", "
kind: Node
metadata: {name: n2}
status: {conditions: [{type: Ready, status: 'True'}, {type: PIDPressure, status: 'True'}]}
"),
    (Trouble::NodeNetwork, "node/n2", "has no pod network", "
kind: Node
metadata: {name: n2}
status: {conditions: [{type: Ready, status: 'True'}, {type: NetworkUnavailable, status: 'True'}]}
"),
    (Trouble::NodeCordoned, "node/n2", "the node is cordoned", "
kind: Node
metadata: {name: n2}
spec: {unschedulable: true}
status: {conditions: [{type: Ready, status: 'True'}]}
"),
    (Trouble::ClockSkew, "node/n2", "the clock of the node is 300 s ahead", "
kind: Node
metadata: {name: n2}
status: {conditions: [{type: Ready, status: 'True'}]}
---
kind: Lease
metadata: {name: n2, namespace: kube-node-lease}
spec: {renewTime: '2026-01-01T12:05:00.000000Z'}
"),
    (Trouble::NamespaceContent, "ns/old", "the namespace still has objects: some resources are remaining: pods.", "
kind: Namespace
metadata: {name: old, deletionTimestamp: '2026-01-01T11:00:00Z'}
status: {phase: Terminating, conditions: [{type: NamespaceContentRemaining, status: 'True', message: 'some resources are remaining: pods.'}]}
"),
    (Trouble::NamespaceFinalizers, "ns/old", "finalizers that nobody removes: some content has example.com/x", "
kind: Namespace
metadata: {name: old, deletionTimestamp: '2026-01-01T11:00:00Z'}
status: {phase: Terminating, conditions: [{type: NamespaceFinalizersRemaining, status: 'True', message: some content has example.com/x}]}
"),
    (Trouble::NamespaceDiscovery, "ns/old", "an API cannot be listed", "
kind: Namespace
metadata: {name: old, deletionTimestamp: '2026-01-01T11:00:00Z'}
status: {phase: Terminating, conditions: [{type: NamespaceDeletionDiscoveryFailure, status: 'True', message: 'unable to retrieve metrics.k8s.io/v1beta1'}]}
"),
    (Trouble::BudgetBlocksDrain, "pdb/web", "the budget never allows an eviction: it wants 1 of 1 pods (minAvailable 1)", "
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
status: {expectedPods: 1, currentHealthy: 1, desiredHealthy: 1, disruptionsAllowed: 0}
"),
    (Trouble::AutoscalerMetrics, "hpa/web", "the autoscaler gets no metrics", "
kind: HorizontalPodAutoscaler
metadata: {name: web}
status: {conditions: [{type: ScalingActive, status: 'False', reason: FailedGetResourceMetric, message: the server could not find the requested resource}]}
"),
    (Trouble::AutoscalerMetrics, "hpa/web", "the autoscaler does not scale: pods are controlled by several autoscalers", "
kind: HorizontalPodAutoscaler
metadata: {name: web}
status: {conditions: [{type: ScalingActive, status: 'False', reason: AmbiguousSelector, message: pods are controlled by several autoscalers}]}
"),
    (Trouble::ApiServiceUnavailable, "hpa/web", "the API is not available: no answer", "
kind: APIService
metadata: {name: v1beta2.custom.metrics.k8s.io}
spec: {group: custom.metrics.k8s.io, version: v1beta2}
status: {conditions: [{type: Available, status: 'False', reason: Away, message: no answer}]}
---
kind: HorizontalPodAutoscaler
metadata: {name: web}
status: {conditions: [{type: ScalingActive, status: 'False', reason: FailedGetObjectMetric, message: unable to get metric}]}
"),
    (Trouble::AutoscalerRequests, "hpa/web", "cannot compute a utilization: failed to get cpu utilization: missing request for cpu", "
kind: HorizontalPodAutoscaler
metadata: {name: web}
status: {conditions: [{type: ScalingActive, status: 'False', reason: FailedGetResourceMetric, message: 'failed to get cpu utilization: missing request for cpu'}]}
"),
    (Trouble::AutoscalerTarget, "hpa/web", "the target Deployment wbe cannot be scaled or does not exist; the closest that exists is web", "
kind: Deployment
metadata: {name: web, uid: d}
spec: {replicas: 1}
status: {replicas: 1, updatedReplicas: 1, availableReplicas: 1}
---
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {scaleTargetRef: {kind: Deployment, name: wbe}}
status: {conditions: [{type: AbleToScale, status: 'False', reason: FailedGetScale, message: not found}]}
"),
    (Trouble::WebhookDown, "validatingwebhookconfiguration/policy", "Service kube-system/policy does not exist", "
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks: [{name: policy.example.com, clientConfig: {service: {namespace: kube-system, name: policy}}}]
"),
    (Trouble::WebhookDown, "mutatingwebhookconfiguration/policy", "has no ready endpoints: service/policy: the selector app=policy matches no pod", "
kind: MutatingWebhookConfiguration
metadata: {name: policy}
webhooks: [{name: policy.example.com, clientConfig: {service: {namespace: kube-system, name: policy}}}]
---
kind: Service
metadata: {name: policy, namespace: kube-system}
spec: {selector: {app: policy}, ports: [{port: 443}]}
"),
    (Trouble::ApiServiceUnavailable, "apiservice/v1beta1.metrics.k8s.io", "the API is not available: no endpoints; service/metrics-server: the selector", "
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec: {group: metrics.k8s.io, version: v1beta1, service: {namespace: kube-system, name: metrics-server}}
status: {conditions: [{type: Available, status: 'False', reason: MissingEndpoints, message: no endpoints}]}
---
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {selector: {app: metrics}, ports: [{port: 443}]}
"),
    (Trouble::QuotaExhausted, "quota/small", "the quota is used up: pods (2 of 2)", "
kind: ResourceQuota
metadata: {name: small}
status: {hard: {pods: '2', requests.cpu: '4'}, used: {pods: '2', requests.cpu: '1'}}
"),
    (Trouble::SigningRequestPending, "csr/join", "waits for approval", "
kind: CertificateSigningRequest
metadata: {name: join, creationTimestamp: '2026-01-01T11:00:00Z'}
spec: {signerName: kubernetes.io/kubelet-serving, username: 'system:node:n1'}
"),
    (Trouble::SigningRequestDenied, "csr/join", "the request was denied: NotAllowed no", "
kind: CertificateSigningRequest
metadata: {name: join}
spec: {signerName: kubernetes.io/kubelet-serving}
status: {conditions: [{type: Denied, status: 'True', reason: NotAllowed, message: 'no'}]}
"),
    // A certificate of 2020 that was valid for one day.
    (Trouble::CertificateEnded, "ingress/site", "the certificate in the Secret site-tls ended at 2020-01-02T00:00:00Z", "
kind: IngressClass
metadata: {name: nginx}
---
kind: Ingress
metadata: {name: site}
spec: {ingressClassName: nginx, tls: [{secretName: site-tls}]}
---
kind: Secret
metadata: {name: site-tls}
type: kubernetes.io/tls
data:
  tls.crt: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJCakNCckFJQkFUQUtCZ2dxaGtqT1BRUURBakFQTVEwd0N3WURWUVFEREFSemFYUmxNQjRYRFRJd01ERXcKTVRBd01EQXdNRm9YRFRJd01ERXdNakF3TURBd01Gb3dEekVOTUFzR0ExVUVBd3dFYzJsMFpUQlpNQk1HQnlxRwpTTTQ5QWdFR0NDcUdTTTQ5QXdFSEEwSUFCRzJuQjBhbFVsVHJCdnlMZGVqdmpIbFRueEZWcXVjd3Q5aXloZUsrCkErY1p2aEVmR2REVVNMZkhrUC9tdWdQcCtsRlVTSk8vZVpoZjduTThmNS8wZkh3d0NnWUlLb1pJemowRUF3SUQKU1FBd1JnSWhBSUJNRS9GOGZZbHhtemF0bkxMVmREempXdUtWUG1GR1F4cDFuSEdXaTQ0aUFpRUFqZU40TnA1NwpDQzFJVlVMSlRSZTFFKzYzNEl5cDg2WWF3WTg3cy9oWGJVbz0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=
"),
    (Trouble::DefinitionRefused, "crd/boats.example.com", "NameConflict: \"boats\" is already in use", "
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
status: {conditions: [{type: NamesAccepted, status: 'False', reason: NameConflict, message: '\"boats\" is already in use'}]}
"),
    (Trouble::ConditionFalse, "boat/coracle", "its condition Ready is false: Leaking: there is a hole", "
apiVersion: example.com/v1
kind: Boat
metadata: {name: coracle, namespace: default}
status: {conditions: [{type: Ready, status: 'False', reason: Leaking, message: there is a hole}]}
"),
];

#[test]
fn the_clock_of_the_server() {
    let findings = super::look_around(
        "
kind: Clock
ahead: -90
",
    );
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].cause, "the clock of the API server is 90 s behind that of this machine");
}

#[test]
fn what_may_not_be_read_is_named() {
    let cluster = super::Fixture::new(
        "
kind: Refused
list: nodes
",
    );
    let mut world = crate::world::World::new(super::now(), true, crate::explain::inspect);
    let findings = super::block_on(world.explore(&cluster, |world| crate::survey::survey(world, None)));
    let report = crate::report::Report::new(&world, Vec::new(), findings);
    assert_eq!(report.not_looked_at, ["may not list nodes"]);
    assert_eq!(report.exit_code(), 0);
}

const DOOMED: &str = "
kind: Namespace
metadata: {name: doomed, deletionTimestamp: '2026-01-01T11:59:35Z'}
status:
  phase: Terminating
  conditions:
  - {type: NamespaceContentRemaining, status: 'True', message: 'Some resources are remaining: configmaps. has 1 resource instances, widgets.example.com has 1 resource instances'}
  - {type: NamespaceFinalizersRemaining, status: 'True', message: 'Some content in the namespace has finalizers remaining: example.com/x in 2 resource instances'}
---
kind: ConfigMap
metadata: {name: stuck, namespace: doomed, deletionTimestamp: '2026-01-01T11:59:35Z', finalizers: [example.com/x]}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w, namespace: doomed, deletionTimestamp: '2026-01-01T11:59:35Z', finalizers: [example.com/x]}
";

#[test]
fn the_objects_that_hold_a_namespace_are_named() {
    let found = &super::explain(DOOMED, "ns/doomed")[0];
    assert_eq!(found.trouble, Trouble::NamespaceFinalizers);
    let begin = "configmap/stuck holds the namespace (and 1 more object likewise): let the owner";
    assert!(found.remedy.starts_with(begin), "{}", found.remedy);
    assert!(
        found.remedy.contains("kubectl patch configmap/stuck -n doomed --type=merge"),
        "{}",
        found.remedy
    );
    let evidence = &found.evidence.last().unwrap().what;
    assert_eq!(evidence, "object that holds the namespace, widget/w");
}

#[test]
fn a_deletion_that_has_begun_is_told_to_those_who_ask() {
    let configmap = "kind: ConfigMap\nmetadata: {name: stuck, deletionTimestamp: '2026-01-01T11:59:35Z', finalizers: [example.com/x]}";
    let found = &super::explain(configmap, "cm/stuck")[0];
    assert_eq!(found.trouble, Trouble::FinalizerBlocks);
    assert_eq!(found.since.as_deref(), Some("2026-01-01T11:59:35Z"));
    assert!(super::look_around(&format!("{configmap}\n---\n{DOOMED}")).is_empty(), "it may be normal");
    let later = configmap.replace("11:59:35", "11:58:00");
    assert_eq!(super::look_around(&later)[0].object.to_string(), "configmap/stuck");
}

#[test]
fn one_trouble_is_one_line() {
    let objects = |yaml: &str| -> Vec<String> {
        super::look_around(yaml).iter().map(|found| format!("{} {}", found.object, found.trouble)).collect()
    };
    let namespace = "
kind: Namespace
metadata: {name: old, deletionTimestamp: '2026-01-01T11:00:00Z'}
status: {phase: Terminating, conditions: [{type: NamespaceFinalizersRemaining, status: 'True', message: some content has example.com/x}]}
---
kind: ConfigMap
metadata: {name: keep, namespace: old, deletionTimestamp: '2026-01-01T11:00:00Z', finalizers: [example.com/x]}
";
    assert_eq!(objects(namespace), ["namespace/old namespace-finalizers-remain"]);
    let quota = "
kind: ResourceQuota
metadata: {name: small}
status: {hard: {pods: '2'}, used: {pods: '2'}}
---
kind: Deployment
metadata: {name: web, uid: d1}
spec: {replicas: 1}
status: {conditions: [{type: ReplicaFailure, status: 'True', message: 'exceeded quota: small, requested: pods=1'}]}
";
    assert_eq!(objects(quota), ["deployment/web quota-refuses"]);
    let job = "
kind: Job
metadata: {name: work, uid: j1}
spec: {backoffLimit: 0}
status: {failed: 1, conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded}]}
---
kind: Pod
metadata: {name: work-a, ownerReferences: [{uid: j1}]}
spec: {nodeName: n1, restartPolicy: Never, containers: [{name: c, image: x}]}
status: {phase: Failed, containerStatuses: [{name: c, state: {terminated: {exitCode: 4, reason: Error}}}]}
";
    let found = objects(job);
    assert!(found.iter().all(|line| line == "pod/work-a exit-code"), "{found:?}");
}

#[test]
fn the_remedy_names_the_metrics_api_that_is_asked() {
    let remedy = |reason: &str, more: &str| {
        let yaml = format!(
            "
kind: HorizontalPodAutoscaler
metadata: {{name: web}}
status: {{conditions: [{{type: ScalingActive, status: 'False', reason: {reason}, message: nothing}}]}}
{more}"
        );
        super::explain(&yaml, "hpa/web").remove(0).remedy
    };
    for (reason, group) in [
        ("FailedGetResourceMetric", "serves metrics.k8s.io, such as metrics-server"),
        ("FailedGetContainerResourceMetric", "serves metrics.k8s.io, such as metrics-server"),
        ("FailedGetPodsMetric", "serves custom.metrics.k8s.io"),
        ("FailedGetObjectMetric", "serves custom.metrics.k8s.io"),
        ("FailedGetExternalMetric", "serves external.metrics.k8s.io"),
    ] {
        let said = remedy(reason, "");
        assert!(said.starts_with("install what") && said.contains(group), "{reason}: {said}");
    }
    let there = "---
kind: APIService
metadata: {name: v1beta1.external.metrics.k8s.io}
spec: {group: external.metrics.k8s.io, version: v1beta1}
status: {conditions: [{type: Available, status: 'True'}]}
";
    let said = remedy("FailedGetExternalMetric", there);
    assert!(said.ends_with("kubectl get apiservice/v1beta1.external.metrics.k8s.io"), "{said}");
    let said = remedy("FailedGetPodsMetric", there);
    assert!(said.contains("no APIService has this group"), "{said}");
}
