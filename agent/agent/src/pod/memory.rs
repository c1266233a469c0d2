//! Memory manager (`--memory-manager-policy static`): containers of Guaranteed pods get their memory from certain NUMA nodes.
//! Assignments are stored in `memory_manager_state`.
//!
//! A node serves either containers of its own, or those of one set of nodes: otherwise the memory of a set could be used up by a
//! container that may use one of its nodes only.

use coracle_cli::causes;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::spec::{self, Qos, Role};
use crate::numa::{self, Hints, Machine, Nodes, parse_list};

/// Why memory cannot be assigned.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// No set of nodes has enough.
    #[error(
        "Allocate failed due to [memorymanager] failed to get the default NUMA affinity: no set of NUMA nodes has {requested} free bytes, which is unexpected"
    )]
    TooLittle {
        /// Asked for.
        requested: u64,
    },
    /// The state file could not be written.
    #[error("Allocate failed due to writing {}, which is unexpected", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// Memory of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block {
    /// Nodes, such as `0,1`.
    nodes: String,
    bytes: u64,
    /// Its container ends before the others start.
    is_init: bool,
}

impl Block {
    fn nodes(&self) -> Nodes {
        Nodes::of(parse_list(&self.nodes))
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    policy_name: String,
    #[serde(default)]
    entries: Given,
}

/// Blocks by pod and container.
type Given = BTreeMap<String, BTreeMap<String, Block>>;

/// The memory of this node.
#[derive(Debug)]
pub struct Memory {
    path: PathBuf,
    /// Bytes for pods, by NUMA node.
    allocatable: BTreeMap<u32, u64>,
    given: Mutex<Given>,
}

impl Memory {
    /// Loads the state file. `reserved` bytes are kept from pods: on each node in proportion to its memory.
    pub fn open(dir: &Path, machine: &Machine, reserved: u64) -> Self {
        let path = dir.join("memory_manager_state");
        let total: u128 = machine.nodes.values().map(|node| u128::from(node.memory)).sum();
        let left = |memory: u64| {
            let share = u128::from(reserved) * u128::from(memory) / total.max(1);
            memory.saturating_sub(u64::try_from(share).unwrap_or(u64::MAX))
        };
        let allocatable = machine.nodes.iter().map(|(number, node)| (*number, left(node.memory))).collect();
        let state: State =
            fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Self { path, allocatable, given: Mutex::new(state.entries) }
    }

    fn all(&self) -> Nodes {
        Nodes::of(self.allocatable.keys().copied())
    }

    fn total(&self, nodes: Nodes) -> u64 {
        nodes.numbers().filter_map(|number| self.allocatable.get(&number)).sum()
    }

    /// What is left of a set of nodes; nothing if one of them serves others than this set. Init containers of the pod itself
    /// have ended before its later containers start.
    fn free(&self, given: &Given, uid: &str, nodes: Nodes) -> Option<u64> {
        let mut used: u64 = 0;
        for (owner, containers) in given {
            let (mut init, mut others): (u64, u64) = (0, 0);
            for block in containers.values().filter(|block| !block.nodes().and(nodes).is_empty()) {
                if block.nodes() != nodes {
                    return None;
                }
                match block.is_init {
                    true if owner == uid => {}
                    true => init = init.max(block.bytes),
                    false => others = others.saturating_add(block.bytes),
                }
            }
            used = used.saturating_add(init.max(others));
        }
        Some(self.total(nodes).saturating_sub(used))
    }

    /// Hints for the memory of a container, or without one for that of all containers of the pod together.
    pub fn hints(&self, pod: &Pod, container: Option<&str>) -> Hints {
        let wanted = wanted(pod);
        let of = |is_init: bool| wanted.iter().filter(move |w| w.2 == is_init).map(|w| w.1);
        let bytes = match container {
            Some(container) => wanted.iter().find(|(name, ..)| name == container)?.1,
            None => of(false).fold(0, u64::saturating_add).max(of(true).max().unwrap_or_default()),
        };
        let given = self.given.lock();
        (bytes > 0).then(|| self.hints_for(&given, spec::uid(pod), bytes))
    }

    fn hints_for(&self, given: &Given, uid: &str, bytes: u64) -> Vec<numa::Hint> {
        let free = |nodes| self.free(given, uid, nodes);
        numa::hints(self.all(), bytes, |nodes| self.total(nodes), free)
    }

    /// Assigns memory to one container: of these nodes if they have enough, otherwise of the smallest set with them that has.
    pub fn admit_near(&self, pod: &Pod, container: &str, near: Option<Nodes>) -> Result<(), MemoryError> {
        let wanted = wanted(pod);
        let Some((name, bytes, is_init)) = wanted.into_iter().find(|(name, ..)| name == container) else {
            return Ok(());
        };
        let (uid, mut given) = (spec::uid(pod), self.given.lock());
        if bytes == 0 || given.get(uid).is_some_and(|own| own.contains_key(&name)) {
            return Ok(());
        }
        let near = near.unwrap_or_default();
        let sets = self.hints_for(&given, uid, bytes).into_iter().filter_map(|hint| hint.nodes);
        let nodes = sets.filter(|nodes| nodes.includes(near)).min_by_key(|nodes| nodes.width());
        let nodes = nodes.ok_or(MemoryError::TooLittle { requested: bytes })?;
        let block = Block { nodes: nodes.to_string(), bytes, is_init };
        given.entry(uid.to_owned()).or_default().insert(name.clone(), block);
        let written = self.write(&given);
        if written.is_err()
            && let Some(own) = given.get_mut(uid)
        {
            own.remove(&name);
        }
        written.map_err(|source| MemoryError::Record { path: self.path.clone(), source })
    }

    /// Releases the pod's memory.
    pub fn release(&self, uid: &str) {
        let mut given = self.given.lock();
        if given.remove(uid).is_some()
            && let Err(error) = self.write(&given)
        {
            tracing::warn!(uid, error = %causes::chain(&error), "released memory not removed from the state file");
        }
    }

    /// The NUMA nodes of a container's memory, such as `0,1`; empty for all.
    pub fn of(&self, uid: &str, container: &str) -> String {
        let given = self.given.lock();
        let block = given.get(uid).and_then(|pod| pod.get(container));
        block.map(|block| block.nodes.clone()).unwrap_or_default()
    }

    fn write(&self, given: &Given) -> std::io::Result<()> {
        let state = State { policy_name: "Static".to_owned(), entries: given.clone() };
        let fresh = self.path.with_extension("new");
        fs::write(&fresh, serde_json::to_vec(&state)?)?;
        fs::rename(fresh, &self.path)
    }
}

/// Containers that get memory of certain nodes: name, bytes, and whether it ends before the others start.
fn wanted(pod: &Pod) -> Vec<(String, u64, bool)> {
    let spec = spec::spec(pod);
    if spec::qos(&spec) != Qos::Guaranteed {
        return vec![];
    }
    let of = |(role, container): (Role, std::borrow::Cow<'_, k8s_openapi::api::core::v1::Container>)| {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        let bytes =
            limits.and_then(|limits| limits.get("memory")).map(|quantity| spec::amount("memory", quantity));
        let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default();
        (container.name.clone(), bytes, role == Role::Init)
    };
    spec::containers(&spec).filter(|(role, _)| *role != Role::Ephemeral).map(of).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::numa::{Hint, MachineNode};
    use serde_json::json;

    fn pod(uid: &str, init: &[&str], containers: &[&str]) -> Pod {
        let of = |prefix: &str, list: &[&str]| -> Vec<serde_json::Value> {
            let one = |(at, memory): (usize, &&str)| {
                json!({"name": format!("{prefix}{at}"), "resources":
                    {"limits": {"cpu": "1", "memory": memory}, "requests": {"cpu": "1", "memory": memory}}})
            };
            list.iter().enumerate().map(one).collect()
        };
        serde_json::from_value(json!({"metadata": {"uid": uid, "name": uid},
            "spec": {"initContainers": of("i", init), "containers": of("c", containers)}}))
        .unwrap()
    }

    /// Two nodes of 8 GiB, of which 1 GiB each is reserved.
    fn open(dir: &Path) -> Memory {
        let node = MachineNode { memory: 8 << 30, ..MachineNode::default() };
        let machine = Machine { nodes: [(0, node.clone()), (1, node)].into(), ..Machine::default() };
        Memory::open(dir, &machine, 2 << 30)
    }

    fn hint(nodes: &[u32], is_preferred: bool) -> Hint {
        Hint { nodes: Some(Nodes::of(nodes.iter().copied())), is_preferred }
    }

    #[test]
    fn memory_comes_from_the_nodes_of_the_hint() {
        let dir = tempfile::tempdir().unwrap();
        let memory = open(dir.path());
        let first = pod("a", &[], &["5Gi"]);
        assert_eq!(
            memory.hints(&first, Some("c0")),
            Some(vec![hint(&[0], true), hint(&[1], true), hint(&[0, 1], false)])
        );
        memory.admit_near(&first, "c0", Some(Nodes::of([1]))).unwrap();
        assert_eq!(memory.of("a", "c0"), "1");
        // The second node serves a container alone: it is no part of a larger set any more.
        assert_eq!(memory.hints(&pod("b", &[], &["3Gi"]), Some("c0")), Some(vec![hint(&[0], true)]));
        assert_eq!(memory.hints(&pod("b", &[], &["8Gi"]), Some("c0")), Some(vec![]));
        assert!(memory.admit_near(&pod("b", &[], &["8Gi"]), "c0", None).is_err());
        memory.admit_near(&pod("b", &[], &["2Gi"]), "c0", Some(Nodes::of([1]))).unwrap();
        assert_eq!(memory.of("b", "c0"), "1");
        // A new agent knows all that.
        let again = open(dir.path());
        assert_eq!(again.hints(&pod("c", &[], &["1Gi"]), Some("c0")), Some(vec![hint(&[0], true)]));
        again.release("a");
        again.release("b");
        let wide = pod("d", &[], &["10Gi"]);
        again.admit_near(&wide, "c0", Some(Nodes::of([0]))).unwrap();
        assert_eq!(again.of("d", "c0"), "0,1", "one node is not enough");
        assert_eq!(again.hints(&pod("c", &[], &["4Gi"]), Some("c0")), Some(vec![hint(&[0, 1], false)]));
    }

    #[test]
    fn containers_have_the_memory_of_init_containers() {
        let dir = tempfile::tempdir().unwrap();
        let memory = open(dir.path());
        let first = pod("a", &["6Gi"], &["5Gi", "1Gi"]);
        for container in ["i0", "c0", "c1"] {
            memory.admit_near(&first, container, Some(Nodes::of([0]))).unwrap();
        }
        let hints = memory.hints(&pod("b", &[], &["1Gi"]), Some("c0")).unwrap();
        assert!(hints.contains(&hint(&[0], true)), "6 of 7 GiB are used: {hints:?}");
        assert!(!memory.hints(&pod("b", &[], &["2Gi"]), Some("c0")).unwrap().contains(&hint(&[0], true)));
    }

    #[test]
    fn other_pods_use_all_nodes() {
        let dir = tempfile::tempdir().unwrap();
        let memory = open(dir.path());
        let burstable: Pod =
            serde_json::from_value(json!({"metadata": {"uid": "x"}, "spec": {"containers": [
            {"name": "c0", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}))
            .unwrap();
        assert_eq!(memory.hints(&burstable, Some("c0")), None);
        memory.admit_near(&burstable, "c0", Some(Nodes::of([0]))).unwrap();
        assert_eq!(memory.of("x", "c0"), "");
    }
}
