//! What hollow nodes and the pods on them look like.

use coracle_fields::coordination::v1::Lease;
use coracle_fields::core::v1::{
    Container, ContainerStateTerminated, ContainerStatus, HostIP, Node, NodeCondition, Pod, PodCondition,
    PodIP,
};
use coracle_fields::{Made, View, make};

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
    pub fn node(&self, index: usize) -> Made<Node> {
        let (name, zone) = (self.name(index), format!("zone-{}", index % self.zones));
        let mut node = make!(Node {
            metadata: {
                name: &name,
                labels: [
                    ("kubernetes.io/hostname", name.as_str()),
                    ("kubernetes.io/os", "linux"),
                    ("kubernetes.io/arch", "amd64"),
                    ("topology.kubernetes.io/zone", zone.as_str()),
                    ("node.coracle.dev/hollow", "true"),
                ],
            },
        });
        node.edit().spec().section();
        node
    }

    /// A patch with a node's status once it is ready.
    pub fn node_status(&self, index: usize) -> Made<Node> {
        let pods = self.pods.to_string();
        let amounts = [
            ("cpu", self.cpu.as_str()),
            ("memory", self.memory.as_str()),
            ("pods", pods.as_str()),
            ("ephemeral-storage", "100Gi"),
        ];
        let condition = |kind: &str, status: &str, reason: &str| {
            make!(part NodeCondition {
                type_: kind,
                status,
                reason,
                message: "hollow",
                last_heartbeat_time: seconds(),
                last_transition_time: seconds(),
            })
        };
        make!(part Node {
            status: {
                capacity: amounts,
                allocatable: amounts,
                addresses: [
                    {
                        type_: "InternalIP",
                        address: format!("10.{}.{}.{}", 128 + (index >> 16), (index >> 8) & 255, index & 255),
                    },
                    { type_: "Hostname", address: self.name(index) },
                ],
                conditions: [
                    condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                    condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                    condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                    condition("Ready", "True", "KubeletReady"),
                ],
                node_info: {
                    kubelet_version: coracle_proto::version::BUILD,
                    os_image: "hollow",
                    kernel_version: "none",
                    container_runtime_version: "hollow://1",
                    architecture: "amd64",
                    operating_system: "linux",
                    machine_id: "",
                    system_uuid: "",
                    boot_id: "",
                    kube_proxy_version: "",
                },
            },
        })
    }
}

/// A node's lease.
pub fn lease(node: &str, heartbeat: u64) -> Made<Lease> {
    make!(Lease {
        metadata: { name: node, namespace: "kube-node-lease" },
        spec: {
            holder_identity: node,
            lease_duration_seconds: (heartbeat * 4).max(40),
            renew_time: micros(),
        },
    })
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
pub fn todo(pod: View<'_, Pod>, completes: bool) -> Todo {
    if pod.metadata().deletion_timestamp().is_set() {
        return Todo::Remove;
    }
    match pod.status().phase().or("Pending") {
        "Pending" => Todo::Start,
        "Running" if completes && pod.spec().restart_policy() != "Always" => Todo::Complete,
        _ => Todo::Nothing,
    }
}

/// A patch with the status of a pod that runs (or, `done`, has run).
pub fn pod_status(pod: View<'_, Pod>, serial: u64, done: bool) -> Made<Pod> {
    let now = seconds();
    let condition = |kind: &str, on: bool| {
        make!(part PodCondition {
            type_: kind,
            status: if on { "True" } else { "False" },
            last_transition_time: &now,
            reason: (!on).then_some("PodCompleted"),
        })
    };
    let mut body = make!(part Pod {
        status: {
            phase: if done { "Succeeded" } else { "Running" },
            conditions: [
                condition("PodReadyToStartContainers", !done),
                condition("Initialized", true),
                condition("Ready", !done),
                condition("ContainersReady", !done),
            ],
            container_statuses: container_statuses(pod, false, done, &now),
        },
    });
    let inits = container_statuses(pod, true, true, &now);
    if !inits.is_empty() {
        body.edit().status().init_container_statuses().set(inits);
    }
    if !done {
        let ip = format!("10.{}.{}.{}", 64 + ((serial >> 16) & 63), (serial >> 8) & 255, serial & 255);
        let mut edit = body.edit();
        let mut status = edit.status();
        status.pod_ip().set(&ip);
        status.pod_ips().set([make!(part PodIP { ip })]);
        status.host_ip().set("10.128.0.1");
        status.host_ips().set([make!(part HostIP { ip: "10.128.0.1" })]);
        status.start_time().set(&now);
    }
    body
}

/// The statuses of a pod's containers, or of its init containers; `ended` when they have run.
fn container_statuses(pod: View<'_, Pod>, init: bool, ended: bool, now: &str) -> Vec<Made<ContainerStatus>> {
    let (spec, uid) = (pod.spec(), pod.metadata().uid().text());
    let containers = if init { spec.init_containers() } else { spec.containers() };
    let status = |container: View<'_, Container>| {
        let mut status = make!(part ContainerStatus {
            name: container.name(),
            image: container.image(),
            image_id: container.image(),
            ready: init || !ended,
            started: !ended,
            restart_count: 0,
            container_id: format!("hollow://{uid}/{}", container.name().text()),
        });
        if ended {
            let terminated = make!(part ContainerStateTerminated {
                exit_code: 0,
                reason: "Completed",
                started_at: now,
                finished_at: now,
            });
            status.edit().state().terminated().set(terminated);
        } else {
            status.edit().state().running().started_at().set(now);
        }
        status
    };
    containers.items().map(status).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_fields::Schema as _;
    use serde_json::json;

    #[test]
    fn pods_start_complete_and_go() {
        let pod =
            |phase: &str, policy: &str| make!(Pod { spec: { restart_policy: policy }, status: { phase } });
        assert_eq!(todo(pod("Pending", "Always").view(), false), Todo::Start);
        assert_eq!(todo(pod("Running", "Always").view(), true), Todo::Nothing);
        assert_eq!(todo(pod("Running", "Never").view(), true), Todo::Complete);
        assert_eq!(todo(pod("Running", "Never").view(), false), Todo::Nothing);
        assert_eq!(todo(Pod::of(&json!({"metadata": {"deletionTimestamp": "x"}})), false), Todo::Remove);
    }

    #[test]
    fn nodes_know_their_own() {
        let shape = Shape { prefix: "h-".into(), cpu: "1".into(), memory: "1Gi".into(), pods: 10, zones: 2 };
        assert!(shape.owns(&shape.name(3), 4) && !shape.owns(&shape.name(4), 4) && !shape.owns("other", 4));
        let node = shape.node(3);
        assert_eq!(node.view().metadata().labels().key("topology.kubernetes.io/zone").text(), "zone-1");
    }
}
