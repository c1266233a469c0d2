//! The search for devices: for the claims of a pod, one device after another, with every combination in turn until one
//! satisfies all requests and constraints. The number of steps is limited.

use super::capacity::Amounts;
use super::pools::{Condition, Counters, Device, Pool, take};
use super::request::{AllocationError, Amount, Open, Wanted, allows};
use super::wire::Claim;
use super::{DeviceId, Devices};
use crate::node::NodeInfo;
use std::collections::HashMap;

/// The most devices of a claim.
const MOST_DEVICES: usize = 32;
/// How many devices a search looks at.
const STEPS: usize = 100_000;

/// A device that was found for a request.
#[derive(Debug, Clone)]
pub(super) struct Chosen<'a> {
    pub(super) device: &'a Device,
    /// The request, and which of its alternatives.
    pub(super) request: (usize, usize),
    pool: usize,
    pub(super) is_admin: bool,
    /// What it takes of a device that is shared.
    pub(super) share: Option<Amounts>,
}

/// A claim and its devices.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) open: Open<'a>,
    pub(super) devices: Vec<Chosen<'a>>,
}

impl<'a> Found<'a> {
    /// The alternative of a request that was chosen.
    pub(super) fn alternative(&self, request: usize) -> Option<&Wanted<'a>> {
        let chosen = self.devices.iter().find(|chosen| chosen.request.0 == request)?;
        self.open.requests.get(request)?.get(chosen.request.1)
    }
}

/// Where the search is: the claim, its request, the alternative, and how many devices that has.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    claim: usize,
    request: usize,
    alternative: usize,
    device: usize,
}

struct Search<'a> {
    devices: &'a Devices,
    node: &'a NodeInfo,
    pools: Vec<&'a Pool>,
    open: Vec<Open<'a>>,
    chosen: Vec<Vec<Chosen<'a>>>,
    /// Counters of pools beside devices that are in use.
    left: HashMap<usize, Counters>,
    steps: usize,
}

/// Devices on a node for claims that have none; nothing if there are not enough.
pub(super) fn search<'a>(
    devices: &'a Devices,
    claims: &[&'a Claim],
    node: &'a NodeInfo,
) -> Result<Option<Vec<Found<'a>>>, AllocationError> {
    let pools: Vec<&Pool> = devices.pools.of(node).collect();
    let open = claims.iter().map(|claim| Open::new(devices, claim, &pools, node));
    let open: Vec<Open<'a>> = open.collect::<Result<_, _>>()?;
    let chosen = open.iter().map(|_| Vec::new()).collect();
    let mut search = Search { devices, node, pools, open, chosen, left: HashMap::new(), steps: 0 };
    let is_found = search.request(Place::default())?;
    let found = search.open.into_iter().zip(search.chosen).map(|(open, devices)| Found { open, devices });
    Ok(is_found.then(|| found.collect()))
}

impl<'a> Search<'a> {
    /// Satisfies the request of a place and all that follow.
    fn request(&mut self, at: Place) -> Result<bool, AllocationError> {
        let Some(open) = self.open.get(at.claim) else { return Ok(true) };
        let Some(alternatives) = open.requests.get(at.request) else {
            return self.request(Place { claim: at.claim + 1, ..Place::default() });
        };
        for alternative in 0..alternatives.len() {
            if self.device(Place { alternative, device: 0, ..at })? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Finds the device of a place and all that follow.
    fn device(&mut self, at: Place) -> Result<bool, AllocationError> {
        let wanted = &self.open[at.claim].requests[at.request][at.alternative];
        let count = wanted.devices.count();
        let missing = count.saturating_sub(at.device);
        if count == 0 || self.chosen[at.claim].len().saturating_add(missing) > MOST_DEVICES {
            return Ok(false);
        }
        if missing == 0 {
            return self.request(Place { claim: at.claim, request: at.request + 1, ..Place::default() });
        }
        if let Amount::All(devices) = &wanted.devices {
            // All of them are needed: their order does not matter.
            let device = devices[at.device];
            let pool = self
                .pools
                .iter()
                .position(|pool| pool.devices.first().is_some_and(|first| first.id.is_beside(&device.id)));
            return self.try_device(at, device, pool.unwrap_or_default());
        }
        for pool in 0..self.pools.len() {
            let candidates: &'a Pool = self.pools[pool];
            if candidates.condition != Condition::Usable {
                continue;
            }
            for device in &candidates.devices {
                self.steps += 1;
                if self.steps > STEPS {
                    return Err(AllocationError::TooLong { claim: self.open[at.claim].claim.key() });
                }
                if self.try_device(at, device, pool)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Takes a device, if it may be taken and what follows is found; otherwise everything is as before.
    fn try_device(&mut self, at: Place, device: &'a Device, pool: usize) -> Result<bool, AllocationError> {
        if !self.may_take(at, device, pool)? {
            return Ok(false);
        }
        let wanted = &self.open[at.claim].requests[at.request][at.alternative];
        let chosen = self.chosen.iter().flatten().filter(|other| other.device.id == device.id);
        let Some(taken) = wanted.take(self.devices, device, chosen.filter_map(|other| other.share.as_ref()))
        else {
            return Ok(false);
        };
        let (is_admin, share) = (wanted.is_admin, device.is_shared.then_some(taken));
        let chosen = Chosen { device, request: (at.request, at.alternative), pool, is_admin, share };
        self.chosen[at.claim].push(chosen);
        let is_found = self.device(Place { device: at.device + 1, ..at });
        if !matches!(is_found, Ok(true)) {
            self.chosen[at.claim].pop();
        }
        is_found
    }

    fn may_take(&mut self, at: Place, device: &Device, pool: usize) -> Result<bool, AllocationError> {
        let (open, devices) = (&self.open[at.claim], self.devices);
        let wanted = &open.requests[at.request][at.alternative];
        let is_chosen = |chosen: &[Chosen<'_>]| chosen.iter().any(|other| other.device.id == device.id);
        let is_used = match (wanted.is_admin, device.is_shared) {
            // A request gets a device once; others can share it.
            (_, true) => {
                let own = |other: &&Chosen<'_>| other.request == (at.request, at.alternative);
                let mut own = self.chosen[at.claim].iter().filter(own);
                own.any(|other| other.device.id == device.id) || devices.is_held_alone(&device.id)
            }
            (true, false) => is_chosen(&self.chosen[at.claim]),
            (false, false) => {
                devices.is_held(&device.id) || self.chosen.iter().any(|chosen| is_chosen(chosen))
            }
        };
        if is_used
            || !device.nodes.has(self.node)
            || !wanted.selects(devices, open.claim, device)?
            || !wanted.tolerates(device)
        {
            return Ok(false);
        }
        let constraints = open.claim.spec.devices.constraints.iter();
        for constraint in constraints.filter(|constraint| wanted.is_among(&constraint.requests)) {
            let others = self.chosen[at.claim].iter().filter(|other| {
                let (request, alternative) = other.request;
                open.requests[request][alternative].is_among(&constraint.requests)
            });
            if !allows(constraint, device, others.map(|other| other.device)) {
                return Ok(false);
            }
        }
        Ok(wanted.is_admin || device.counters.is_empty() || self.has_counters(device, pool))
    }

    /// Whether the counters of a pool suffice for one more device. A device that is shared takes them once.
    fn has_counters(&mut self, device: &Device, pool: usize) -> bool {
        let (pools, devices) = (&self.pools, self.devices);
        let mut chosen: Vec<&Device> = Vec::new();
        for other in self.chosen.iter().flatten().filter(|other| other.pool == pool && !other.is_admin) {
            let is_counted =
                devices.is_held(&other.device.id) || chosen.iter().any(|d| d.id == other.device.id);
            if !is_counted {
                chosen.push(other.device);
            }
        }
        if devices.is_held(&device.id) || chosen.iter().any(|other| other.id == device.id) {
            return true;
        }
        let left = self
            .left
            .entry(pool)
            .or_insert_with(|| pools[pool].counters_left(|id: &DeviceId| devices.is_held(id)));
        let mut left = left.clone();
        chosen.iter().for_each(|other| take(&mut left, &other.counters));
        take(&mut left, &device.counters);
        device.counters.keys().all(|key| left.get(key).is_some_and(|left| left.signum() >= 0))
    }
}
