//! Volumes that pods use, and drivers that come and go.

use crate::setting::{DRIVER, PATIENCE, Setting};
use coracle_tests::eventually;
use coracle_tests::pods::IMAGE;

#[test]
#[ignore = "run by in_namespaces"]
fn a_driver_registers_and_data_outlives_pods() {
    let mut s = Setting::start(
        "attachRequired: false, podInfoOnMount: true, nodeAllocatableUpdatePeriodSeconds: 10, \
         tokenRequests: [{audience: vault}]",
    );
    eventually("the driver is told", PATIENCE, || s.driver.registrations().contains(&String::new()));
    let node = s.cluster.kubectl.run("get csinode node1 -o json");
    let node: serde_json::Value = serde_json::from_str(&node).unwrap();
    let driver = &node["spec"]["drivers"][0];
    assert_eq!((&driver["nodeID"], &driver["allocatable"]["count"]), (&"this-machine".into(), &7.into()));
    assert_eq!(driver["topologyKeys"][0], "disk.example/zone");
    assert_eq!(node["metadata"]["ownerReferences"][0]["kind"], "Node");
    let zone = s.cluster.kubectl.run(r"get node node1 -o jsonpath={.metadata.labels.disk\.example/zone}");
    assert_eq!(zone, "here");

    s.claim("data");
    s.pod("first", "data", "echo kept > /v/file");
    s.cluster.wait_ready("first");
    let file = s.driver.volume("vol-data").join("file");
    eventually("it wrote", PATIENCE, || std::fs::read_to_string(&file).is_ok_and(|text| text == "kept\n"));
    let told = std::fs::read_to_string(s.driver.volume("vol-data").join(".published-with")).unwrap();
    for want in [
        "\"color\": \"blue\"",
        "\"csi.storage.k8s.io/pod.name\": \"first\"",
        "\"csi.storage.k8s.io/serviceAccount.tokens\"",
    ] {
        assert!(told.contains(want), "{want} is not in {told}");
    }
    // A second pod of the node shares what is staged.
    s.pod("second", "data", "cat /v/file");
    s.cluster.wait_ready("second");
    eventually("it read", PATIENCE, || s.cluster.output("second", "c", 0) == "kept");
    s.cluster.delete("first");
    assert_eq!((s.driver.count("stage"), s.driver.count("unstage")), (1, 0), "{:?}", s.driver.calls());
    s.cluster.delete("second");
    s.wait_clean();
    assert_eq!((s.driver.count("unpublish"), s.driver.count("unstage")), (2, 1), "{:?}", s.driver.calls());
    s.pod("third", "data", "cat /v/file");
    s.cluster.wait_ready("third");
    eventually("it read", PATIENCE, || s.cluster.output("third", "c", 0) == "kept");
    s.cluster.delete("third");
    s.wait_clean();

    s.driver.set_limit(3);
    eventually("the driver is asked again how much fits", PATIENCE, || {
        s.field("csinode node1", ".spec.drivers[0].allocatable.count") == "3"
    });

    s.driver.stop();
    eventually("the driver is unregistered", PATIENCE, || s.drivers().is_empty());
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_driver_that_is_missing_is_named_and_pods_start_when_it_comes() {
    let mut s = Setting::without_driver("attachRequired: false");
    s.claim("late");
    s.pod("waits", "late", "true");
    s.wait_event(&format!(
        "FailedMount:MountVolume.SetUp failed for volume \"v\" : driver name {DRIVER} not found"
    ));
    s.driver.fault("stage", coracle_tests::csi_driver::Fault::Fails);
    s.driver.start();
    s.wait_event("NodeStageVolume: rpc error: code = Internal desc = the disk of vol-late is on fire");
    s.driver.mend();
    s.cluster.wait_ready("waits");
    s.cluster.delete("waits");
    s.wait_clean();
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_whose_volume_does_not_fit_fails_and_the_driver_is_asked_how_many_do() {
    // No period ends while the test runs.
    let s = Setting::start("attachRequired: true, nodeAllocatableUpdatePeriodSeconds: 3600");
    s.claim("disk");
    s.pod("user", "disk", "true");
    let attachments = || s.cluster.kubectl.run("get volumeattachments -o jsonpath={.items[*].metadata.name}");
    eventually("an attachment", PATIENCE, || !attachments().is_empty());
    s.driver.set_limit(1);
    let patch = r#"{"status":{"attached":false,"attachError":{"errorCode":8,"message":"no slot is free"}}}"#;
    let name = attachments();
    s.cluster
        .kubectl
        .run(&format!("patch volumeattachment {name} --subresource=status --type=merge -p '{patch}'"));
    let status = s.cluster.wait_for(PATIENCE, "user", "failed", |status| status["phase"] == "Failed");
    assert_eq!(status["reason"], "VolumeAttachmentLimitExceeded");
    let message = status["message"].as_str().unwrap_or_default();
    let want = "Pod was rejected: Node has reached its volume attachment limit, rejecting pod. ";
    assert!(message.starts_with(want) && message.ends_with("no slot is free"), "{message}");
    assert_eq!(s.field("csinode node1", ".spec.drivers[0].allocatable.count"), "1");
    s.wait_event("VolumeAttachmentLimitExceeded:Node has reached its volume attachment limit");
    s.cluster.delete("user");
    s.wait_clean();
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_volume_is_attached_before_it_is_mounted_and_detached_after() {
    let s = Setting::start("attachRequired: true");
    s.claim("disk");
    s.pod("user", "disk", "true");
    let attachments = || s.cluster.kubectl.run("get volumeattachments -o jsonpath={.items[*].metadata.name}");
    eventually("an attachment", PATIENCE, || !attachments().is_empty());
    let name = attachments();
    assert_eq!(s.driver.count("stage"), 0, "it is not attached yet");
    let patch = r#"{"status":{"attached":true,"attachmentMetadata":{"device":"sdz"}}}"#;
    s.cluster
        .kubectl
        .run(&format!("patch volumeattachment {name} --subresource=status --type=merge -p '{patch}'"));
    s.cluster.wait_ready("user");
    let told = std::fs::read_to_string(s.driver.volume("vol-disk").join(".published-with")).unwrap();
    assert!(told.contains("\"device\": \"sdz\""), "{told}");
    let unique = format!("kubernetes.io/csi/{DRIVER}^vol-disk");
    let in_use = || s.cluster.kubectl.run("get node node1 -o jsonpath={.status.volumesInUse}");
    assert!(in_use().contains(&unique), "{}", in_use());
    s.cluster.delete("user");
    eventually("it is detached", PATIENCE, || attachments().is_empty());
    assert!(!in_use().contains(&unique));
    assert_eq!(s.driver.count("unstage"), 1);
    s.wait_clean();
}

#[test]
#[ignore = "run by in_namespaces"]
fn an_inline_volume_lives_as_long_as_its_pod() {
    let s = Setting::start("attachRequired: false, volumeLifecycleModes: [Ephemeral]");
    let pod = |name: &str| {
        s.cluster.pod(
            name,
            &format!(
                "volumes: [{{name: scratch, csi: {{driver: {DRIVER}, volumeAttributes: {{size: small}}}}}}], \
                 containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, 'echo x > /v/f; exec sleep 1000'], \
                 volumeMounts: [{{name: scratch, mountPath: /v}}]}}]"
            ),
        );
    };
    pod("inline");
    s.cluster.wait_ready("inline");
    assert_eq!((s.driver.count("stage"), s.driver.count("publish")), (0, 1), "{:?}", s.driver.calls());
    s.cluster.delete("inline");
    s.wait_clean();
    // This driver is not for claims.
    s.claim("data");
    s.pod("claims", "data", "true");
    s.wait_event(
        "volume mode \"Persistent\" not supported by driver disk.example (only supports [\"Ephemeral\"])",
    );
    s.cluster.delete("claims");
}
