//! Probe errors, local storage, memory volumes, resources of pods as a whole, claims of others, and the switch for seccomp:
//! as kubelets have them.

use crate::cluster::{Cluster, IMAGE, run};
use coracle_tests::eventually;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

fn events(cluster: &Cluster, pod: &str) -> String {
    let filter = format!("involvedObject.kind=Pod,involvedObject.name={pod}");
    cluster.kubectl.run(&format!("get events --field-selector {filter} -o jsonpath={{.items[*].message}}"))
}

#[test]
#[ignore = "run by in_namespaces"]
fn probe_errors_are_no_failures() {
    let cluster = Cluster::start();
    cluster.pod(
        "odd",
        &format!(
            "containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'],
            livenessProbe: {{httpGet: {{port: nowhere}}, periodSeconds: 1, failureThreshold: 1}}}}]"
        ),
    );
    cluster.wait_ready("odd");
    eventually("the error is an Event", WAIT, || {
        events(&cluster, "odd").contains("Liveness probe errored and resulted in unknown state")
    });
    // Several periods: each would be a failure, and one is enough.
    std::thread::sleep(Duration::from_secs(4));
    let status = cluster.get("odd")["status"].clone();
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0, "{status:#}");
    assert!(!events(&cluster, "odd").contains("failed liveness probe"), "{}", events(&cluster, "odd"));
    cluster.delete("odd");
}

#[test]
#[ignore = "run by in_namespaces"]
fn one_limited_container_or_sidecar_is_enough_for_a_limit_of_local_storage() {
    let cluster = Cluster::start();
    let limit = "resources: {limits: {ephemeral-storage: 1Mi}}";
    let other = format!("{{name: free, image: '{IMAGE}', command: [sleep, '1000']}}");
    let fill = "command: [sh, -c, 'dd if=/dev/zero of=/big bs=1M count=4; sleep 1000']";
    let shout = "command: [sh, -c, 'yes | head -c 3000000; sleep 1000']";
    cluster.pod("layer", &format!("containers: [{{name: a, image: '{IMAGE}', {limit}, {fill}}}, {other}]"));
    cluster.pod("logs", &format!("containers: [{{name: a, image: '{IMAGE}', {limit}, {shout}}}, {other}]"));
    cluster.pod(
        "sidecar",
        &format!(
            "initContainers: [{{name: a, image: '{IMAGE}', restartPolicy: Always, {limit}, {fill}}}], containers: [{other}]"
        ),
    );
    cluster.pod(
        "modest",
        &format!("containers: [{{name: a, image: '{IMAGE}', {limit}, command: [sleep, '1000']}}, {other}]"),
    );
    for pod in ["layer", "logs", "sidecar"] {
        let status = cluster.wait_phase(pod, "Failed");
        // The limit of the pod is what its containers are limited to, and is looked at first.
        let limit = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ";
        assert_eq!(
            (status["reason"].as_str(), status["message"].as_str()),
            (Some("Evicted"), Some(limit)),
            "{pod}"
        );
    }
    assert_eq!(cluster.wait_ready("modest")["phase"], "Running");
    cluster.delete("layer logs sidecar modest");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_memory_volume_is_as_large_as_limits_of_all_containers_or_the_node_allow() {
    let cluster = Cluster::start();
    let container = |name: &str, limit: &str| {
        format!(
            "{{name: {name}, image: '{IMAGE}', command: [sh, -c, 'df -k /v | tail -1; sleep 1000'],
            resources: {{limits: {{{limit}}}}}, volumeMounts: [{{name: v, mountPath: /v}}]}}"
        )
    };
    let pod = |name: &str, size: &str, limits: [&str; 2]| {
        cluster.pod(
            name,
            &format!(
                "volumes: [{{name: v, emptyDir: {{medium: Memory{size}}}}}], containers: [{}, {}]",
                container("a", limits[0]),
                container("b", limits[1])
            ),
        );
    };
    pod("all", "", ["memory: 32Mi", "memory: 16Mi"]);
    pod("some", "", ["memory: 32Mi", ""]);
    pod("sized", ", sizeLimit: 8Mi", ["memory: 32Mi", ""]);
    let size = |name: &str| -> u64 {
        cluster.wait_ready(name);
        let mut text = String::new();
        eventually("the size is printed", WAIT, || {
            text = cluster.output(name, "a", 0);
            !text.is_empty()
        });
        text.split_whitespace().nth(1).and_then(|size| size.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    assert_eq!((size("all"), size("sized")), (48 << 10, 8 << 10));
    let node = cluster.kubectl.run("get node node1 -o jsonpath={.status.allocatable.memory}");
    let node: u64 = node.trim_end_matches("Ki").parse().unwrap_or_else(|_| panic!("{node}"));
    assert_eq!(size("some") / 1024, node / 1024, "one without a limit: what the node has for pods");
    cluster.delete("all some sized");
}

/// The lowest score of the OOM killer that is at most -997, or that of this process: not everywhere may root lower a score.
fn lowest_score() -> i64 {
    let lowest = run(
        "(echo -997 > /proc/self/oom_score_adj) 2>/dev/null && echo -997 || cat /proc/self/oom_score_adj",
    );
    lowest.trim().parse().unwrap_or_else(|_| panic!("{lowest}"))
}

#[test]
#[ignore = "run by in_namespaces"]
fn resources_of_the_pod_as_a_whole_count_for_containers_without_own_ones() {
    let cluster = Cluster::start();
    let memory: i64 =
        run("sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo").trim().parse().unwrap();
    let memory = memory * 1024;
    let (request, limit) = (memory / 10, memory / 5);
    let container = |name: &str, resources: &str| {
        format!(
            "{{name: {name}, image: '{IMAGE}', command: [sh, -c, 'echo $LIMIT; cat /proc/self/oom_score_adj'], resources: {{{resources}}},
            env: [{{name: LIMIT, valueFrom: {{resourceFieldRef: {{resource: limits.memory}}}}}}]}}"
        )
    };
    let own = request / 2;
    cluster.pod(
        "whole",
        &format!(
            "restartPolicy: Never, resources: {{requests: {{memory: '{request}'}}, limits: {{memory: '{limit}'}}}},
            containers: [{}, {}]",
            container("a", &format!("requests: {{memory: '{own}'}}, limits: {{memory: '{request}'}}")),
            container("b", ""),
        ),
    );
    cluster.wait_phase("whole", "Succeeded");
    // What no container requests is divided among both.
    let rest = (request - own) / 2;
    let lowest = lowest_score();
    for (name, limit, request) in [("a", request, own + rest), ("b", limit, rest)] {
        let score = (1000 - request * 1000 / memory).max(lowest);
        assert_eq!(cluster.output("whole", name, 0), format!("{limit}\n{score}"), "{name}");
    }
    cluster.delete("whole");
}

#[test]
#[ignore = "run by in_namespaces"]
fn only_node_critical_pods_are_killed_last_whatever_their_class() {
    let cluster = Cluster::start();
    let score = |name: &str, class: &str| {
        cluster.pod(
            name,
            &format!(
                "restartPolicy: Never, priorityClassName: {class},
                containers: [{{name: c, image: '{IMAGE}', command: [cat, /proc/self/oom_score_adj]}}]"
            ),
        );
        cluster.wait_phase(name, "Succeeded");
        cluster.output(name, "c", 0)
    };
    assert_eq!(score("node", "system-node-critical"), lowest_score().to_string());
    assert_eq!(score("cluster", "system-cluster-critical"), "1000", "a pod without requests");
    cluster.delete("node cluster");
}

#[test]
#[ignore = "run by in_namespaces"]
fn claims_of_others_and_claims_that_are_being_deleted_are_not_mounted() {
    let cluster = Cluster::start();
    let claim = |name: &str, finalizers: &str| {
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}}}, spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce],
                storageClassName: none, claimRef: {{namespace: default, name: {name}}}, hostPath: {{path: {}, type: DirectoryOrCreate}}}}}}",
            cluster.path(name).display()
        ));
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}, finalizers: [{finalizers}]}}, spec: {{accessModes: [ReadWriteOnce],
                storageClassName: none, volumeName: {name}, resources: {{requests: {{storage: 1Gi}}}}}}}}"
        ));
        eventually("the claim is bound", WAIT, || {
            cluster.kubectl.run(&format!("get pvc {name} -o jsonpath={{.status.phase}}")) == "Bound"
        });
    };
    let mount = format!(
        "nodeName: node1, containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'], volumeMounts: [{{name: v, mountPath: /v}}]}}]"
    );
    // The name that the claim of the volume of this pod will have.
    claim("thief-v", "");
    let template =
        "spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}";
    cluster.pod(
        "thief",
        &format!("volumes: [{{name: v, ephemeral: {{volumeClaimTemplate: {{{template}}}}}}}], {mount}"),
    );
    eventually("the owner is checked", WAIT, || {
        events(&cluster, "thief")
            .contains("PVC default/thief-v was not created for pod default/thief (pod is not owner)")
    });
    claim("going", "example.com/hold");
    cluster.kubectl.run("delete pvc going --wait=false");
    cluster.pod(
        "late",
        &format!("volumes: [{{name: v, persistentVolumeClaim: {{claimName: going}}}}], {mount}"),
    );
    eventually("a deleted claim is named", WAIT, || {
        events(&cluster, "late").contains("PVC default/going is being deleted")
    });
    for pod in ["thief", "late"] {
        assert_eq!(cluster.get(pod)["status"]["phase"], "Pending", "{pod}");
    }
    cluster.pod("huge", &format!("volumes: [{{name: v, emptyDir: {{medium: HugePages}}}}], {mount}"));
    eventually("huge pages that were not requested are refused", WAIT, || {
        events(&cluster, "huge").contains("there is no resource request for huge pages")
    });
    cluster.delete("thief late huge");
    cluster.kubectl.run("patch pvc going --type=merge -p {\"metadata\":{\"finalizers\":null}}");
}

#[test]
#[ignore = "run by in_namespaces"]
fn the_seccomp_profile_of_pods_that_name_none_is_a_flag() {
    let mut cluster = Cluster::start();
    let pod = |cluster: &Cluster, name: &str| {
        let command = "command: [grep, 'Seccomp:', /proc/self/status]";
        cluster.pod(
            name,
            &format!("restartPolicy: Never, containers: [{{name: c, image: '{IMAGE}', {command}}}]"),
        );
        cluster.wait_phase(name, "Succeeded");
        let text = cluster.output(name, "c", 0);
        text.split_whitespace().nth(1).map(str::to_owned)
    };
    assert_eq!(pod(&cluster, "filtered").as_deref(), Some("2"));
    cluster.restart_agent_with("--default-seccomp-profile Unconfined");
    assert_eq!(pod(&cluster, "free").as_deref(), Some("0"));
    cluster.delete("filtered free");
}
