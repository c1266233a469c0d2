//! What hollow nodes and the pods on them look like.

use serde_json::{Value, json};

/// How the nodes are made.
pub struct Shape {
    /// What names begin with.
    pub prefix: String,
    /// CPUs.
    pub cpu: String,
    /// Memory.
    pub memory: String,
    /// Pods that fit.
    pub pods: u32,
    /// Zones.
    pub zones: usize,
}

/// Now, in seconds.
pub fn seconds() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Now, in microseconds.
pub fn micros() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

impl Shape {
    /// The name of a node.
    pub fn name(&self, index: usize) -> String {
        format!("{}{index:05}", self.prefix)
    }

    /// Whether a node is one of ours.
    pub fn owns(&self, node: &str, nodes: usize) -> bool {
        let index = node.strip_prefix(&self.prefix).and_then(|index| index.parse::<usize>().ok());
        index.is_some_and(|index| index < nodes)
    }

    /// A node as it registers.
    pub fn node(&self, index: usize) -> Value {
        let name = self.name(index);
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": format!("zone-{}", index % self.zones),
            "node.coracle.dev/hollow": "true"}}, "spec": {}})
    }

    /// A node's status once it is ready.
    pub fn node_status(&self, index: usize) -> Value {
        let amounts = json!({"cpu": self.cpu, "memory": self.memory, "pods": self.pods.to_string(), "ephemeral-storage": "100Gi"});
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({"type": kind, "status": status, "reason": reason, "message": "hollow",
                "lastHeartbeatTime": seconds(), "lastTransitionTime": seconds()})
        };
        json!({"status": {
            "capacity": amounts, "allocatable": amounts, "addresses": [
                {"type": "InternalIP", "address": format!("10.{}.{}.{}", 128 + (index >> 16), (index >> 8) & 255, index & 255)},
                {"type": "Hostname", "address": self.name(index)}],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady")],
            "nodeInfo": {"kubeletVersion": concat!("v1.35.0-coracle-", env!("CARGO_PKG_VERSION")), "osImage": "hollow",
                "kernelVersion": "none", "containerRuntimeVersion": "hollow://1", "architecture": "amd64",
                "operatingSystem": "linux", "machineID": "", "systemUUID": "", "bootID": "", "kubeProxyVersion": ""}}})
    }
}

/// A node's lease.
pub fn lease(node: &str, heartbeat: u64) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": (heartbeat * 4).max(40), "renewTime": micros()}})
}

/// What is to be done about a pod.
#[derive(Debug, PartialEq, Eq)]
pub enum Todo {
    /// Nothing.
    Nothing,
    /// Say that it runs.
    Start,
    /// Say that it is done.
    Complete,
    /// Take it away.
    Remove,
}

/// Decides by the pod as it is; `completes` when pods that are not always restarted end by themselves.
pub fn todo(pod: &Value, completes: bool) -> Todo {
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return Todo::Remove;
    }
    match pod["status"]["phase"].as_str().unwrap_or("Pending") {
        "Pending" => Todo::Start,
        "Running" if completes && pod["spec"]["restartPolicy"] != "Always" => Todo::Complete,
        _ => Todo::Nothing,
    }
}

/// The status of a pod that runs (or, `done`, has run).
pub fn pod_status(pod: &Value, serial: u64, done: bool) -> Value {
    let now = seconds();
    let containers = |list: &str, ended: bool| -> Vec<Value> {
        let all = pod["spec"][list].as_array().into_iter().flatten();
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let state = if ended {
            json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}})
        } else {
            json!({"running": {"startedAt": now}})
        };
        all.map(|c| {
            json!({"name": c["name"], "image": c["image"], "imageID": c["image"], "ready": list == "initContainers" || !ended, "started": !ended,
                "restartCount": 0, "state": state, "containerID": format!("hollow://{uid}/{}", c["name"].as_str().unwrap_or_default())})
        })
        .collect()
    };
    let condition = |kind: &str, on: bool| {
        let mut condition =
            json!({"type": kind, "status": if on { "True" } else { "False" }, "lastTransitionTime": now});
        if !on {
            condition["reason"] = json!("PodCompleted");
        }
        condition
    };
    let mut status = json!({"phase": if done { "Succeeded" } else { "Running" },
        "conditions": [condition("PodReadyToStartContainers", !done), condition("Initialized", true),
            condition("Ready", !done), condition("ContainersReady", !done)],
        "containerStatuses": containers("containers", done)});
    let inits = containers("initContainers", true);
    if !inits.is_empty() {
        status["initContainerStatuses"] = json!(inits);
    }
    if !done {
        let ip = format!("10.{}.{}.{}", 64 + ((serial >> 16) & 63), (serial >> 8) & 255, serial & 255);
        status["podIP"] = json!(ip);
        status["podIPs"] = json!([{"ip": ip}]);
        status["hostIP"] = json!("10.128.0.1");
        status["hostIPs"] = json!([{"ip": "10.128.0.1"}]);
        status["startTime"] = json!(now);
    }
    json!({"status": status})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_start_complete_and_go() {
        let pod = |phase: &str, policy: &str| json!({"spec": {"restartPolicy": policy}, "status": {"phase": phase}});
        assert_eq!(todo(&pod("Pending", "Always"), false), Todo::Start);
        assert_eq!(todo(&pod("Running", "Always"), true), Todo::Nothing);
        assert_eq!(todo(&pod("Running", "Never"), true), Todo::Complete);
        assert_eq!(todo(&pod("Running", "Never"), false), Todo::Nothing);
        assert_eq!(todo(&json!({"metadata": {"deletionTimestamp": "x"}}), false), Todo::Remove);
    }

    #[test]
    fn nodes_know_their_own() {
        let shape = Shape { prefix: "h-".into(), cpu: "1".into(), memory: "1Gi".into(), pods: 10, zones: 2 };
        assert!(shape.owns(&shape.name(3), 4) && !shape.owns(&shape.name(4), 4) && !shape.owns("other", 4));
        assert_eq!(shape.node(3)["metadata"]["labels"]["topology.kubernetes.io/zone"], "zone-1");
    }
}
