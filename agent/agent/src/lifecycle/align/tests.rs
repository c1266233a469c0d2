#![allow(clippy::unwrap_used)]
//! Pods on a made-up machine: two NUMA nodes of two cores with two threads each, and 8 GiB.

use super::*;
use crate::config::cpu_options::CpuOptions;
use crate::config::topology_options::TopologyOptions;
use serde_json::json;
use std::fs;
use std::sync::Arc;
use tokio::sync::Notify;

struct Setting {
    aligned: AlignedResources,
    devices: Devices,
    _dir: tempfile::TempDir,
}

fn setting(policy: Policy, scope: Scope) -> Setting {
    setting_with(policy, scope, CpuOptions::default())
}

fn setting_with(policy: Policy, scope: Scope, options: CpuOptions) -> Setting {
    let (dir, mut config) = machine();
    (config.static_cpus, config.static_memory) = (Some(options), true);
    (config.topology_policy, config.topology_scope) = (policy, scope);
    open(dir, &config)
}

/// The directory of the machine, and settings of its node.
fn machine() -> (tempfile::TempDir, NodeConfig) {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: String, text: &str| {
        let path = dir.path().join("system").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("cpu/online".into(), "0-7\n");
    for cpu in 0..8 {
        let core = cpu % 4;
        write(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), &format!("{core},{}\n", core + 4));
        write(format!("cpu/cpu{cpu}/topology/physical_package_id"), &format!("{}\n", core / 2));
    }
    write("node/online".into(), "0-1\n");
    for (node, cpus, distance) in [(0, "0-1,4-5\n", "10 21\n"), (1, "2-3,6-7\n", "21 10\n")] {
        write(format!("node/node{node}/cpulist"), cpus);
        write(format!("node/node{node}/distance"), distance);
        write(format!("node/node{node}/meminfo"), &format!("Node {node} MemTotal: 8388608 kB\n"));
    }
    let config = NodeConfig::in_directory(dir.path());
    fs::create_dir_all(&config.root_dir).unwrap();
    fs::create_dir_all(dir.path().join("kubelet/device-plugins")).unwrap();
    (dir, config)
}

fn open(dir: tempfile::TempDir, config: &NodeConfig) -> Setting {
    let aligned = AlignedResources::open(config, &dir.path().join("system"));
    let devices = Devices::open(&config.kubelet_dir, Arc::new(Notify::new()), Arc::new(|_: &str| {}));
    Setting { aligned, devices, _dir: dir }
}

/// A Guaranteed pod whose containers ask for cpus and memory.
fn pod(uid: &str, containers: &[(&str, &str)]) -> Pod {
    let container = |(at, (cpu, memory)): (usize, &(&str, &str))| {
        json!({"name": format!("c{at}"), "resources":
            {"limits": {"cpu": cpu, "memory": memory}, "requests": {"cpu": cpu, "memory": memory}}})
    };
    let containers: Vec<_> = containers.iter().enumerate().map(container).collect();
    serde_json::from_value(json!({"metadata": {"uid": uid, "name": uid}, "spec": {"containers": containers}}))
        .unwrap()
}

impl Setting {
    /// Cpus and memory nodes of each container, or the reason of the rejection.
    async fn admit(&self, pod: &Pod) -> Result<Vec<(String, String)>, &'static str> {
        if let Err(error) = self.aligned.allocate(pod, &self.devices, false).await {
            let uid = spec::uid(pod);
            self.aligned.cpus.as_ref().unwrap().release(uid);
            self.aligned.memory.as_ref().unwrap().release(uid);
            return Err(error.reason());
        }
        let of = |name: &str| {
            let cpus = self.aligned.cpus.as_ref().unwrap().of(spec::uid(pod), name);
            (cpus, self.aligned.memory.as_ref().unwrap().of(spec::uid(pod), name))
        };
        Ok(spec::spec(pod).containers.iter().map(|container| of(&container.name)).collect())
    }
}

fn got(list: &[(&str, &str)]) -> Result<Vec<(String, String)>, &'static str> {
    Ok(list.iter().map(|(cpus, memory)| ((*cpus).to_owned(), (*memory).to_owned())).collect())
}

#[tokio::test]
async fn a_container_gets_cpus_and_memory_of_one_node() {
    for policy in [Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode] {
        let setting = setting(policy, Scope::Container);
        // One cpu of the first node is reserved: three are left there.
        assert_eq!(setting.admit(&pod("a", &[("3", "6Gi")])).await, got(&[("1,4-5", "0")]), "{policy:?}");
        // The memory of the first node is used up, its cpus as well.
        assert_eq!(setting.admit(&pod("b", &[("2", "6Gi")])).await, got(&[("2,6", "1")]), "{policy:?}");
    }
}

#[tokio::test]
async fn policies_differ_when_resources_are_apart() {
    for (policy, want) in [
        (Policy::BestEffort, got(&[("3,6-7", "0")])),
        (Policy::Restricted, Err("TopologyAffinityError")),
        (Policy::SingleNumaNode, Err("TopologyAffinityError")),
    ] {
        let setting = setting(policy, Scope::Container);
        // The first node keeps its memory and loses its cpus, the second one the other way round.
        assert_eq!(setting.admit(&pod("cpus", &[("3", "1Gi")])).await, got(&[("1,4-5", "0")]));
        assert_eq!(setting.admit(&pod("memory", &[("1", "6Gi")])).await, got(&[("2", "1")]));
        assert_eq!(setting.admit(&pod("both", &[("3", "4Gi")])).await, want, "{policy:?}");
    }
}

#[tokio::test]
async fn what_no_node_has_alone_is_admitted_unless_one_node_is_asked_for() {
    for (policy, want) in
        [(Policy::Restricted, got(&[("1-7", "0,1")])), (Policy::SingleNumaNode, Err("TopologyAffinityError"))]
    {
        let setting = setting(policy, Scope::Container);
        assert_eq!(setting.admit(&pod("wide", &[("7", "12Gi")])).await, want, "{policy:?}");
    }
}

#[tokio::test]
async fn the_scope_says_what_belongs_together() {
    let two = pod("two", &[("2", "5Gi"), ("2", "2Gi")]);
    let apart = setting(Policy::SingleNumaNode, Scope::Container);
    assert_eq!(apart.admit(&two).await, got(&[("1,5", "0"), ("2,6", "1")]));
    let together = setting(Policy::SingleNumaNode, Scope::Pod);
    assert_eq!(together.admit(&two).await, got(&[("2,6", "1"), ("3,7", "1")]), "only there are four cpus");
    let large = pod("large", &[("2", "5Gi"), ("2", "5Gi")]);
    let together = setting(Policy::SingleNumaNode, Scope::Pod);
    assert_eq!(together.admit(&large).await, Err("TopologyAffinityError"));
}

#[tokio::test]
async fn without_a_policy_only_memory_is_bound() {
    let setting = setting(Policy::None, Scope::Container);
    let (cpus, memory) = setting.admit(&pod("a", &[("2", "1Gi")])).await.unwrap().remove(0);
    assert_eq!((cpus.as_str(), memory.as_str()), ("0-7", "0"), "cpus were given at admission");
}

#[tokio::test]
async fn whole_cores_of_one_node_or_a_rejection() {
    let options = CpuOptions { full_cores_only: true, ..CpuOptions::default() };
    let setting = setting_with(Policy::SingleNumaNode, Scope::Container, options);
    assert_eq!(setting.admit(&pod("a", &[("2", "1Gi")])).await, got(&[("1,5", "0")]));
    assert_eq!(setting.admit(&pod("b", &[("4", "1Gi")])).await, got(&[("2-3,6-7", "1")]));
    // The hints say first that no node has them.
    assert_eq!(setting.admit(&pod("c", &[("2", "1Gi")])).await, Err("TopologyAffinityError"));
    assert_eq!(setting.admit(&pod("d", &[("1", "1Gi")])).await, Err("TopologyAffinityError"));
    let setting = setting_with(Policy::BestEffort, Scope::Container, options);
    assert_eq!(setting.admit(&pod("e", &[("1", "1Gi")])).await, Err("SMTAlignmentError"));
}

#[test]
fn distances_and_the_number_of_nodes_are_options() {
    for (policy, prefer_closest, max_nodes, is_on, is_close) in [
        (Policy::Restricted, false, 8, true, false),
        (Policy::Restricted, true, 8, true, true),
        (Policy::SingleNumaNode, true, 8, true, false),
        (Policy::Restricted, false, 1, false, false),
        (Policy::None, false, 8, false, false),
    ] {
        let (dir, mut config) = machine();
        (config.topology_policy, config.static_memory) = (policy, true);
        config.topology_options = TopologyOptions { prefer_closest, max_nodes };
        let setting = open(dir, &config);
        let found =
            (setting.aligned.is_on(), setting.aligned.closest.is_some(), setting.aligned.memory.is_some());
        assert_eq!(found, (is_on, is_close, max_nodes > 1), "{policy:?} {prefer_closest} {max_nodes}");
    }
}

#[test]
fn more_nodes_than_can_be_combined_are_not_aligned() {
    for (nodes, is_on) in [(2, true), (12, true), (13, false), (40, false)] {
        let (dir, mut config) = machine();
        fs::write(dir.path().join("system/node/online"), format!("0-{}\n", nodes - 1)).unwrap();
        config.topology_policy = Policy::BestEffort;
        config.topology_options.max_nodes = 64;
        assert_eq!(open(dir, &config).aligned.is_on(), is_on, "{nodes}");
    }
}
