//! What cannot be done is said in events that name it.

use crate::setting::{DRIVER, PATIENCE, Setting};
use coracle_tests::eventually;
use coracle_tests::pods::IMAGE;

#[test]
#[ignore = "run by in_namespaces"]
fn secrets_file_systems_and_servers_that_are_not_there_are_named() {
    let s = Setting::start("attachRequired: false");
    let csi = |name: &str, rest: &str| format!("csi: {{driver: {DRIVER}, volumeHandle: vol-{name}, {rest}}}");
    s.claim_of("locked", "Filesystem", &csi("locked", "nodeStageSecretRef: {namespace: default, name: key}"));
    s.pod("locked", "locked", "true");
    s.wait_event("secret default/key for driver disk.example not found");
    s.claim_of("odd", "Filesystem", &csi("odd", "fsType: nofs"));
    s.pod("odd", "odd", "true");
    s.wait_event("NodeStageVolume: rpc error: code = InvalidArgument desc = unknown file system \"nofs\"");
    // The secret comes, and the pod starts.
    s.cluster.apply("{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {k: v}}");
    s.cluster.wait_ready("locked");

    s.cluster.pod(
        "remote",
        &format!(
            "volumes: [{{name: share, nfs: {{server: 127.0.0.1, path: /export}}}}], \
             containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'], \
             volumeMounts: [{{name: share, mountPath: /v}}]}}]"
        ),
    );
    // Without a client in the kernel, or without a server.
    s.wait_event("FailedMount:MountVolume.SetUp failed for volume \"share\" : mounting 127.0.0.1:/export: ");
    s.cluster.delete("locked odd remote");
    s.wait_clean();
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_waits_for_space() {
    let s = Setting::start("attachRequired: false, storageCapacity: true");
    s.cluster.apply(&format!(
        "{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: fast}}, provisioner: {DRIVER}, \
         volumeBindingMode: WaitForFirstConsumer}}"
    ));
    s.cluster.apply(
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {storageClassName: fast, \
         accessModes: [ReadWriteOnce], resources: {requests: {storage: 5Gi}}}}",
    );
    s.pod("user", "data", "true");
    s.wait_event("FailedScheduling:0/1 nodes are available: 1 node(s) did not have enough free storage.");
    let capacity = |size: &str| {
        s.cluster.apply(&format!(
            "{{apiVersion: storage.k8s.io/v1, kind: CSIStorageCapacity, metadata: {{name: here}}, storageClassName: fast, \
             nodeTopology: {{matchLabels: {{disk.example/zone: here}}}}, capacity: {size}}}"
        ));
    };
    capacity("4Gi");
    let selected = || s.field("pvc data", ".metadata.annotations.volume\\.kubernetes\\.io/selected-node");
    assert_eq!(selected(), "");
    capacity("6Gi");
    eventually("a node is chosen", PATIENCE, || selected() == "node1");
    s.cluster.delete("user");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_volume_for_one_pod_is_not_mounted_for_a_second_one() {
    let s = Setting::start("attachRequired: false");
    s.claim_for("alone", "ReadWriteOncePod");
    // Pods that no scheduler has seen.
    let pod = |name: &str| {
        s.cluster.pod(
            name,
            &format!(
                "nodeName: node1, volumes: [{{name: v, persistentVolumeClaim: {{claimName: alone}}}}], \
                 containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'], volumeMounts: [{{name: v, mountPath: /v}}]}}]"
            ),
        );
    };
    eventually("the claim is bound", PATIENCE, || s.field("pvc alone", ".status.phase") == "Bound");
    pod("first");
    s.cluster.wait_ready("first");
    pod("second");
    s.wait_event(
        "FailedMount:MountVolume.SetUp failed for volume \"v\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod",
    );
    assert_eq!(s.driver.count("publish"), 1, "{:?}", s.driver.calls());
    s.cluster.delete("first");
    s.cluster.wait_ready("second");
    s.cluster.delete("second");
    s.wait_clean();
}
