//! Claims and volumes; none of them needs a node.

use crate::case::{Case, idle, object, pod};

fn claim(name: &str, spec: &str) -> String {
    let size = "accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}";
    object("v1", "PersistentVolumeClaim", name, &format!("spec: {{{spec}, {size}}}"))
}

fn volume(name: &str, size: &str, more: &str) -> String {
    let spec = format!(
        "spec: {{capacity: {{storage: {size}}}, accessModes: [ReadWriteOnce], hostPath: {{path: /tmp/w}}, {more}}}"
    );
    object("v1", "PersistentVolume", name, &spec)
}

fn class(name: &str, provisioner: &str, more: &str) -> String {
    object("storage.k8s.io/v1", "StorageClass", name, &format!("provisioner: {provisioner}{more}"))
}

/// A claim `data` that is asked about.
fn of(trouble: &'static str, spec: &str) -> Case {
    Case::new(trouble, "pvc/data", "PersistentVolumeClaim/data", &claim("data", spec))
}

pub fn cases() -> Vec<Case> {
    let none = "kubernetes.io/no-provisioner";
    let nobody = "example.com/nobody";
    let late = ", volumeBindingMode: WaitForFirstConsumer";
    let gone = "storageClassName: $NS, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: \
                [{key: kubernetes.io/hostname, operator: In, values: [gone]}]}]}}";
    vec![
        Case::pod(
            "claim-missing",
            &format!("volumes: [{{name: v, persistentVolumeClaim: {{claimName: dta}}}}], {}", idle()),
        )
        .with(&claim("data", "storageClassName: ''"))
        .because("the closest that exists is data")
        .says("claimName: dta", "correct claimName"),
        of("claim-without-class", "storageClassName: ''")
            .because("without a storage class")
            .says("field spec.storageClassName: none", "spec.storageClassName"),
        of("claim-class-missing", "storageClassName: w-fsat")
            .with(&class("w-fast", nobody, ""))
            .because("the closest that exists is w-fast")
            .says("field spec.storageClassName: w-fsat", "spec.storageClassName"),
        of("claim-no-provisioner", "storageClassName: $NS")
            .with(&class("$NS", none, ""))
            .because("has no provisioner")
            .says(
                "field spec.storageClassName: w-claim-no-provisioner",
                "create a PersistentVolume that fits",
            ),
        of("claim-no-volume-fits", "storageClassName: $NS")
            .with(&volume("$NS", "1Mi", "storageClassName: $NS"))
            .with(&class("$NS", none, ""))
            .because("no volume fits the claim; the closest, w-claim-no-volume-fits, has 1Mi")
            .says("has 1Mi instead of 1Gi", "create a PersistentVolume that fits")
            .mended_by(
                r#"patch persistentvolume $NS --type=merge -p '{"spec":{"capacity":{"storage":"1Gi"}}}'"#,
            ),
        of("claim-volume-missing", "storageClassName: $NS, volumeName: w-nowhere")
            .because("the volume w-nowhere, which the claim names, does not exist")
            .says("field spec.volumeName: w-nowhere", "create the PersistentVolume w-nowhere"),
        of("claim-volume-taken", "storageClassName: $NS, volumeName: $NS")
            .with(&volume("$NS", "1Gi", "storageClassName: $NS, claimRef: {namespace: $NS, name: first}"))
            .because("is reserved for persistentvolumeclaim/first in namespace w-claim-volume-taken")
            .says("w-claim-volume-taken/first", "create the claim anew with a free volume"),
        of("claim-volume-unfit", "storageClassName: $NS, volumeName: $NS")
            .with(&volume("$NS", "1Mi", "storageClassName: $NS"))
            .because("the volume w-claim-volume-unfit, which the claim names, has 1Mi instead of 1Gi")
            .says("has 1Mi instead of 1Gi", "correct the volume")
            .mended_by(
                r#"patch persistentvolume $NS --type=merge -p '{"spec":{"capacity":{"storage":"1Gi"}}}'"#,
            ),
        of("claim-provisioning-fails", "storageClassName: $NS")
            .with(&class("$NS", nobody, ""))
            .because("of the storage class w-claim-provisioning-fails does not answer")
            .says("ExternalProvisioning", "start the provisioner example.com/nobody"),
        // A pod that waits for its claim answers with the claim's cause.
        Case::pod(
            "claim-class-missing",
            &format!("volumes: [{{name: v, persistentVolumeClaim: {{claimName: data}}}}], {}", idle()),
        )
        .named("pod-of-a-claim-without-class")
        .of("PersistentVolumeClaim/data")
        .with(&claim("data", "storageClassName: w-nowhere"))
        .because("w-nowhere does not exist")
        .says("field spec.storageClassName: w-nowhere", "spec.storageClassName"),
        of("claim-waits-for-consumer", "storageClassName: $NS")
            .with(&class("$NS", nobody, late))
            .because("binds claims when a pod uses them, and none uses this one")
            .says("WaitForFirstConsumer", "create a pod that uses the claim"),
        of("claim-lost", "storageClassName: $NS, volumeName: $NS")
            .with(&volume("$NS", "1Gi", "storageClassName: $NS"))
            .then("wait --for=jsonpath={.status.phase}=Bound pvc/data --timeout=60s")
            .then("delete persistentvolume $NS --wait=false")
            .then(r#"? patch persistentvolume $NS --type=merge -p '{"metadata":{"finalizers":null}}'"#)
            .because("does not exist any more")
            .says("field spec.volumeName: w-claim-lost", "restore the PersistentVolume"),
        of("volume-node-gone", "storageClassName: $NS, volumeName: $NS")
            .with(&volume("$NS", "1Gi", gone))
            .then("wait --for=jsonpath={.status.phase}=Bound pvc/data --timeout=60s")
            .because("can only be used where kubernetes.io/hostname In gone, and there is no such node")
            .says("kubernetes.io/hostname In gone", "bring the node back"),
        not_reclaimed(),
    ]
}

/// A volume whose policy is to be deleted with its claim, while the controllers have nothing that could delete it.
fn not_reclaimed() -> Case {
    let spec = "spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: $NS, \
                persistentVolumeReclaimPolicy: Delete, nfs: {server: 192.0.2.1, path: /w}}";
    let claim = claim("data", "storageClassName: $NS, volumeName: $NS");
    Case::new("volume-failed", "pv/$NS", "PersistentVolume/$NS", &claim)
        .with(&object("v1", "PersistentVolume", "$NS", spec))
        .then("wait --for=jsonpath={.status.phase}=Bound pvc/data --timeout=60s")
        .then("delete pvc data")
        .because("the volume could not be reclaimed: ")
        .says("event VolumeFailedDelete", "kubectl delete persistentvolume/w-volume-failed")
}

/// A volume that one node has and another one wants. Nobody attaches it in fact: there is no driver.
pub fn attached_elsewhere() -> Case {
    let spec = "spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: $NS, \
                csi: {driver: nobody.example.com, volumeHandle: $NS}}";
    let on = |node: &str| {
        format!(
            "nodeSelector: {{kubernetes.io/hostname: {node}}}, \
             volumes: [{{name: v, persistentVolumeClaim: {{claimName: data}}}}], {}",
            idle()
        )
    };
    let gated = format!("schedulingGates: [{{name: example.com/second}}], {}", on("node-2"));
    Case::pod("volume-attach-failed", &gated)
        .with(&pod("first", &on("node-1")))
        .with(&claim("data", "storageClassName: $NS, volumeName: $NS"))
        .with(&object("v1", "PersistentVolume", "$NS", spec))
        // The other one has it by then.
        .then("wait --for=jsonpath={.spec.nodeName}=node-1 pod/first --timeout=60s")
        .then("? wait --for=condition=Ready pod/first --timeout=5s")
        .then(r#"patch pod p --type=json -p '[{"op":"remove","path":"/spec/schedulingGates"}]'"#)
        .because("a volume cannot be attached to the node: Multi-Attach error")
        .says("Multi-Attach error", "delete the pod that uses it")
}
