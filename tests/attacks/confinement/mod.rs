//! Pods that ask for a confinement the node cannot give, and pods that mean to run without what confines them.

// System call filters of commands against those of containers.
mod filters;

use coracle_engine::host;
use coracle_tests::eventually;
use coracle_tests::pods::{Cluster, IMAGE, condition};
use serde_json::Value;
use std::time::Duration;

fn container(rest: &str) -> String {
    format!("containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, 'echo ran; sleep 1000'], {rest}}}]")
}

/// The pod has failed with this reason, and nothing of it ran.
fn refused(cluster: &Cluster, pod: &str, reason: &str, message: &str) {
    let status = cluster.wait_phase(pod, "Failed");
    assert_eq!(status["reason"], reason, "{pod}: {status}");
    assert!(status["message"].as_str().unwrap().contains(message), "{pod}: {status}");
    assert_eq!(cluster.output(pod, "c", 0), "", "{pod} ran");
    let started = |list: &str| {
        let all = status[list].as_array().into_iter().flatten();
        all.filter(|of| of["containerID"].is_string()).count()
    };
    assert_eq!(started("containerStatuses") + started("initContainerStatuses"), 0, "{pod}: {status}");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_cannot_run_without_the_confinement_it_asks_for() {
    let cluster = Cluster::start();
    if !host::has_apparmor() {
        let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        let profile = "securityContext: {appArmorProfile: {type: RuntimeDefault}}";
        let local = "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: mine}}";
        cluster.pod("whole", &format!("{profile}, {}", container("")));
        cluster.pod("one", &container(local));
        cluster.pod(
            "first",
            &format!("initContainers: [{{name: i, image: '{IMAGE}', {local}}}], {}", container("")),
        );
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: old, annotations: {{container.apparmor.security.beta.kubernetes.io/c: \
             localhost/mine}}}}, spec: {{{}}}}}",
            container("")
        ));
        // A manifest on the node's disk passes no admission of the API.
        let manifest = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: static, namespace: default}}, spec: {{{profile}, {}}}}}",
            container("")
        );
        std::fs::write(cluster.path("manifests/static.yaml"), manifest).unwrap();
        for pod in ["whole", "one", "first", "old"] {
            refused(&cluster, pod, "AppArmor", message);
        }
        coracle_tests::eventually("the static pod is shown", std::time::Duration::from_secs(30), || {
            cluster.kubectl.try_with("get pod static-node1", "").ok
        });
        refused(&cluster, "static-node1", "AppArmor", message);
    }
    if !host::has_selinux() {
        cluster.pod("level", &container("securityContext: {seLinuxOptions: {level: 's0:c1,c2'}}"));
        cluster.pod(
            "type",
            &format!("securityContext: {{seLinuxOptions: {{type: mine_t}}}}, {}", container("")),
        );
        for pod in ["level", "type"] {
            refused(&cluster, pod, "SELinux", "seLinuxOptions of container \"c\"");
        }
    }
    // Who asks for nothing, or for no confinement, is not held up.
    cluster.pod(
        "free",
        &container("securityContext: {appArmorProfile: {type: Unconfined}, seLinuxOptions: {}}"),
    );
    cluster.wait_ready("free");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_cannot_run_without_the_device_it_claims() {
    let cluster = Cluster::start();
    let claim = "resourceClaims: [{name: gpu, resourceClaimName: mine}]";
    let uses = "resources: {claims: [{name: gpu}]}";
    cluster.pod("waits", &format!("{claim}, {}", container(uses)));
    cluster.pod("placed", &format!("nodeName: node1, {claim}, {}", container(uses)));
    let pages = "resources: {limits: {hugepages-2Mi: 4Mi, memory: 8Mi, cpu: 10m}}";
    cluster.pod("pages", &format!("nodeName: node1, {}", container(pages)));
    let events =
        || cluster.kubectl.run("get events -o jsonpath={range.items[*]}{.reason}:{.message}{\"\\n\"}{end}");
    eventually("what is missing is said", Duration::from_secs(60), || {
        events().contains(
            "FailedPrepareDynamicResources:Failed to prepare dynamic resources: ResourceClaim \"mine\"",
        )
    });
    assert_eq!(cluster.output("placed", "c", 0), "", "placed ran");
    refused(&cluster, "pages", "OutOfhugepages-2Mi", "hugepages-2Mi");
    let status =
        cluster.wait("waits", "not scheduled", |status| condition(status, "PodScheduled") == "False");
    let told = |of: &Value| {
        of["reason"] == "Unschedulable" && of["message"].as_str().unwrap().contains("\"mine\" not found")
    };
    assert!(status["conditions"].as_array().unwrap().iter().any(told), "{status}");
    assert!(cluster.get("waits")["spec"].get("nodeName").is_none());
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_cannot_leave_its_user_namespace_through_the_hosts() {
    let cluster = Cluster::start();
    let block = "volumes: [{name: disk, persistentVolumeClaim: {claimName: mine}}]";
    let device = "volumeDevices: [{name: disk, devicePath: /dev/disk}]";
    for (spec, said) in [
        (format!("hostUsers: false, hostNetwork: true, {}", container("")), "when `hostUsers` is false"),
        (format!("hostUsers: false, hostPID: true, {}", container("")), "when `hostUsers` is false"),
        (format!("hostUsers: false, hostIPC: true, {}", container("")), "when `hostUsers` is false"),
        (format!("hostUsers: false, {block}, {}", container(device)), "when `hostUsers` is false"),
        (container("securityContext: {procMount: Unmasked}"), "`hostUsers` must be false to use `Unmasked`"),
    ] {
        let pod = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{{spec}}}}}");
        let answer = cluster.kubectl.try_with("apply --validate=false -f -", &pod);
        assert!(!answer.ok && answer.err.contains(said), "{spec}: {}{}", answer.out, answer.err);
    }
}
