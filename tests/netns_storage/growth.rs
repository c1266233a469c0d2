//! Claims that grow, and how full volumes are.

use crate::setting::{DRIVER, Setting};
use coracle_tests::csi_driver::Fault;
use coracle_tests::eventually;
use std::time::Duration;

/// Claims are read once a minute.
const MINUTES: Duration = Duration::from_secs(240);

impl Setting {
    /// Asks for more, and does what a driver's resizer does.
    fn grow(&self, claim: &str, size: &str) {
        let wanted = format!(r#"{{"spec":{{"resources":{{"requests":{{"storage":"{size}"}}}}}}}}"#);
        self.cluster.kubectl.run(&format!("patch pvc {claim} --type=merge -p '{wanted}'"));
        let made = format!(r#"{{"spec":{{"capacity":{{"storage":"{size}"}}}}}}"#);
        self.cluster.kubectl.run(&format!("patch pv {claim} --type=merge -p '{made}'"));
        let pending = format!(
            r#"{{"status":{{"allocatedResources":{{"storage":"{size}"}},"allocatedResourceStatuses":{{"storage":"NodeResizePending"}},"conditions":[{{"type":"FileSystemResizePending","status":"True"}}]}}}}"#
        );
        self.cluster
            .kubectl
            .run(&format!("patch pvc {claim} --subresource=status --type=merge -p '{pending}'"));
    }

    fn capacity(&self, claim: &str) -> String {
        self.field(&format!("pvc {claim}"), ".status.capacity.storage")
    }
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_volume_grows_under_its_pod_and_says_how_full_it_is() {
    let s = Setting::start("attachRequired: false");
    s.claim("data");
    s.pod("user", "data", "while sleep 1; do date >> /v/log; done & true");
    s.cluster.wait_ready("user");
    let more = r#"{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}"#;
    let refused = s.cluster.kubectl.try_with(&format!("patch pvc data --type=merge -p '{more}'"), "");
    assert!(refused.err.contains("must support resize"), "{}", refused.err);
    s.cluster.apply(&format!(
        "{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: manual}}, provisioner: {DRIVER}, \
         allowVolumeExpansion: true}}"
    ));
    s.cluster.kubectl.run(&format!("patch pvc data --type=merge -p '{more}'"));
    s.wait_event("ExternalExpanding:waiting for an external controller to expand this PVC");
    assert_eq!(s.capacity("data"), "1Gi");
    s.grow("data", "2Gi");
    eventually("the claim has grown", MINUTES, || s.capacity("data") == "2Gi");
    let size = std::fs::read_to_string(s.driver.volume("vol-data").join(".size")).unwrap();
    assert_eq!(size, (2i64 << 30).to_string());
    assert_eq!(s.field("pvc data", ".status.conditions"), "");
    assert_eq!(s.field("pvc data", ".status.allocatedResourceStatuses.storage"), "");
    s.wait_event("FileSystemResizeSuccessful:MountVolume.NodeExpandVolume succeeded for volume \"data\"");
    assert_eq!(s.driver.count("expand"), 1, "{:?}", s.driver.calls());
    assert_eq!(s.driver.count("publish"), 1, "it was not published again: {:?}", s.driver.calls());

    let labels = r#"{namespace="default",persistentvolumeclaim="data"}"#;
    let metrics = || s.cluster.kubectl.run("get --raw /api/v1/nodes/node1/proxy/metrics");
    eventually("usage", MINUTES, || {
        metrics().contains(&format!("kubelet_volume_stats_used_bytes{labels} 400"))
    });
    let all = metrics();
    for want in [
        "csi_operations_seconds_count{driver_name=\"disk.example\",grpc_status_code=\"OK\",method_name=\"/csi.v1.Node/NodePublishVolume\",migrated=\"false\"} 1",
        "storage_operation_duration_seconds_count{migrated=\"false\",operation_name=\"volume_mount\",status=\"success\",volume_plugin=\"kubernetes.io/csi:disk.example\"}",
        "volume_manager_total_volumes{plugin_name=\"kubernetes.io/csi:disk.example\",state=\"actual_state_of_world\"} 1",
    ] {
        assert!(all.contains(want), "{want} is not in {all}");
    }
    for line in ["capacity_bytes{} 1000", "inodes_free{} 47", "health_status_abnormal{} 0"] {
        let line = format!("kubelet_volume_stats_{}", line.replace("{}", labels));
        assert!(all.contains(&line), "{line} is not in {all}");
    }
    let summary = s.cluster.kubectl.run("get --raw /api/v1/nodes/node1/proxy/stats/summary");
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let volume = &summary["pods"][0]["volume"][0];
    assert_eq!((&volume["name"], &volume["usedBytes"]), (&"v".into(), &400.into()), "{summary}");
    assert_eq!(volume["pvcRef"]["name"], "data");

    // A size that the driver does not have: the claim says so, and pods start with what is there.
    s.driver.trouble("the disk is worn out");
    s.driver.fault("expand", Fault::Refuses);
    s.grow("data", "3Gi");
    s.pod("next", "data", "true");
    eventually("the claim says so", MINUTES, || {
        s.field("pvc data", ".status.allocatedResourceStatuses.storage") == "NodeResizeInfeasible"
    });
    let said = s.field("pvc data", ".status.conditions[?(@.type==\"NodeResizeError\")].message");
    assert!(said.contains("the disk of vol-data has no room"), "{said}");
    s.cluster.wait_ready("next");
    assert_eq!(s.capacity("data"), "2Gi");
    s.wait_event("VolumeResizeFailed:MountVolume.NodeExpandVolume failed for volume \"data\"");
    eventually("its condition", MINUTES, || {
        let events = s.cluster.kubectl.run("get events -o jsonpath={.items[*].message}");
        events.contains("Volume v: the disk is worn out")
    });
    s.cluster.delete("user next");
    s.wait_clean();
}
