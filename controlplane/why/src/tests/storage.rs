use super::{Case, explain};
use crate::trouble::Trouble;

pub const CASES: &[Case] = &[
    (Trouble::ClaimWithoutClass, "pvc/data", "no storage class, there is no default class, and there is no free volume", "
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
status: {phase: Pending}
"),
    (Trouble::ClaimClassMissing, "pvc/data", "the storage class fsat does not exist; the closest that exists is fast", "
kind: StorageClass
metadata: {name: fast}
provisioner: example.com/disk
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: fsat}
status: {phase: Pending}
"),
    (Trouble::ClaimNoProvisioner, "pvc/data", "the storage class local has no provisioner, and there is no free volume", "
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: local}
status: {phase: Pending}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: PersistentVolumeClaim, name: data}
reason: ProvisioningFailed
message: 'no volume plugin matched name: kubernetes.io/no-provisioner'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::ClaimNoVolumeFits, "pvc/data", "the closest, v1, has 1Gi instead of 5Gi", "
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
---
kind: PersistentVolume
metadata: {name: v1}
spec: {storageClassName: local, capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]}
status: {phase: Available}
---
kind: PersistentVolume
metadata: {name: v2}
spec: {storageClassName: other, capacity: {storage: 1Gi}, accessModes: [ReadOnlyMany]}
status: {phase: Available}
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 5Gi}}}
status: {phase: Pending}
"),
    (Trouble::ClaimVolumeMissing, "pvc/data", "the volume dsk, which the claim names, does not exist; the closest that exists is disk", "
kind: PersistentVolume
metadata: {name: disk}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]}
status: {phase: Available}
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: '', volumeName: dsk}
status: {phase: Pending}
"),
    (Trouble::ClaimVolumeTaken, "pvc/data", "the volume v1, which the claim names, is bound to persistentvolumeclaim/first in namespace shop", "
kind: PersistentVolume
metadata: {name: v1}
spec: {claimRef: {namespace: shop, name: first, uid: u1}}
status: {phase: Bound}
---
kind: PersistentVolumeClaim
metadata: {name: data, uid: u2}
spec: {storageClassName: '', volumeName: v1}
status: {phase: Pending}
"),
    (Trouble::ClaimVolumeTaken, "pvc/data", "is reserved for an earlier claim of the same name, which was deleted", "
kind: PersistentVolume
metadata: {name: v1}
spec: {claimRef: {namespace: default, name: data, uid: u1}}
status: {phase: Released}
---
kind: PersistentVolumeClaim
metadata: {name: data, uid: u2}
spec: {volumeName: v1}
status: {phase: Pending}
"),
    (Trouble::ClaimVolumeTaken, "pvc/data", "is bound to persistentvolumeclaim/other in namespace default", "
kind: PersistentVolume
metadata: {name: v1}
spec: {claimRef: {namespace: default, name: other}}
status: {phase: Bound}
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: v1}
status: {phase: Lost}
"),
    (Trouble::ClaimVolumeUnfit, "pvc/data", "the volume v1, which the claim names, has the class \"slow\" instead of \"\" and has 1Gi instead of 5Gi and has no access mode ReadWriteMany", "
kind: PersistentVolume
metadata: {name: v1}
spec: {storageClassName: slow, capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]}
status: {phase: Available}
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: v1, accessModes: [ReadWriteMany], resources: {requests: {storage: 5Gi}}, selector: {matchLabels: {a: b}}}
status: {phase: Pending}
"),
    (Trouble::ClaimProvisioningFails, "pvc/data", "the provisioner example.com/disk fails: quota of the cloud", "
kind: StorageClass
metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}
provisioner: example.com/disk
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {}
status: {phase: Pending}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: PersistentVolumeClaim, name: data}
reason: ProvisioningFailed
message: quota of the cloud
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::ClaimProvisioningFails, "pod/web", "the provisioner example.com/disk of the storage class fast does not answer", "
kind: StorageClass
metadata: {name: fast}
provisioner: example.com/disk
---
kind: PersistentVolumeClaim
metadata: {name: data, creationTimestamp: '2026-01-01T11:00:00Z'}
spec: {storageClassName: fast}
status: {phase: Pending}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: PersistentVolumeClaim, name: data}
reason: ExternalProvisioning
message: Waiting for a volume to be created by the external provisioner
lastTimestamp: '2026-01-01T11:59:00Z'
---
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c}], volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', message: pod has unbound immediate PersistentVolumeClaims}]}
"),
    (Trouble::ClaimWaitsForConsumer, "pvc/data", "binds claims when a pod uses them, and none uses this one", "
kind: StorageClass
metadata: {name: fast}
provisioner: example.com/disk
volumeBindingMode: WaitForFirstConsumer
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: fast}
status: {phase: Pending}
"),
    (Trouble::ClaimLost, "pvc/data", "the claim's volume v1 does not exist any more", "
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: v1}
status: {phase: Lost}
"),
    (Trouble::VolumeNodeGone, "pvc/data", "can only be used where kubernetes.io/hostname In n7, and there is no such node", "
kind: PersistentVolume
metadata: {name: v1}
spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n7]}]}]}}}
status: {phase: Bound}
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: v1}
status: {phase: Bound}
"),
    (Trouble::VolumeFailed, "pv/v1", "the volume could not be reclaimed: no deleter", "
kind: PersistentVolume
metadata: {name: v1}
spec: {storageClassName: fast}
status: {phase: Failed, message: no deleter}
"),
    (Trouble::FinalizerBlocks, "pvc/data", "it is removed when no pod uses the claim", "
kind: PersistentVolumeClaim
metadata: {name: data, deletionTimestamp: '2026-01-01T11:00:00Z', finalizers: [kubernetes.io/pvc-protection]}
status: {phase: Bound}
---
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c}], volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]}
status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
"),
];

/// A claim that names a volume: the volume, and the remedy that is said.
fn remedy_of_named(volume: &str) -> String {
    let claim = "
kind: PersistentVolumeClaim
metadata: {name: data, uid: u2}
spec: {storageClassName: '', volumeName: v1}
status: {phase: Pending}
";
    let findings = explain(&format!("{claim}\n---\n{volume}"), "pvc/data");
    findings.into_iter().map(|finding| finding.remedy).collect()
}

#[test]
fn a_claim_can_be_bound_to_the_volume_that_it_names_only() {
    let volume = |claim: &str, phase: &str| {
        format!(
            "kind: PersistentVolume\nmetadata: {{name: v1}}\nspec: {{{claim}}}\nstatus: {{phase: {phase}}}\n"
        )
    };
    let remedy = remedy_of_named(&volume("claimRef: {namespace: shop, name: first, uid: u1}", "Released"));
    let frees = "kubectl patch persistentvolume/v1 --type=merge -p '{\"spec\":{\"claimRef\":null}}'";
    assert!(remedy.contains(frees), "{remedy}");
    let remedy = remedy_of_named(&volume("claimRef: {namespace: shop, name: first, uid: u1}", "Bound"));
    assert!(remedy.starts_with("create the claim anew") && !remedy.contains("patch"), "{remedy}");
    // It is being bound.
    assert_eq!(remedy_of_named(&volume("claimRef: {namespace: default, name: data}", "Available")), "");
    assert_eq!(remedy_of_named(&volume("", "Available")), "");
}
