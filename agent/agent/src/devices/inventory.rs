//! The devices that plugins have. Pure: the clock is passed in.

use coracle_devices::Plugin;
use coracle_devices::v1beta1::{self, DevicePluginOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long the resource of a plugin that is gone stays on the node.
pub const GRACE: Duration = Duration::from_secs(300);
/// How long pods wait for a plugin that had registered with an earlier agent: it needs a moment to do so with this one, and to list
/// its devices. As long for the list of one that registers later.
pub const RETURN: Duration = Duration::from_secs(30);
/// More resources than this are not registered.
pub const MAX_RESOURCES: usize = 256;
/// Longest id of a device; longer ones are ignored.
const MAX_ID: usize = 253;
const HEALTHY: &str = "Healthy";

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Whether it can be given to a container.
    pub healthy: bool,
    /// NUMA nodes that it is near to.
    pub numa: Vec<i64>,
}

/// A plugin that is connected.
#[derive(Clone, Debug)]
pub struct Connected {
    /// Its API.
    pub plugin: Plugin,
    /// The calls that it wants.
    pub options: DevicePluginOptions,
    /// Tells one registration from the next.
    pub generation: u64,
}

#[derive(Debug)]
enum Connection {
    Connected(Box<Connected>),
    /// With the plugin that was connected to this agent.
    Gone {
        since: Instant,
        last: Option<Box<Connected>>,
    },
}

#[derive(Debug)]
struct Resource {
    connection: Connection,
    devices: BTreeMap<String, Device>,
    /// Whether any plugin has listed devices since the agent started.
    is_listed: bool,
    /// Until when the plugin of an earlier agent is expected. It may register more than once meanwhile.
    returns_until: Option<Instant>,
    /// Until when the plugin that is connected is expected to list its devices; `None` once it has.
    lists_until: Option<Instant>,
}

/// Health of a device that a container has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Its plugin says so.
    Healthy,
    /// Its plugin says so, or is gone.
    Unhealthy,
    /// No plugin has told of it.
    Unknown,
}

impl Health {
    /// As the API has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Healthy => "Healthy",
            Health::Unhealthy => "Unhealthy",
            Health::Unknown => "Unknown",
        }
    }
}

/// Health of the devices of a container: by resource and id.
pub type ContainerHealth = BTreeMap<String, BTreeMap<String, Health>>;

/// What the node reports of its extended resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// All devices.
    pub capacity: BTreeMap<String, i64>,
    /// Healthy devices.
    pub allocatable: BTreeMap<String, i64>,
}

/// Every resource of every plugin.
#[derive(Debug, Default)]
pub struct Inventory {
    resources: BTreeMap<String, Resource>,
    /// Resources whose plugins are gone for good, with the last plugin: reported as zero, so that a quantity that the Node has is
    /// replaced.
    removed: BTreeMap<String, Option<Box<Connected>>>,
    generation: u64,
}

impl Inventory {
    /// Resources that were registered before the agent started. Their plugins have the usual time to come back.
    pub fn with_registered(names: impl IntoIterator<Item = String>, now: Instant) -> Self {
        let gone = |name| {
            let connection = Connection::Gone { since: now, last: None };
            let (devices, returns_until) = (BTreeMap::new(), Some(now + RETURN));
            (name, Resource { connection, devices, is_listed: false, returns_until, lists_until: None })
        };
        Self { resources: names.into_iter().map(gone).collect(), ..Self::default() }
    }

    /// Whether another resource may be registered.
    pub fn has_room_for(&self, resource: &str) -> bool {
        self.resources.contains_key(resource) || self.resources.len() < MAX_RESOURCES
    }

    /// A plugin has registered; it replaces the one before it. Devices stay as they were until it lists its own.
    pub fn connect(
        &mut self,
        resource: &str,
        plugin: Plugin,
        options: DevicePluginOptions,
        now: Instant,
    ) -> u64 {
        self.generation += 1;
        let generation = self.generation;
        let connection = Connection::Connected(Box::new(Connected { plugin, options, generation }));
        self.removed.remove(resource);
        match self.resources.get_mut(resource) {
            Some(known) => {
                known.connection = connection;
                let returns = known.returns_until.filter(|until| *until > now);
                known.lists_until = Some(returns.unwrap_or(now + RETURN));
            }
            None => {
                let (devices, lists_until) = (BTreeMap::new(), Some(now + RETURN));
                let new =
                    Resource { connection, devices, is_listed: false, returns_until: None, lists_until };
                self.resources.insert(resource.to_owned(), new);
            }
        }
        generation
    }

    /// A plugin has listed its devices. The ids of those whose health changed; `None` if another plugin has registered since.
    pub fn list(
        &mut self,
        resource: &str,
        generation: u64,
        list: Vec<v1beta1::Device>,
    ) -> Option<BTreeSet<String>> {
        let known = self.current(resource, generation)?;
        let devices: BTreeMap<String, Device> = list
            .into_iter()
            .filter(|device| !device.id.is_empty() && device.id.len() <= MAX_ID)
            .map(|device| {
                let numa = device.topology.unwrap_or_default().nodes.iter().map(|node| node.id).collect();
                (device.id, Device { healthy: device.health == HEALTHY, numa })
            })
            .collect();
        let health = |of: &BTreeMap<String, Device>, id: &String| of.get(id).map(|device| device.healthy);
        let changed = known.devices.keys().chain(devices.keys());
        let changed = changed.filter(|id| health(&known.devices, id) != health(&devices, id));
        let changed = changed.cloned().collect();
        known.devices = devices;
        known.is_listed = true;
        known.lists_until = None;
        Some(changed)
    }

    /// A plugin is gone: its devices are unhealthy. Their ids; `None` if another plugin has registered since.
    pub fn disconnect(&mut self, resource: &str, generation: u64, now: Instant) -> Option<BTreeSet<String>> {
        let known = self.current(resource, generation)?;
        let gone = Connection::Gone { since: now, last: None };
        if let Connection::Connected(plugin) = std::mem::replace(&mut known.connection, gone) {
            known.connection = Connection::Gone { since: now, last: Some(plugin) };
        }
        known.devices.values_mut().for_each(|device| device.healthy = false);
        Some(known.devices.keys().cloned().collect())
    }

    fn current(&mut self, resource: &str, generation: u64) -> Option<&mut Resource> {
        self.resources.get_mut(resource).filter(
            |known| matches!(&known.connection, Connection::Connected(of) if of.generation == generation),
        )
    }

    /// The plugin of a resource, while it is connected.
    pub fn connected(&self, resource: &str) -> Option<&Connected> {
        match &self.resources.get(resource)?.connection {
            Connection::Connected(connected) => Some(connected.as_ref()),
            Connection::Gone { .. } => None,
        }
    }

    /// The plugin of a resource, also one that is gone: containers that have its devices may still be started again.
    pub fn last_connected(&self, resource: &str) -> Option<&Connected> {
        match self.resources.get(resource).map(|known| &known.connection) {
            Some(Connection::Connected(connected)) => Some(connected.as_ref()),
            Some(Connection::Gone { last, .. }) => last.as_deref(),
            None => self.removed.get(resource)?.as_deref(),
        }
    }

    /// Whether a plugin has this resource, or had it a short while ago.
    pub fn has(&self, resource: &str) -> bool {
        self.resources.contains_key(resource)
    }

    /// Until when a list of devices is expected: that of a plugin which has registered, or that of an earlier agent's.
    pub fn awaited_until(&self, resource: &str, now: Instant) -> Option<Instant> {
        let known = self.resources.get(resource)?;
        let until = match known.connection {
            Connection::Connected(_) => known.lists_until,
            Connection::Gone { .. } => known.returns_until,
        };
        until.filter(|until| *until > now)
    }

    /// The devices of a resource.
    pub fn devices(&self, resource: &str) -> impl Iterator<Item = (&String, &Device)> {
        self.resources.get(resource).into_iter().flat_map(|known| &known.devices)
    }

    /// Names of all resources and their devices.
    pub fn all(&self) -> impl Iterator<Item = (&String, &BTreeMap<String, Device>)> {
        self.resources.iter().map(|(name, resource)| (name, &resource.devices))
    }

    /// The health of a device that a container has.
    pub fn health(&self, resource: &str, id: &str) -> Health {
        let Some(known) = self.resources.get(resource) else { return Health::Unknown };
        match known.devices.get(id) {
            Some(device) if device.healthy => Health::Healthy,
            Some(_) => Health::Unhealthy,
            None if known.is_listed => Health::Unhealthy,
            None => Health::Unknown,
        }
    }

    /// Removes resources whose plugins are gone for too long; whether any was.
    pub fn expire(&mut self, now: Instant) -> bool {
        let over = |resource: &Resource| matches!(resource.connection, Connection::Gone { since, .. } if now.duration_since(since) >= GRACE);
        let gone: Vec<String> = self
            .resources
            .iter()
            .filter(|(_, resource)| over(resource))
            .map(|(name, _)| name.clone())
            .collect();
        for name in &gone {
            let last = match self.resources.remove(name).map(|resource| resource.connection) {
                Some(Connection::Gone { last, .. }) => last,
                Some(Connection::Connected(plugin)) => Some(plugin),
                None => None,
            };
            self.removed.insert(name.clone(), last);
        }
        !gone.is_empty()
    }

    /// When the next resource expires.
    pub fn next_expiry(&self) -> Option<Instant> {
        let of = |resource: &Resource| match resource.connection {
            Connection::Gone { since, .. } => Some(since + GRACE),
            Connection::Connected(_) => None,
        };
        self.resources.values().filter_map(of).min()
    }

    /// What the node reports.
    pub fn amounts(&self) -> Amounts {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut amounts = Amounts::default();
        for (name, resource) in &self.resources {
            let healthy = resource.devices.values().filter(|device| device.healthy).count();
            amounts.capacity.insert(name.clone(), count(resource.devices.len()));
            amounts.allocatable.insert(name.clone(), count(healthy));
        }
        for name in self.removed.keys() {
            amounts.capacity.insert(name.clone(), 0);
            amounts.allocatable.insert(name.clone(), 0);
        }
        amounts
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    const GPU: &str = "vendor.example/gpu";

    fn devices(list: &[(&str, &str)]) -> Vec<v1beta1::Device> {
        let one = |(id, health): &(&str, &str)| v1beta1::Device {
            id: (*id).to_owned(),
            health: (*health).to_owned(),
            topology: None,
        };
        list.iter().map(one).collect()
    }

    fn amounts(inventory: &Inventory) -> (Option<i64>, Option<i64>) {
        let found = inventory.amounts();
        (found.capacity.get(GPU).copied(), found.allocatable.get(GPU).copied())
    }

    #[tokio::test]
    async fn devices_come_turn_unhealthy_and_go() {
        let (mut inventory, now) = (Inventory::default(), Instant::now());
        assert_eq!(amounts(&inventory), (None, None));
        let plugin = || Plugin::new(Path::new("/none.sock"));
        let first = inventory.connect(GPU, plugin(), DevicePluginOptions::default(), now);
        let changed = inventory
            .list(GPU, first, devices(&[("a", "Healthy"), ("b", "Healthy"), ("", "Healthy")]))
            .unwrap();
        assert_eq!(changed.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(amounts(&inventory), (Some(2), Some(2)), "a device without an id is not one");
        let changed = inventory.list(GPU, first, devices(&[("a", "Healthy"), ("b", "broken")])).unwrap();
        assert_eq!(changed.into_iter().collect::<Vec<_>>(), ["b"]);
        assert_eq!(amounts(&inventory), (Some(2), Some(1)));
        assert_eq!(inventory.health(GPU, "a"), Health::Healthy);
        assert_eq!(inventory.health(GPU, "b"), Health::Unhealthy);
        assert_eq!(inventory.health(GPU, "gone"), Health::Unhealthy);
        assert_eq!(inventory.health("vendor.example/x", "a"), Health::Unknown);

        assert_eq!(inventory.awaited_until(GPU, now), None);
        let second = inventory.connect(GPU, plugin(), DevicePluginOptions::default(), now);
        assert_eq!(inventory.disconnect(GPU, first, now), None, "the second plugin has replaced the first");
        assert_eq!(inventory.list(GPU, first, vec![]), None);
        assert_eq!(amounts(&inventory), (Some(2), Some(1)));

        assert_eq!(inventory.awaited_until(GPU, now), Some(now + RETURN), "it has not listed its own");
        inventory.disconnect(GPU, second, now).unwrap();
        assert_eq!(amounts(&inventory), (Some(2), Some(0)));
        assert_eq!(inventory.awaited_until(GPU, now), None, "it has ended");
        assert!(inventory.connected(GPU).is_none());
        assert_eq!(inventory.last_connected(GPU).map(|of| of.generation), Some(second));
        assert_eq!(inventory.next_expiry(), Some(now + GRACE));
        assert!(!inventory.expire(now + GRACE - Duration::from_secs(1)));
        assert!(inventory.expire(now + GRACE));
        assert_eq!(amounts(&inventory), (Some(0), Some(0)), "zero replaces what the Node has");
        assert!(!inventory.has(GPU));
        let last = inventory.last_connected(GPU).map(|of| of.generation);
        assert_eq!(last, Some(second), "containers that have its devices are not started without it");
    }

    #[test]
    fn resources_of_an_earlier_agent_wait_for_their_plugin() {
        let now = Instant::now();
        let mut inventory = Inventory::with_registered([GPU.to_owned()], now);
        assert_eq!(amounts(&inventory), (Some(0), Some(0)));
        assert_eq!(inventory.health(GPU, "a"), Health::Unknown);
        assert_eq!(inventory.awaited_until(GPU, now), Some(now + RETURN));
        assert_eq!(inventory.awaited_until(GPU, now + RETURN), None);
        assert!(inventory.has(GPU) && inventory.expire(now + GRACE) && !inventory.has(GPU));
    }

    /// A plugin may see the agent's socket before it is served, and register twice.
    #[tokio::test]
    async fn a_plugin_that_comes_back_is_awaited_until_it_has_listed_devices() {
        let now = Instant::now();
        let (mut inventory, options) =
            (Inventory::with_registered([GPU.to_owned()], now), DevicePluginOptions::default());
        let mut later = now + Duration::from_secs(1);
        for _ in 0..2 {
            let plugin = Plugin::new(Path::new("/none.sock"));
            let generation = inventory.connect(GPU, plugin, options, later);
            assert_eq!(inventory.awaited_until(GPU, later), Some(now + RETURN), "registered");
            inventory.list(GPU, generation, devices(&[("a", "Healthy")])).unwrap();
            assert_eq!(inventory.awaited_until(GPU, later), None, "listed");
            inventory.disconnect(GPU, generation, later).unwrap();
            assert_eq!(inventory.awaited_until(GPU, later), Some(now + RETURN), "it may register again");
            later += Duration::from_secs(1);
        }
        assert_eq!(inventory.awaited_until(GPU, now + RETURN), None);
    }
}
