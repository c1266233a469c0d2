//! Pools of devices: the newest generation of the slices of each pool. A pool that is not complete, or not consistent, is not
//! used.

use super::DeviceId;
use super::capacity::{Capacity, quantity};
use super::wire::{self, Slice};
use crate::node::NodeInfo;
use crate::node_selector::selects;
use crate::wire::NodeSelector;
use coracle_expressions::devices::{Attribute, AttributeError, DeviceFacts};
use coracle_proto::quantity::Quantity;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The nodes that can use a device.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Nodes {
    Named(String),
    Selected(NodeSelector),
    All,
    /// Nothing that is known was set.
    None,
}

impl Nodes {
    fn new(name: &str, selector: Option<&NodeSelector>, all: bool) -> Self {
        match selector {
            _ if !name.is_empty() => Self::Named(name.to_owned()),
            Some(selector) => Self::Selected(selector.clone()),
            None if all => Self::All,
            None => Self::None,
        }
    }

    pub(super) fn has(&self, node: &NodeInfo) -> bool {
        match self {
            Self::Named(name) => *name == node.name,
            Self::Selected(selector) => selects(selector, node),
            Self::All => true,
            Self::None => false,
        }
    }
}

/// Counters by set and name.
pub(super) type Counters = BTreeMap<(String, String), Quantity>;

/// What must hold of an allocated device before a pod is bound, and whether it belongs to the pod's node from then on.
#[derive(Debug, Clone)]
pub(super) struct Binding {
    pub(super) conditions: Vec<String>,
    pub(super) failure_conditions: Vec<String>,
    pub(super) binds_to_node: bool,
}

/// A device of a pool.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) nodes: Arc<Nodes>,
    pub(super) facts: Result<DeviceFacts, AttributeError>,
    pub(super) attributes: BTreeMap<String, wire::Attribute>,
    pub(super) taints: Vec<wire::Taint>,
    pub(super) capacity: BTreeMap<String, Capacity>,
    /// Several claims can share it, each with a part of its capacity.
    pub(super) is_shared: bool,
    pub(super) binding: Binding,
    /// What it takes from counters of its pool.
    pub(super) counters: Counters,
}

impl Device {
    fn new(slice: &Slice, nodes: &Arc<Nodes>, device: &wire::Device) -> Self {
        let spec = &slice.spec;
        let nodes = match spec.per_device_node_selection {
            true => Arc::new(Nodes::new(&device.node_name, device.node_selector.as_ref(), device.all_nodes)),
            false => nodes.clone(),
        };
        Self {
            id: DeviceId::new(&spec.driver, &spec.pool.name, &device.name),
            nodes,
            facts: facts(&spec.driver, device),
            attributes: device.attributes.clone(),
            taints: device.taints.clone(),
            capacity: device.capacity.iter().map(|(name, one)| (name.clone(), Capacity::new(one))).collect(),
            is_shared: device.allow_multiple_allocations,
            binding: Binding {
                conditions: device.binding_conditions.clone(),
                failure_conditions: device.binding_failure_conditions.clone(),
                binds_to_node: device.binds_to_node,
            },
            counters: device
                .consumes_counters
                .iter()
                .flat_map(|consumed| counters(&consumed.counter_set, &consumed.counters))
                .collect(),
        }
    }

    /// The value of an attribute by its full name.
    pub(super) fn attribute(&self, name: &str) -> Option<&wire::Attribute> {
        let own = || {
            let (domain, name) = name.split_once('/')?;
            self.attributes.get(name).filter(|_| domain == &*self.id.driver)
        };
        self.attributes.get(name).or_else(own)
    }
}

fn facts(driver: &str, device: &wire::Device) -> Result<DeviceFacts, AttributeError> {
    let mut facts = DeviceFacts::new(driver, device.allow_multiple_allocations);
    for (name, attribute) in &device.attributes {
        let wire::Attribute { int, bool, string, version } = attribute;
        let value = int
            .map(Attribute::Int)
            .or(bool.map(Attribute::Bool))
            .or_else(|| string.clone().map(Attribute::Text))
            .or_else(|| version.clone().map(Attribute::Version));
        if let Some(value) = value {
            facts.attribute(name, &value)?;
        }
    }
    for (name, capacity) in &device.capacity {
        facts.capacity(name, quantity(&capacity.value));
    }
    Ok(facts)
}

fn counters<'a>(
    set: &'a str,
    counters: &'a BTreeMap<String, wire::Counter>,
) -> impl Iterator<Item = ((String, String), Quantity)> + 'a {
    counters.iter().map(|(name, counter)| ((set.to_owned(), name.clone()), quantity(&counter.value)))
}

/// Whether devices of a pool can be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Usable,
    /// Slices of its newest generation are missing.
    Incomplete,
    /// Its slices contradict each other.
    Invalid,
}

/// A pool.
#[derive(Debug)]
pub(super) struct Pool {
    /// `driver/pool`.
    pub(super) name: String,
    pub(super) condition: Condition,
    pub(super) devices: Vec<Device>,
    /// What its devices share.
    pub(super) counters: Counters,
}

impl Pool {
    fn new(name: String, slices: &[&Slice]) -> Self {
        let wanted = slices.first().map_or(0, |slice| slice.spec.pool.resource_slice_count);
        let is_complete = i64::try_from(slices.len()).is_ok_and(|count| count == wanted);
        let devices: Vec<Device> = slices.iter().flat_map(|slice| devices(slice)).collect();
        let sets = slices.iter().flat_map(|slice| &slice.spec.shared_counters);
        let shared: Counters = sets.flat_map(|set| counters(&set.name, &set.counters)).collect();
        let mut names = HashSet::new();
        let is_valid = devices.iter().all(|device| names.insert(device.id.device.clone()))
            && devices.iter().flat_map(|device| device.counters.keys()).all(|key| shared.contains_key(key));
        let condition = match (is_complete, is_valid) {
            (false, _) => Condition::Incomplete,
            (true, false) => Condition::Invalid,
            (true, true) => Condition::Usable,
        };
        Self { name, condition, devices, counters: shared }
    }

    /// Whether a node can use a device of it.
    pub(super) fn concerns(&self, node: &NodeInfo) -> bool {
        self.devices.iter().any(|device| device.nodes.has(node))
    }

    /// What is left of the counters beside devices that are in use.
    pub(super) fn counters_left(&self, is_used: impl Fn(&DeviceId) -> bool) -> Counters {
        let mut left = self.counters.clone();
        for device in self.devices.iter().filter(|device| is_used(&device.id)) {
            take(&mut left, &device.counters);
        }
        left
    }
}

/// Takes what a device consumes; less than nothing may be left.
pub(super) fn take(left: &mut Counters, consumed: &Counters) {
    for (key, amount) in consumed {
        if let Some(left) = left.get_mut(key) {
            left.sub(amount);
        }
    }
}

fn devices(slice: &Slice) -> impl Iterator<Item = Device> + '_ {
    let spec = &slice.spec;
    let nodes = Arc::new(Nodes::new(&spec.node_name, spec.node_selector.as_ref(), spec.all_nodes));
    spec.devices.iter().map(move |device| Device::new(slice, &nodes, device))
}

/// All pools, sorted by name.
#[derive(Debug, Default)]
pub(super) struct Pools {
    all: Vec<Pool>,
    /// Pools with devices of single nodes only.
    by_node: HashMap<String, Vec<usize>>,
    /// Other pools.
    shared: Vec<usize>,
}

impl Pools {
    /// Puts slices together.
    pub(super) fn new<'a>(slices: impl Iterator<Item = (&'a String, &'a Slice)>) -> Self {
        let mut pools: BTreeMap<String, Vec<(&String, &Slice)>> = BTreeMap::new();
        for (name, slice) in slices {
            let pool = format!("{}/{}", slice.spec.driver, slice.spec.pool.name);
            pools.entry(pool).or_default().push((name, slice));
        }
        let mut made = Self::default();
        for (name, mut slices) in pools {
            let newest = slices.iter().map(|(_, slice)| slice.spec.pool.generation).max();
            slices.retain(|(_, slice)| Some(slice.spec.pool.generation) == newest);
            slices.sort_by_key(|(name, _)| *name);
            let slices: Vec<&Slice> = slices.into_iter().map(|(_, slice)| slice).collect();
            made.add(Pool::new(name, &slices));
        }
        made
    }

    fn add(&mut self, pool: Pool) {
        let at = self.all.len();
        let names: Option<HashSet<&String>> = pool
            .devices
            .iter()
            .map(|device| match &*device.nodes {
                Nodes::Named(name) => Some(name),
                _ => None,
            })
            .collect();
        match names {
            Some(names) => {
                names.into_iter().for_each(|name| self.by_node.entry(name.clone()).or_default().push(at));
            }
            None => self.shared.push(at),
        }
        self.all.push(pool);
    }

    /// Pools whose devices a node can use: its own before those that it shares.
    pub(super) fn of<'a>(&'a self, node: &'a NodeInfo) -> impl Iterator<Item = &'a Pool> {
        let own = self.by_node.get(&node.name).into_iter().flatten();
        own.chain(&self.shared).map(|at| &self.all[*at]).filter(|pool| pool.concerns(node))
    }
}
