//! What cannot be done is said in events and conditions that name it.

use crate::setting::{DRIVER, PATIENCE, Setting};
use coracle_tests::eventually;
use coracle_tests::pods::IMAGE;

impl Setting {
    /// Waits until the condition of a pod that is not scheduled says why.
    fn wait_unschedulable(&self, pod: &str, verdict: &str) {
        let condition = |field: &str| {
            let path = format!(".status.conditions[?(@.type==\"PodScheduled\")].{field}");
            self.field(&format!("pod {pod}"), &path)
        };
        eventually(&format!("its condition says {verdict:?}"), PATIENCE, || {
            condition("message").contains(verdict)
        });
        assert_eq!((condition("status"), condition("reason")), ("False".into(), "Unschedulable".into()));
    }

    /// A node without an agent, with room for so many volumes of the driver.
    fn hollow_node(&self, name: &str, volumes: u32) {
        self.cluster.apply(&format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}"));
        self.cluster.apply(&format!(
            "{{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {{name: {name}}}, \
             spec: {{drivers: [{{name: {DRIVER}, nodeID: {name}, topologyKeys: [], allocatable: {{count: {volumes}}}}}]}}}}"
        ));
    }

    /// How many pods the node can have.
    fn set_pods(&self, node: &str, pods: u32) {
        let room = format!(r#"{{"cpu":"4","memory":"4Gi","pods":"{pods}"}}"#);
        let patch = format!(r#"{{"status":{{"capacity":{room},"allocatable":{room}}}}}"#);
        self.cluster
            .kubectl
            .run(&format!("patch node {node} --subresource=status --type=merge -p '{patch}'"));
    }

    /// A pod with the volume of the claim of the same name, on any node that is not full.
    fn undemanding_pod(&self, name: &str, more: &str) {
        self.cluster.pod(
            name,
            &format!(
                "{more} tolerations: [{{operator: Exists}}], volumes: [{{name: v, persistentVolumeClaim: {{claimName: {name}}}}}], \
                 containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'], volumeMounts: [{{name: v, mountPath: /v}}]}}]"
            ),
        );
    }
}

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
    let verdict = "0/1 nodes are available: 1 node(s) did not have enough free storage.";
    s.wait_event(&format!("FailedScheduling:{verdict}"));
    s.wait_unschedulable("user", verdict);
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

#[test]
#[ignore = "run by in_namespaces"]
fn each_node_says_why_it_cannot_have_another_volume() {
    let mut s = Setting::without_driver("attachRequired: false");
    s.driver.set_limit(1);
    s.driver.start();
    s.wait_registered();
    s.hollow_node("node2", 1);
    s.set_pods("node2", 0);
    ["here", "there", "more"].iter().for_each(|claim| s.claim(claim));
    s.undemanding_pod("here", "nodeName: node1,");
    s.cluster.wait_ready("here");
    s.undemanding_pod("more", "");
    let both = "0/2 nodes are available: 1 Too many pods, 1 node(s) exceed max volume count.";
    s.wait_event(&format!("FailedScheduling:{both}"));
    s.wait_unschedulable("more", both);
    s.undemanding_pod("there", "nodeName: node2,");
    s.set_pods("node2", 10);
    s.wait_unschedulable("more", "0/2 nodes are available: 2 node(s) exceed max volume count.");
    // The limit of one node does not count for the other.
    s.hollow_node("node2", 2);
    eventually("it goes to the node with room", PATIENCE, || {
        s.field("pod more", ".spec.nodeName") == "node2"
    });
    s.cluster.kubectl.run("delete pod there more --force --grace-period=0");
    s.cluster.delete("here");
    s.wait_clean();
}
