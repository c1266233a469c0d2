//! What `kubectl describe` tells: every reason that people know, in the words they know, repeated ones counted.

use std::time::{Duration, Instant};

use coracle_tests::registry::Registry;
use serde_json::Value;

use crate::cluster::{IMAGE, run as shell};
use crate::tools::Stage;

const WAIT: Duration = Duration::from_secs(90);

fn events(stage: &Stage, name: &str) -> Vec<Value> {
    let selector = format!("--field-selector=involvedObject.name={name}");
    let list: Value =
        serde_json::from_str(&stage.newest().run(&format!("get events {selector} -o json"))).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// Waits for an event with a reason whose message begins and ends as given.
fn told(stage: &Stage, name: &str, kind: &str, reason: &str, (begin, end): (&str, &str)) -> Value {
    let begun = Instant::now();
    loop {
        let all = events(stage, name);
        let found = all.iter().find(|event| {
            let message = event["message"].as_str().unwrap_or_default();
            event["reason"] == reason
                && event["type"] == kind
                && message.starts_with(begin)
                && message.ends_with(end)
        });
        if let Some(found) = found {
            return found.clone();
        }
        let seen: Vec<_> =
            all.iter().map(|event| format!("{} {}", event["reason"], event["message"])).collect();
        assert!(begun.elapsed() < WAIT, "{name}: no {kind} {reason} {begin:?}…{end:?} in {seen:#?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn container(name: &str, more: &str) -> String {
    format!("containers: [{{name: {name}, image: {IMAGE}, command: [sleep, '3600'], {more}}}]")
}

/// A pod that is well, from its node to its end.
pub fn of_a_life(stage: &mut Stage) {
    let registry_dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(registry_dir.path(), false);
    shell(&format!("{}/../scripts/images push {}", env!("CARGO_MANIFEST_DIR"), registry.address));
    let image = format!("{}/library/busybox:latest", registry.address);
    let spec = format!("containers: [{{name: c, image: '{image}', command: [sleep, '3600']}}]");
    stage.cluster.pod("well", &spec);
    stage.cluster.wait_ready("well");
    told(stage, "well", "Normal", "Scheduled", ("Successfully assigned default/well to node1", ""));
    told(stage, "well", "Normal", "Pulling", (&format!("Pulling image \"{image}\""), ""));
    let pulled = told(
        stage,
        "well",
        "Normal",
        "Pulled",
        (&format!("Successfully pulled image \"{image}\" in "), " bytes."),
    );
    let text = pulled["message"].as_str().unwrap();
    let (time, size) = text.split_once(" including waiting). Image size: ").unwrap();
    assert!(time.ends_with('s'), "{text}");
    let size: u64 = size.trim_end_matches(" bytes.").parse().unwrap();
    assert!(size > 100_000, "{text}");
    let created = told(stage, "well", "Normal", "Created", ("Container created", ""));
    assert_eq!(created["involvedObject"]["fieldPath"], "spec.containers{c}");
    assert_eq!(created["source"]["component"], "kubelet");
    told(stage, "well", "Normal", "Started", ("Container started", ""));
    stage.cluster.delete("well");
    told(stage, "well", "Normal", "Killing", ("Stopping container c", ""));

    stage.cluster.pod("present", &container("c", ""));
    let text =
        format!("Container image \"{IMAGE}\" already present on machine and can be accessed by the pod");
    told(stage, "present", "Normal", "Pulled", (&text, ""));

    let missing = format!("{}/no/such:1", registry.address);
    stage.cluster.pod("unpullable", &format!("containers: [{{name: c, image: '{missing}'}}]"));
    told(stage, "unpullable", "Warning", "Failed", (&format!("Failed to pull image \"{missing}\": "), ""));
    told(stage, "unpullable", "Warning", "Failed", ("Error: ErrImagePull", ""));
    told(stage, "unpullable", "Normal", "BackOff", (&format!("Back-off pulling image \"{missing}\""), ""));
    told(stage, "unpullable", "Warning", "Failed", ("Error: ImagePullBackOff", ""));
    stage.cluster.delete("present unpullable");
}

/// Pods that are not.
pub fn of_trouble(stage: &mut Stage) {
    let cluster = &stage.cluster;
    let never = "exec: {command: [sh, -c, 'echo ill; exit 1']}, periodSeconds: 1, failureThreshold: 2";
    cluster.pod("sick", &container("c", &format!("livenessProbe: {{{never}}}")));
    cluster.pod(
        "mountless",
        &format!(
            "{}, volumes: [{{name: v, configMap: {{name: none}}}}]",
            container("c", "volumeMounts: [{name: v, mountPath: /v}]")
        ),
    );
    cluster.pod("nowhere", &format!("nodeSelector: {{no: such}}, {}", container("c", "")));
    cluster.pod(
        "sandboxless",
        &format!(
            "securityContext: {{sysctls: [{{name: kernel.shm_rmid_forced, value: nonsense}}]}}, {}",
            container("c", "")
        ),
    );
    cluster
        .pod("unset", &container("c", "env: [{name: A, valueFrom: {secretKeyRef: {name: none, key: k}}}]"));
    cluster.pod(
        "unstartable",
        &format!("containers: [{{name: c, image: {IMAGE}, command: [no-such-program]}}]"),
    );

    let ill = told(stage, "sick", "Warning", "Unhealthy", ("Liveness probe failed: ill", ""));
    assert_eq!(ill["involvedObject"]["fieldPath"], "spec.containers{c}");
    told(stage, "sick", "Normal", "Killing", ("Container c failed liveness probe, will be restarted", ""));
    told(
        stage,
        "mountless",
        "Warning",
        "FailedMount",
        ("MountVolume.SetUp failed for volume \"v\" : configmap \"none\" not found", ""),
    );
    told(
        stage,
        "nowhere",
        "Warning",
        "FailedScheduling",
        ("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.", ""),
    );
    told(stage, "sandboxless", "Warning", "FailedCreatePodSandBox", ("Failed to create pod sandbox: ", ""));
    told(stage, "unset", "Warning", "Failed", ("Error: secret \"none\" not found", ""));
    told(stage, "unstartable", "Warning", "Failed", ("Error: ", ""));
    let back_off = ("Back-off restarting failed container c in pod again_default(", ")");
    told(stage, "again", "Warning", "BackOff", back_off);
    // The same again is counted, not told anew.
    let begun = Instant::now();
    loop {
        let now = events(stage, "sick");
        let ill: Vec<_> = now.iter().filter(|event| event["reason"] == "Unhealthy").collect();
        assert_eq!(ill.len(), 1, "{ill:#?}");
        if ill[0]["count"].as_u64() > Some(1) {
            break;
        }
        assert!(begun.elapsed() < WAIT, "{ill:#?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    stage.cluster.delete("sick mountless nowhere sandboxless unset unstartable");
}

/// The node's own.
pub fn of_the_node(stage: &mut Stage) {
    let k = stage.newest();
    k.run("cordon node1");
    k.run("uncordon node1");
    for (reason, message) in [
        ("Starting", "Starting kubelet."),
        ("RegisteredNode", "Node node1 event: Registered Node node1 in Controller"),
        ("NodeHasSufficientMemory", "Node node1 status is now: NodeHasSufficientMemory"),
        ("NodeHasNoDiskPressure", "Node node1 status is now: NodeHasNoDiskPressure"),
        ("NodeHasSufficientPID", "Node node1 status is now: NodeHasSufficientPID"),
        ("NodeReady", "Node node1 status is now: NodeReady"),
        ("NodeNotSchedulable", "Node node1 status is now: NodeNotSchedulable"),
        ("NodeSchedulable", "Node node1 status is now: NodeSchedulable"),
    ] {
        told(stage, "node1", "Normal", reason, (message, ""));
    }
}
