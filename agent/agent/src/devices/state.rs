//! The devices of the node: those that plugins have, those that pods have, and those that are being allocated.

use coracle_cli::causes;
use coracle_devices::Plugin;
use coracle_devices::v1beta1::{self, ContainerAllocateResponse, DevicePluginOptions};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;

use super::allocate_error::AllocateError;
use super::allocations::{Allocation, Allocations, CheckpointError, Key};
use super::inventory::{Amounts, Connected, ContainerHealth, Device, Inventory};
use super::names::Paths;
use crate::numa::{self, Hints, Nodes};
use crate::objects::Wake;

/// Everything that is known; one lock, so that no device is chosen twice.
struct State {
    inventory: Inventory,
    allocations: Allocations,
    /// Ids by resource: chosen, and not allocated yet.
    reserved: BTreeMap<String, BTreeSet<String>>,
    /// Why nothing can be allocated: which devices pods have is not known.
    damaged: Option<Arc<CheckpointError>>,
}

/// The devices of the node.
#[derive(Clone)]
pub struct Devices {
    paths: Paths,
    state: Arc<Mutex<State>>,
    /// Makes the node report.
    changed: Arc<Notify>,
    /// Makes a pod report.
    wake: Wake,
    /// A plugin is gone: its resource expires later.
    pub(super) expiry: Arc<Notify>,
    /// A plugin has listed its devices, or is gone: its list is not waited for any more.
    pub(super) listed: Arc<Notify>,
}

/// What to do for a container that wants devices.
pub(super) enum Choice {
    /// It has them.
    Allocated,
    /// The plugin is asked which devices fit best.
    Ask { connected: Connected, available: Vec<String>, must_include: Vec<String> },
    /// These.
    Reserved(Reservation),
}

/// What a container wants of a resource.
#[derive(Clone, Copy)]
pub(super) struct Wish<'a> {
    /// How many devices.
    pub(super) count: usize,
    /// Devices that its pod has, and that it can use first.
    pub(super) reusable: &'a BTreeSet<String>,
    /// The pod ran before the agent started: it keeps its devices, healthy or not.
    pub(super) survived: bool,
    /// NUMA nodes that devices are to be near to.
    pub(super) near: Option<Nodes>,
}

/// Devices that are being allocated to a container; free again if that does not happen.
pub(super) struct Reservation {
    devices: Devices,
    key: Key,
    pub(super) connected: Connected,
    ids: BTreeMap<String, Vec<i64>>,
}

impl Reservation {
    pub(super) fn ids(&self) -> Vec<String> {
        self.ids.keys().cloned().collect()
    }

    /// The plugin has agreed: records the allocation.
    pub(super) fn allocate(self, response: ContainerAllocateResponse) -> Result<(), CheckpointError> {
        let mut state = self.devices.state.lock();
        let allocation = Allocation { devices: self.ids.clone(), response };
        state.allocations.by_container.insert(self.key.clone(), allocation);
        let saved = state.allocations.save(&self.devices.paths.checkpoint());
        if saved.is_err() {
            state.allocations.by_container.remove(&self.key);
        }
        drop(state);
        saved
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.devices.state.lock();
        if let Some(reserved) = state.reserved.get_mut(&self.key.resource) {
            reserved.retain(|id| !self.ids.contains_key(id));
        }
    }
}

impl Devices {
    /// Loads what pods were given before a restart. `changed` is notified when the node should report, `wake` when a pod should.
    pub fn open(kubelet_dir: &Path, changed: Arc<Notify>, wake: Wake) -> Self {
        let paths = Paths::new(kubelet_dir);
        let (allocations, damaged) = match Allocations::load(&paths.checkpoint()) {
            Ok(allocations) => (allocations, None),
            Err(error) => {
                tracing::error!(error = %causes::chain(&error), "no devices are allocated until the file is repaired or removed and the agent restarted");
                (Allocations::default(), Some(Arc::new(error)))
            }
        };
        let inventory = Inventory::with_registered(allocations.registered.clone(), Instant::now());
        let state = State { inventory, allocations, reserved: BTreeMap::new(), damaged };
        let state = Arc::new(Mutex::new(state));
        Self { paths, state, changed, wake, expiry: Arc::default(), listed: Arc::default() }
    }

    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Whether a plugin may register this resource.
    pub(super) fn has_room_for(&self, resource: &str) -> bool {
        self.state.lock().inventory.has_room_for(resource)
    }

    /// A plugin has registered; the number of its registration.
    pub(super) fn connect(&self, resource: &str, plugin: Plugin, options: DevicePluginOptions) -> u64 {
        let mut state = self.state.lock();
        let generation = state.inventory.connect(resource, plugin, options, Instant::now());
        if state.allocations.registered.insert(resource.to_owned()) {
            self.save(&state);
        }
        generation
    }

    /// A plugin has listed its devices; `false` if another has registered since.
    pub(super) fn list(&self, resource: &str, generation: u64, list: Vec<v1beta1::Device>) -> bool {
        let changed = self.state.lock().inventory.list(resource, generation, list);
        let current = changed.is_some();
        self.listed.notify_waiters();
        self.report(resource, changed);
        current
    }

    /// A plugin is gone.
    pub(super) fn disconnect(&self, resource: &str, generation: u64) {
        let changed = self.state.lock().inventory.disconnect(resource, generation, Instant::now());
        self.listed.notify_waiters();
        self.expiry.notify_one();
        self.report(resource, changed);
    }

    /// The node reports, and so do the pods that have these devices.
    fn report(&self, resource: &str, changed: Option<BTreeSet<String>>) {
        let Some(changed) = changed else { return };
        self.changed.notify_one();
        let uids: BTreeSet<String> = {
            let state = self.state.lock();
            let of = state.allocations.by_container.iter().filter(|(key, allocation)| {
                key.resource == resource && allocation.devices.keys().any(|id| changed.contains(id))
            });
            of.map(|(key, _)| key.uid.clone()).collect()
        };
        uids.iter().for_each(|uid| (self.wake)(uid));
    }

    /// Removes resources whose plugins are gone for too long; when to call it again.
    pub(super) fn expire(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        if state.inventory.expire(Instant::now()) {
            let State { inventory, allocations, .. } = &mut *state;
            allocations.registered.retain(|name| inventory.has(name));
            self.save(&state);
            self.changed.notify_one();
        }
        state.inventory.next_expiry()
    }

    fn save(&self, state: &State) {
        // A damaged file is evidence, and not replaced.
        if state.damaged.is_none()
            && let Err(error) = state.allocations.save(&self.paths.checkpoint())
        {
            tracing::warn!(error = %causes::chain(&error), "allocated devices not recorded, the next change will retry");
        }
    }

    /// What the node reports.
    pub fn amounts(&self) -> Amounts {
        let state = self.state.lock();
        let mut amounts = state.inventory.amounts();
        if state.damaged.is_some() {
            amounts.allocatable.values_mut().for_each(|amount| *amount = 0);
        }
        amounts
    }

    /// Puts the devices of now into what pods are admitted with: at least what pods have, so that a pod is not rejected for
    /// its own devices when their plugin is away. Resources whose plugins have yet to list devices, as after a restart of the agent,
    /// are left out.
    pub fn admit_with(&self, allocatable: &mut BTreeMap<String, i64>) {
        allocatable.extend(self.amounts().allocatable);
        let state = self.state.lock();
        let resources: BTreeSet<&String> =
            state.allocations.by_container.keys().map(|key| &key.resource).collect();
        for resource in resources {
            let used = state.allocations.used(resource).collect::<BTreeSet<_>>().len();
            let amount = allocatable.entry(resource.clone()).or_default();
            *amount = (*amount).max(i64::try_from(used).unwrap_or(i64::MAX));
        }
        // How many there are is not known yet.
        let now = Instant::now();
        allocatable.retain(|resource, _| state.inventory.awaited_until(resource, now).is_none());
    }

    /// Until when plugins are expected to list devices of one of these resources.
    pub(super) fn awaited_until(&self, resources: &BTreeSet<String>) -> Option<Instant> {
        let (state, now) = (self.state.lock(), Instant::now());
        resources.iter().filter_map(|resource| state.inventory.awaited_until(resource, now)).max()
    }

    /// Whether a resource is a plugin's, or pods have devices of it.
    pub(super) fn knows(&self, resource: &str) -> bool {
        let state = self.state.lock();
        state.inventory.has(resource) || state.allocations.has(resource)
    }

    /// Chooses devices for a container: first those that its pod has, then those near its other resources, then those that the
    /// plugin prefers.
    pub(super) fn choose(
        &self,
        key: &Key,
        wish: Wish<'_>,
        preferred: Option<&[String]>,
    ) -> Result<Choice, AllocateError> {
        let Wish { count: wanted, reusable, survived, near } = wish;
        let mut state = self.state.lock();
        if let Some(damaged) = &state.damaged {
            return Err(AllocateError::Damaged(damaged.clone()));
        }
        let resource = key.resource.clone();
        let own = state.allocations.by_container.get(key);
        if let Some(own) = own.filter(|own| own.devices.len() != wanted) {
            let (uid, container, had) = (key.uid.clone(), key.container.clone(), own.devices.len());
            return Err(AllocateError::Changed { uid, container, resource, had, wanted });
        }
        if own.is_some() && survived {
            return Ok(Choice::Allocated);
        }
        let healthy: BTreeMap<&String, &Vec<i64>> = state
            .inventory
            .devices(&resource)
            .filter(|(_, device)| device.healthy)
            .map(|(id, device)| (id, &device.numa))
            .collect();
        if !state.inventory.has(&resource) {
            return Err(AllocateError::Unregistered { resource });
        }
        let connected = state.inventory.connected(&resource).cloned();
        let Some(connected) = connected.filter(|_| !healthy.is_empty()) else {
            return Err(AllocateError::NoHealthy { resource });
        };
        if let Some(own) = own {
            let healthy = own.devices.keys().all(|id| healthy.contains_key(id));
            return if healthy { Ok(Choice::Allocated) } else { Err(AllocateError::Unhealthy { resource }) };
        }
        let mut ids: BTreeSet<String> =
            reusable.iter().filter(|id| healthy.contains_key(id)).take(wanted).cloned().collect();
        let needed = wanted - ids.len();
        let used: BTreeSet<&String> = state
            .allocations
            .used(&resource)
            .chain(state.reserved.get(&resource).into_iter().flatten())
            .collect();
        let mut free: Vec<&String> = healthy.keys().filter(|id| !used.contains(*id)).copied().collect();
        if free.len() < needed {
            let (requested, available) = (needed, free.len());
            return Err(AllocateError::TooFew { resource, requested, available });
        }
        if let Some(near) = near {
            let is_far = |id: &&String| healthy.get(*id).is_none_or(|numa| !is_near(numa, near));
            // The order stays otherwise.
            free.sort_by_key(is_far);
            let close = free.iter().take_while(|id| !is_far(id)).count();
            free.truncate(close.max(needed));
        }
        let has_choice = needed > 0 && free.len() > needed;
        if has_choice && preferred.is_none() && connected.options.get_preferred_allocation_available {
            let must_include: Vec<String> = ids.into_iter().collect();
            let available = free.into_iter().chain(&must_include).cloned().collect();
            return Ok(Choice::Ask { connected, available, must_include });
        }
        let liked = preferred.into_iter().flatten().filter(|id| free.contains(id));
        for id in liked.chain(free.iter().copied()) {
            if ids.len() == wanted {
                break;
            }
            ids.insert(id.clone());
        }
        let ids: BTreeMap<String, Vec<i64>> = ids
            .into_iter()
            .map(|id| (id.clone(), healthy.get(&id).copied().cloned().unwrap_or_default()))
            .collect();
        state.reserved.entry(resource).or_default().extend(ids.keys().cloned());
        Ok(Choice::Reserved(Reservation { devices: self.clone(), key: key.clone(), connected, ids }))
    }

    /// Hints for devices of a resource: none if no device says where it is.
    pub(super) fn hints(
        &self,
        resource: &str,
        count: usize,
        reusable: &BTreeSet<String>,
        all: Nodes,
    ) -> Hints {
        let state = self.state.lock();
        let healthy: Vec<(&String, &Vec<i64>)> = state
            .inventory
            .devices(resource)
            .filter(|(_, device)| device.healthy)
            .map(|(id, device)| (id, &device.numa))
            .collect();
        if healthy.iter().all(|(_, numa)| numa.is_empty()) {
            return None;
        }
        let used: BTreeSet<&String> = state
            .allocations
            .used(resource)
            .chain(state.reserved.get(resource).into_iter().flatten())
            .filter(|id| !reusable.contains(*id))
            .collect();
        let amount = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let total = |nodes| amount(healthy.iter().filter(|(_, numa)| is_near(numa, nodes)).count());
        let free = |nodes| {
            let near = |id: &String| healthy.iter().any(|(own, numa)| *own == id && is_near(numa, nodes));
            let close = healthy.iter().filter(|(id, numa)| is_near(numa, nodes) && !used.contains(*id));
            reusable.iter().all(near).then(|| amount(close.count()))
        };
        Some(numa::hints(all, amount(count), total, free))
    }

    /// The allocations of a container, by resource.
    pub fn of(&self, uid: &str, container: &str) -> BTreeMap<String, Allocation> {
        let state = self.state.lock();
        let of = state.allocations.by_container.iter();
        of.filter(|(key, _)| key.uid == uid && key.container == container)
            .map(|(key, allocation)| (key.resource.clone(), allocation.clone()))
            .collect()
    }

    /// The plugin of a resource, also one that is gone.
    pub(super) fn last_connected(&self, resource: &str) -> Option<Connected> {
        self.state.lock().inventory.last_connected(resource).cloned()
    }

    /// Health of the devices of a pod, by container.
    pub fn health(&self, uid: &str) -> BTreeMap<String, ContainerHealth> {
        let state = self.state.lock();
        let mut all: BTreeMap<String, ContainerHealth> = BTreeMap::new();
        for (key, allocation) in state.allocations.by_container.iter().filter(|(key, _)| key.uid == uid) {
            let of = |id: &String| (id.clone(), state.inventory.health(&key.resource, id));
            let health = allocation.devices.keys().map(of).collect();
            all.entry(key.container.clone()).or_default().insert(key.resource.clone(), health);
        }
        all
    }

    /// The healthy devices of every resource, with their NUMA nodes.
    pub fn healthy(&self) -> Vec<(String, String, Vec<i64>)> {
        let state = self.state.lock();
        let of = |(resource, devices): (&String, &BTreeMap<String, Device>)| {
            let healthy = devices.iter().filter(|(_, device)| device.healthy);
            healthy
                .map(|(id, device)| (resource.clone(), id.clone(), device.numa.clone()))
                .collect::<Vec<_>>()
        };
        state.inventory.all().flat_map(of).collect()
    }

    /// The pod has ended: its devices are free.
    pub fn release(&self, uid: &str) {
        self.retain(|of| of != uid);
    }

    /// Frees the devices of pods for which `keep` is false.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        let mut state = self.state.lock();
        let before = state.allocations.by_container.len();
        state.allocations.by_container.retain(|key, _| keep(&key.uid));
        if state.allocations.by_container.len() != before {
            self.save(&state);
        }
    }
}

/// Whether a device is near to one of some NUMA nodes.
fn is_near(numa: &[i64], nodes: Nodes) -> bool {
    numa.iter().filter_map(|node| u32::try_from(*node).ok()).any(|node| nodes.has(node))
}
