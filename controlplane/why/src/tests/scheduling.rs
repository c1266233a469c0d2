use super::Case;
use crate::trouble::Trouble;

pub const CASES: &[Case] = &[
    (Trouble::InsufficientCpu, "pod/web", "the only node cannot run the pod: n1 has 3 of 4 cpu free, the pod wants 8", "
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, resources: {requests: {cpu: 8}}}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', message: '0/1 nodes are available: 1 Insufficient cpu.'}]}
---
kind: Pod
metadata: {name: other}
spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: '1'}}}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
"),
    (Trouble::InsufficientMemory, "pod/web", "n1 has 8Gi of 8Gi memory free, the pod wants 16Gi", "
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, resources: {requests: {memory: 16Gi}}}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::InsufficientStorage, "pod/web", "ephemeral-storage free, the pod wants 1Ti", "
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, resources: {requests: {ephemeral-storage: 1Ti}}}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::InsufficientResource, "pod/web", "n1 has 0 of 0 nvidia.com/gpu free, the pod wants 1", "
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: '1'}}}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::InsufficientPods, "pod/web", "has 1 of 1 pods", "# alone
kind: Node
metadata: {name: small}
status: {allocatable: {cpu: '4', memory: 8Gi, pods: '1'}, conditions: [{type: Ready, status: 'True'}]}
---
kind: Pod
metadata: {name: first}
spec: {nodeName: small, containers: [{name: c}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
---
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::UntoleratedTaint, "pod/web", "taint dedicated=gpu:NoSchedule", "# alone
kind: Node
metadata: {name: gpu}
spec: {taints: [{key: dedicated, value: gpu, effect: NoSchedule}]}
status: {allocatable: {pods: '10'}, conditions: [{type: Ready, status: 'True'}]}
---
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c}], tolerations: [{key: dedicated, operator: Equal, value: cpu, effect: NoSchedule}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::NodeSelectorMismatch, "pod/web", "has kubernetes.io/arch=amd64, not kubernetes.io/arch=arm64", "
kind: Pod
metadata: {name: web}
spec: {nodeSelector: {kubernetes.io/arch: arm64}, containers: [{name: c}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::NodeAffinityMismatch, "pod/web", "does not match zone In a|b", "
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: c}]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}]}}}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::NodeFeatureMissing, "pod/web", "n1 does not declare RestartAllContainersOnContainerExits", "
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, restartPolicy: Never, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [3]}}]}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::PodAffinityUnsatisfied, "pod/web", "has no pod with app=cache in kubernetes.io/hostname=n1", "
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: c}]
  affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: cache}}}]}}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::PodAntiAffinityConflict, "pod/web-2", "has pod web-1 with app=web", "
kind: Pod
metadata: {name: web-1, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
---
kind: Pod
metadata: {name: web-2, labels: {app: web}}
spec:
  containers: [{name: c}]
  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::TopologySpreadUnsatisfied, "pod/web-2", "more than maxSkew 1 apart", "
kind: Node
metadata: {name: n2, labels: {kubernetes.io/hostname: n2}}
spec: {taints: [{key: x, effect: NoSchedule}]}
status: {allocatable: {pods: '10'}, conditions: [{type: Ready, status: 'True'}]}
---
kind: Pod
metadata: {name: web-1, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
---
kind: Pod
metadata: {name: web-2, labels: {app: web}}
spec:
  containers: [{name: c}]
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::HostPortTaken, "pod/web", "has host port 80/TCP taken by pod default/proxy", "
kind: Pod
metadata: {name: proxy}
spec: {nodeName: n1, containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
---
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, ports: [{containerPort: 8080, hostPort: 80}]}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::VolumeNodeConflict, "pod/web", "is not one of the nodes of persistentvolume/v1", "
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: v1}
status: {phase: Bound}
---
kind: PersistentVolume
metadata: {name: v1}
spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n2]}]}]}}}
status: {phase: Bound}
---
kind: Node
metadata: {name: n2, labels: {kubernetes.io/hostname: n2}}
spec: {unschedulable: true, taints: [{key: a, effect: NoSchedule}, {key: b, effect: NoSchedule}]}
status: {allocatable: {pods: '10'}, conditions: [{type: Ready, status: 'True'}]}
---
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c}], volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::NodesCordoned, "pod/web", "the only node cannot run the pod: n9 is cordoned", "# alone
kind: Node
metadata: {name: n9}
spec: {unschedulable: true, taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]}
status: {allocatable: {pods: '10'}, conditions: [{type: Ready, status: 'True'}]}
---
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::NoNodes, "pod/web", "the cluster has no nodes", "# alone
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
    (Trouble::SchedulingGated, "pod/web", "scheduling gate example.com/wait", "
kind: Pod
metadata: {name: web}
spec: {schedulingGates: [{name: example.com/wait}], containers: [{name: c}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated}]}
"),
    (Trouble::SchedulerAbsent, "pod/web", "my-scheduler does not run", "
kind: Pod
metadata: {name: web, creationTimestamp: '2026-01-01T11:59:00Z'}
spec: {schedulerName: my-scheduler, containers: [{name: c}]}
status: {phase: Pending}
"),
    (Trouble::Unschedulable, "pod/web", "the scheduler finds no node: 0/1 nodes are available: 1 something else", "
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', message: '0/1 nodes are available: 1 something else.'}]}
"),
    (Trouble::NodeNameMissing, "pod/web", "bound to node ghost, which does not exist", "
kind: Pod
metadata: {name: web}
spec: {nodeName: ghost, containers: [{name: c}]}
status: {phase: Pending}
"),
    (Trouble::ClaimMissing, "pod/web", "the PersistentVolumeClaim dta does not exist; the closest that exists is data", "
kind: PersistentVolumeClaim
metadata: {name: data}
status: {phase: Bound}
---
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c}], volumes: [{name: d, persistentVolumeClaim: {claimName: dta}}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
"),
];

#[test]
fn without_the_right_to_read_nodes_the_scheduler_is_quoted() {
    let yaml = "
kind: Refused
list: nodes
---
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, resources: {requests: {cpu: 8}}}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', message: '0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found.'}]}
";
    let findings = super::explain(yaml, "pod/web");
    assert_eq!(findings[0].trouble, Trouble::InsufficientCpu);
    assert!(findings[0].evidence.iter().any(|fact| fact.text == "nodes could not be read"));
}

#[test]
fn a_node_that_is_not_ready_is_the_root() {
    let yaml = "# alone
kind: Node
metadata: {name: n1}
spec: {taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}]}
status: {allocatable: {pods: '10'}, conditions: [{type: Ready, status: 'False', reason: KubeletNotReady, message: cni config uninitialized}]}
---
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}
";
    let findings = super::explain(yaml, "pod/web");
    assert_eq!(findings.iter().map(|found| found.trouble).collect::<Vec<_>>(), [Trouble::NodeNotReady]);
    assert_eq!(findings[0].via[0].to_string(), "pod/web");
}

#[test]
fn a_pod_without_a_node_waits_since_it_was_made() {
    let yaml = "
kind: Pod
metadata: {name: cpu, creationTimestamp: '2026-01-01T11:56:00Z'}
spec: {containers: [{name: c, resources: {requests: {cpu: '100'}}}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, lastTransitionTime: '2026-01-01T11:59:40Z'}]}
";
    let found = super::explain(yaml, "pod/cpu").remove(0);
    assert_eq!(found.since.as_deref(), Some("2026-01-01T11:56:00Z"));
}
