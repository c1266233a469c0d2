//! Devices for a pod: the calls to plugins.

use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::allocate_error::AllocateError;
use super::allocations::Key;
use super::inventory::RETURN;
use super::names::is_extended_resource;
use super::run_options::RunOptions;
use super::state::{Choice, Devices, Wish};
use crate::numa::{Hints, Nodes};
use crate::pod::spec::{self, Role};

/// Devices of init containers that later containers of the pod can use, by resource.
#[derive(Debug, Default)]
pub struct Spare(BTreeMap<String, BTreeSet<String>>);

impl Devices {
    /// Gives the containers of a pod the devices that they ask for; those that they have stay. On an error the caller
    /// releases the pod. `survived`: the pod ran before the agent started.
    pub async fn allocate(&self, pod: &Pod, survived: bool) -> Result<(), AllocateError> {
        let spec = spec::spec(pod);
        if !survived {
            self.wait_for(pod).await;
        }
        let mut spare = Spare::default();
        for (role, container) in spec::containers(&spec).filter(|(role, _)| *role != Role::Ephemeral) {
            self.allocate_container(pod, (role, &*container), &mut spare, survived, None).await?;
        }
        Ok(())
    }

    /// Gives one container its devices, those near to some NUMA nodes first.
    pub async fn allocate_container(
        &self,
        pod: &Pod,
        (role, container): (Role, &Container),
        spare: &mut Spare,
        survived: bool,
        near: Option<Nodes>,
    ) -> Result<(), AllocateError> {
        for (resource, count) in self.wanted(pod, container) {
            let key = Key {
                uid: spec::uid(pod).to_owned(),
                container: container.name.clone(),
                resource: resource.clone(),
            };
            let reusable = spare.0.entry(resource.clone()).or_default();
            self.allocate_one(&key, Wish { count, reusable: &*reusable, survived, near }).await?;
            let own = self.of(&key.uid, &key.container).remove(&resource).unwrap_or_default().devices;
            if role == Role::Init {
                reusable.extend(own.into_keys());
            } else {
                reusable.retain(|id| !own.contains_key(id));
            }
        }
        Ok(())
    }

    /// Waits for the plugins of a pod's devices that have yet to list them, as after a restart of the agent.
    pub async fn wait_for(&self, pod: &Pod) {
        let spec = spec::spec(pod);
        let wanted =
            spec::containers(&spec).flat_map(|(_, container)| self.wanted(pod, &container).into_keys());
        self.wait_for_plugins(&wanted.collect()).await;
    }

    /// Hints for the devices of a container, one for each resource.
    pub fn hints_of_container(
        &self,
        pod: &Pod,
        container: &Container,
        spare: &Spare,
        all: Nodes,
    ) -> Vec<Hints> {
        let none = BTreeSet::new();
        let of = |(resource, count): (String, usize)| {
            self.hints(&resource, count, spare.0.get(&resource).unwrap_or(&none), all)
        };
        self.wanted(pod, container).into_iter().map(of).collect()
    }

    /// Hints for the devices that the containers of a pod have at the same time, one for each resource.
    pub fn hints_of_pod(&self, pod: &Pod, all: Nodes) -> Vec<Hints> {
        let spec = spec::spec(pod);
        let (mut init, mut others): (BTreeMap<String, usize>, BTreeMap<String, usize>) = Default::default();
        for (role, container) in spec::containers(&spec) {
            for (resource, count) in self.wanted(pod, &container) {
                let of = if role == Role::Init { &mut init } else { &mut others };
                let sum = of.entry(resource).or_default();
                *sum = if role == Role::Init { count.max(*sum) } else { sum.saturating_add(count) };
            }
        }
        for (resource, count) in init {
            let sum = others.entry(resource).or_default();
            *sum = count.max(*sum);
        }
        others
            .into_iter()
            .map(|(resource, count)| self.hints(&resource, count, &BTreeSet::new(), all))
            .collect()
    }

    /// Waits for plugins that have yet to list devices, not longer for one that registers again and again. Tells whether there is
    /// none left after a wait.
    async fn wait_for_plugins(&self, resources: &BTreeSet<String>) -> bool {
        let latest = Instant::now() + RETURN;
        let mut has_waited = false;
        loop {
            let listed = self.listed.notified();
            tokio::pin!(listed);
            listed.as_mut().enable();
            let Some(until) = self.awaited_until(resources) else { return has_waited };
            if tokio::time::timeout_at(until.min(latest).into(), listed).await.is_err() {
                return false;
            }
            has_waited = true;
        }
    }

    async fn allocate_one(&self, key: &Key, wish: Wish<'_>) -> Result<(), AllocateError> {
        let failed = |error| AllocateError::Call { resource: key.resource.clone(), error };
        let mut choice = loop {
            match self.choose(key, wish, None) {
                // It has registered once more since it was waited for.
                Err(AllocateError::NoHealthy { resource }) if !wish.survived => {
                    if !self.wait_for_plugins(&BTreeSet::from([resource.clone()])).await {
                        return Err(AllocateError::NoHealthy { resource });
                    }
                }
                chosen => break chosen?,
            }
        };
        if let Choice::Ask { connected, available, must_include } = choice {
            let preferred =
                connected.plugin.preferred(available, must_include, wish.count).await.map_err(failed)?;
            // Others may have taken some meanwhile: only those that are free still are chosen.
            choice = self.choose(key, wish, Some(&preferred))?;
        }
        let Choice::Reserved(reservation) = choice else { return Ok(()) };
        let response = reservation.connected.plugin.allocate(reservation.ids()).await.map_err(failed)?;
        let response =
            response.ok_or_else(|| AllocateError::NoResponse { resource: key.resource.clone() })?;
        reservation.allocate(response).map_err(AllocateError::Checkpoint)
    }

    /// Devices that a container asks for, by resource. Requests of extended resources equal their limits. Devices of a claim are
    /// not those of a plugin.
    fn wanted(&self, pod: &Pod, container: &Container) -> BTreeMap<String, usize> {
        let limits = container.resources.iter().filter_map(|resources| resources.limits.as_ref()).flatten();
        limits
            .filter(|(name, _)| {
                is_extended_resource(name) && self.knows(name) && !spec::is_claimed(pod, name)
            })
            .filter_map(|(name, quantity)| {
                let amount = usize::try_from(spec::amount(name, quantity)).ok()?;
                (amount > 0).then(|| (name.clone(), amount))
            })
            .collect()
    }

    /// What a container needs to use its devices. Devices that are missing, because a restart lost them, are allocated.
    pub async fn run_options(&self, pod: &Pod, container: &Container) -> Result<RunOptions, AllocateError> {
        if self.wanted(pod, container).is_empty() {
            return Ok(RunOptions::default());
        }
        self.allocate(pod, true).await?;
        let all = self.of(spec::uid(pod), &container.name);
        Ok(RunOptions::merge(
            &container.name,
            all.into_iter().map(|(resource, own)| (resource, own.response)),
        ))
    }

    /// Whether a plugin has to be called before each start of a container of the pod.
    pub fn wants_pre_start(&self, pod: &Pod) -> bool {
        let spec = spec::spec(pod);
        spec::containers(&spec)
            .any(|(_, container)| !self.pre_starts(spec::uid(pod), &container.name).is_empty())
    }

    fn pre_starts(&self, uid: &str, container: &str) -> Vec<(String, coracle_devices::Plugin, Vec<String>)> {
        let own = self.of(uid, container).into_iter();
        own.filter_map(|(resource, allocation)| {
            // A call to a plugin that is gone fails, and the container is started when it is back.
            let plugin = self.last_connected(&resource).filter(|of| of.options.pre_start_required)?;
            Some((resource, plugin.plugin, allocation.devices.into_keys().collect()))
        })
        .collect()
    }

    /// Prepares the devices of a container for its start, where their plugins want that.
    pub async fn pre_start(&self, uid: &str, container: &str) -> Result<(), AllocateError> {
        for (resource, plugin, ids) in self.pre_starts(uid, container) {
            plugin.pre_start(ids).await.map_err(|error| AllocateError::Call { resource, error })?;
        }
        Ok(())
    }
}
