//! The status of the node: conditions, capacity and allocatable resources. Pure.

use coracle_proto::cri;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeFeatures,
    NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;
use std::net::IpAddr;

use super::eviction_signals::reserved_by_thresholds;
use super::machine::Machine;
use crate::config::NodeConfig;
use crate::devices::inventory::Amounts;
use crate::pod::node_facts::Pressure;
use crate::policy::NOT_ENFORCED;
use coracle_engine::runtime::RuntimeError;

/// Features of upstream's registry that this node has, in its order.
const DECLARED_FEATURES: [&str; 4] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// At most this many images are listed, the largest first.
const IMAGES: usize = 50;

/// Allocatable resources: capacity minus reservations and eviction thresholds, memory also minus huge pages. Cpu in thousandths.
pub fn allocatable(config: &NodeConfig, machine: &Machine) -> BTreeMap<String, i64> {
    let mut all = machine.capacity.clone();
    for (key, amount) in &mut all {
        let reserved = config.reserved.get(key).copied().unwrap_or(0);
        *amount = (*amount - reserved - reserved_by_thresholds(&config.eviction.hard, key, *amount)).max(0);
    }
    // Huge pages are set aside: no other memory can use them.
    let huge = machine.capacity.iter().filter(|(key, _)| key.starts_with("hugepages-"));
    let huge = huge.map(|(_, bytes)| *bytes).fold(0, i64::saturating_add);
    if let Some(memory) = all.get_mut("memory") {
        *memory = memory.saturating_sub(huge).max(0);
    }
    all.insert("pods".to_owned(), i64::from(config.max_pods));
    all
}

fn quantities(amounts: &BTreeMap<String, i64>) -> BTreeMap<String, Quantity> {
    amounts.iter().map(|(key, amount)| (key.clone(), quantity(key, *amount))).collect()
}

fn quantity(key: &str, amount: i64) -> Quantity {
    Quantity(match key {
        "cpu" if amount % 1000 == 0 => (amount / 1000).to_string(),
        "cpu" => format!("{amount}m"),
        "pods" => amount.to_string(),
        _ if amount % 1024 == 0 && amount != 0 => format!("{}Ki", amount / 1024),
        _ => amount.to_string(),
    })
}

/// Inputs of the status.
pub struct StatusInput<'a> {
    /// Settings.
    pub config: &'a NodeConfig,
    /// The machine.
    pub machine: &'a Machine,
    /// The runtime's own status, or why it has none.
    pub runtime: Result<&'a cri::StatusResponse, &'a RuntimeError>,
    /// Name and version of the runtime.
    pub runtime_version: &'a str,
    /// Images on the node.
    pub images: &'a [cri::Image],
    /// What runs short.
    pub pressure: Pressure,
    /// The machine goes down.
    pub shutting_down: bool,
    /// Whether network policies are enforced, by whom ever; `None` when that is not known yet.
    pub policies: Option<bool>,
    /// Devices of device plugins.
    pub devices: &'a Amounts,
    /// Conditions as they were.
    pub previous: &'a [NodeCondition],
    /// Now.
    pub now: Timestamp,
}

/// The node's status.
pub fn status(input: &StatusInput<'_>) -> NodeStatus {
    let mut info = input.machine.info.clone();
    info.container_runtime_version = input.runtime_version.to_owned();
    let mut capacity = input.machine.capacity.clone();
    capacity.insert("pods".to_owned(), i64::from(input.config.max_pods));
    capacity.extend(input.devices.capacity.clone());
    let mut allocatable = allocatable(input.config, input.machine);
    allocatable.extend(input.devices.allocatable.clone());
    let mut addresses: Vec<NodeAddress> = input
        .config
        .ips
        .iter()
        .filter(|ip| ip.parse::<IpAddr>().is_ok())
        .map(|ip| NodeAddress { type_: "InternalIP".to_owned(), address: ip.clone() })
        .collect();
    addresses.push(NodeAddress { type_: "Hostname".to_owned(), address: input.machine.hostname.clone() });
    NodeStatus {
        addresses: Some(addresses),
        allocatable: Some(quantities(&allocatable)),
        capacity: Some(quantities(&capacity)),
        conditions: Some(conditions(input)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(input.config.api_port) }),
        }),
        images: Some(images(input.images)),
        node_info: Some(info),
        declared_features: Some(DECLARED_FEATURES.map(str::to_owned).into()),
        runtime_handlers: input.runtime.as_ref().ok().map(|status| handlers(status)),
        features: input.runtime.as_ref().ok().and_then(|status| status.features).map(|features| {
            NodeFeatures { supplemental_groups_policy: Some(features.supplemental_groups_policy) }
        }),
        ..NodeStatus::default()
    }
}

fn handlers(status: &cri::StatusResponse) -> Vec<NodeRuntimeHandler> {
    let handler = |handler: &cri::RuntimeHandler| NodeRuntimeHandler {
        name: Some(handler.name.clone()),
        features: handler.features.as_ref().map(|features| NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(features.recursive_read_only_mounts),
            user_namespaces: Some(features.user_namespaces),
        }),
    };
    status.runtime_handlers.iter().map(handler).collect()
}

fn images(images: &[cri::Image]) -> Vec<ContainerImage> {
    let mut sorted: Vec<&cri::Image> = images.iter().collect();
    sorted.sort_by_key(|image| std::cmp::Reverse(image.size));
    sorted
        .into_iter()
        .take(IMAGES)
        .map(|image| ContainerImage {
            names: Some(image.repo_digests.iter().chain(&image.repo_tags).take(5).cloned().collect()),
            size_bytes: i64::try_from(image.size).ok(),
        })
        .filter(|image| image.names.as_ref().is_some_and(|names| !names.is_empty()))
        .collect()
}

fn conditions(input: &StatusInput<'_>) -> Vec<NodeCondition> {
    let pressure = input.pressure;
    let ready = not_ready(input);
    let list = [
        (
            "MemoryPressure",
            pressure.memory,
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ),
        (
            "DiskPressure",
            pressure.disk,
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ),
        (
            "PIDPressure",
            pressure.pids,
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ),
    ];
    let mut all: Vec<NodeCondition> = list
        .into_iter()
        .map(|(kind, on, yes, no)| {
            let (reason, message) = if on { yes } else { no };
            condition(input, kind, on, reason, message.to_owned())
        })
        .collect();
    all.push(match ready {
        None => condition(input, "Ready", true, "KubeletReady", "kubelet is posting ready status".to_owned()),
        Some(why) => condition(input, "Ready", false, "KubeletNotReady", why),
    });
    all.extend(policies(input));
    all
}

/// The condition NetworkPoliciesEnforced; present only after it was false.
fn policies(input: &StatusInput<'_>) -> Option<NodeCondition> {
    const KIND: &str = "NetworkPoliciesEnforced";
    let told = input.previous.iter().find(|old| old.type_ == KIND);
    match input.policies {
        Some(false) => Some(condition(input, KIND, false, "Forbidden", NOT_ENFORCED.to_owned())),
        Some(true) => {
            told.map(|_| condition(input, KIND, true, "Enforced", "network policies are enforced".to_owned()))
        }
        None => told.cloned(),
    }
}

/// Why the node is not ready.
fn not_ready(input: &StatusInput<'_>) -> Option<String> {
    if input.shutting_down {
        return Some("node is shutting down".to_owned());
    }
    let status = match &input.runtime {
        Ok(status) => status.status.clone().unwrap_or_default(),
        Err(error) => return Some(format!("container runtime is down: {error}")),
    };
    for (kind, text) in [
        ("RuntimeReady", "container runtime not ready"),
        ("NetworkReady", "container runtime network not ready"),
    ] {
        let Some(condition) = status.conditions.iter().find(|condition| condition.r#type == kind) else {
            return Some(format!("container runtime status doesn't include {kind}"));
        };
        if !condition.status {
            return Some(format!(
                "{text}: {kind}=false reason:{} message:{}",
                condition.reason, condition.message
            ));
        }
    }
    None
}

fn condition(
    input: &StatusInput<'_>,
    kind: &str,
    status: bool,
    reason: &str,
    message: String,
) -> NodeCondition {
    let status = if status { "True" } else { "False" };
    let old = input.previous.iter().find(|old| old.type_ == kind && old.status == status);
    let now = Time(Timestamp::from_second(input.now.as_second()).unwrap_or(input.now));
    NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_heartbeat_time: Some(now.clone()),
        last_transition_time: Some(old.and_then(|old| old.last_transition_time.clone()).unwrap_or(now)),
    }
}

/// Whether two statuses are equal except for heartbeats.
pub fn same(old: &NodeStatus, new: &NodeStatus) -> bool {
    let bare = |status: &NodeStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
        status
    };
    bare(old) == bare(new)
}

/// Whether the stored conditions differ from those sent: the node controller overwrote them while the node was unreachable.
pub fn was_overwritten(sent: &NodeStatus, held: &NodeStatus) -> bool {
    let held = |kind: &str| held.conditions.iter().flatten().find(|held| held.type_ == kind);
    let mut sent = sent.conditions.iter().flatten();
    sent.any(|sent| held(&sent.type_).is_none_or(|held| held.status != sent.status))
}

/// Event reasons of pressure conditions that changed.
pub fn changed_pressure_reasons(old: &NodeStatus, new: &NodeStatus) -> Vec<&'static str> {
    const NAMES: [(&str, &str, &str); 3] = [
        ("MemoryPressure", "NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
        ("DiskPressure", "NodeHasDiskPressure", "NodeHasNoDiskPressure"),
        ("PIDPressure", "NodeHasInsufficientPID", "NodeHasSufficientPID"),
    ];
    let is = |status: &NodeStatus, kind: &str| {
        let found = status.conditions.iter().flatten().find(|condition| condition.type_ == kind)?;
        Some(found.status == "True")
    };
    let names = NAMES.into_iter().filter(|(kind, ..)| is(old, kind) != is(new, kind));
    names.filter_map(|(kind, bad, good)| Some(if is(new, kind)? { bad } else { good })).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn events_tell_of_pressure_that_comes_and_goes() {
        let status = |memory: &str, disk: &str| {
            let conditions = [("MemoryPressure", memory), ("DiskPressure", disk)].map(|(kind, status)| {
                NodeCondition { type_: kind.into(), status: status.into(), ..NodeCondition::default() }
            });
            NodeStatus { conditions: Some(conditions.into()), ..NodeStatus::default() }
        };
        let (well, full) = (status("False", "False"), status("False", "True"));
        assert_eq!(
            changed_pressure_reasons(&NodeStatus::default(), &well),
            ["NodeHasSufficientMemory", "NodeHasNoDiskPressure"]
        );
        assert_eq!(changed_pressure_reasons(&well, &full), ["NodeHasDiskPressure"]);
        assert_eq!(changed_pressure_reasons(&full, &well), ["NodeHasNoDiskPressure"]);
        assert!(changed_pressure_reasons(&well, &well).is_empty());
    }

    #[test]
    fn somebody_else_spoke_for_the_node() {
        let status = |conditions: &[(&str, &str, &str)]| {
            let conditions = conditions.iter().map(|(kind, status, reason)| NodeCondition {
                type_: (*kind).into(),
                status: (*status).into(),
                reason: Some((*reason).into()),
                ..NodeCondition::default()
            });
            NodeStatus { conditions: Some(conditions.collect()), ..NodeStatus::default() }
        };
        let sent = status(&[("DiskPressure", "False", "a"), ("Ready", "True", "a")]);
        for (held, want) in [
            (vec![("DiskPressure", "False", "a"), ("Ready", "True", "b")], false),
            (vec![("DiskPressure", "False", "a"), ("Ready", "True", "a"), ("Mine", "Unknown", "")], false),
            (vec![("DiskPressure", "False", "a"), ("Ready", "Unknown", "NodeStatusUnknown")], true),
            (vec![("Ready", "True", "a")], true),
        ] {
            assert_eq!(was_overwritten(&sent, &status(&held)), want, "{held:?}");
        }
        assert!(!was_overwritten(&NodeStatus::default(), &sent), "nothing was sent yet");
    }

    /// The conditions of a node that is well, but for a change.
    fn conditions_with(
        previous: &[NodeCondition],
        change: impl FnOnce(&mut StatusInput<'_>),
    ) -> Vec<NodeCondition> {
        let temp = tempfile::tempdir().unwrap();
        let config = NodeConfig::in_directory(temp.path());
        let machine = super::super::machine::read_machine(temp.path());
        let well = |kind: &str| cri::RuntimeCondition {
            r#type: kind.to_owned(),
            status: true,
            ..cri::RuntimeCondition::default()
        };
        let runtime = cri::StatusResponse {
            status: Some(cri::RuntimeStatus { conditions: vec![well("RuntimeReady"), well("NetworkReady")] }),
            ..cri::StatusResponse::default()
        };
        let devices = Amounts::default();
        let mut input = StatusInput {
            config: &config,
            machine: &machine,
            runtime: Ok(&runtime),
            runtime_version: "coracle://1",
            images: &[],
            pressure: Pressure::default(),
            shutting_down: false,
            policies: Some(true),
            devices: &devices,
            previous,
            now: Timestamp::UNIX_EPOCH,
        };
        change(&mut input);
        conditions(&input)
    }

    #[test]
    fn policies_are_told_once_they_were_not_enforced() {
        let told = |previous: &[NodeCondition], policies: Option<bool>| {
            let all = conditions_with(previous, |input| input.policies = policies);
            all.into_iter().find(|condition| condition.type_ == "NetworkPoliciesEnforced")
        };
        assert_eq!(told(&[], Some(true)), None, "they always were");
        assert_eq!(told(&[], None), None, "it is not known yet");
        let refused = told(&[], Some(false)).unwrap();
        assert_eq!((refused.status.as_str(), refused.message.as_deref()), ("False", Some(NOT_ENFORCED)));
        let before = [refused.clone()];
        assert_eq!(told(&before, None), Some(refused), "as it was, while it is not known");
        let mended = told(&before, Some(true)).unwrap();
        assert_eq!((mended.status.as_str(), mended.reason.as_deref()), ("True", Some("Enforced")));
        assert_eq!(told(std::slice::from_ref(&mended), Some(true)), Some(mended), "it stays");
    }

    #[test]
    fn huge_pages_are_no_memory_for_pods() {
        let temp = tempfile::tempdir().unwrap();
        let mut config = NodeConfig::in_directory(temp.path());
        config.reserved.insert("memory".to_owned(), 10);
        let mut machine = super::super::machine::read_machine(temp.path());
        let sizes = [("memory", 1000), ("hugepages-2Mi", 300), ("hugepages-1Gi", 200), ("cpu", 1)];
        machine.capacity = sizes.map(|(key, amount)| (key.to_owned(), amount)).into();
        let all = allocatable(&config, &machine);
        assert_eq!((all["memory"], all["hugepages-2Mi"], all["hugepages-1Gi"]), (490, 300, 200));
        machine.capacity.insert("hugepages-2Mi".to_owned(), 5000);
        assert_eq!(allocatable(&config, &machine)["memory"], 0);
    }

    #[test]
    fn amounts_as_people_write_them() {
        for (key, amount, want) in [
            ("cpu", 2000, "2"),
            ("cpu", 1500, "1500m"),
            ("memory", 2048, "2Ki"),
            ("memory", 1, "1"),
            ("pods", 110, "110"),
            ("hugepages-2Mi", 0, "0"),
        ] {
            assert_eq!(quantity(key, amount).0, want);
        }
    }
}
