//! A claim as a search reads it: for each request its alternatives, in the order of preference.

use super::Devices;
use super::capacity::{self, Amounts, amounts};
use super::pools::{Condition, Device, Pool};
use super::selection::SelectionError;
use super::wire::{Alternative, Claim, Class, Constraint, Exactly, Requirements, Selector, Toleration};
use crate::node::NodeInfo;

/// Why a claim cannot be allocated on a node, other than that devices are in use.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum AllocationError {
    #[error("claim {claim}, request {request}: device class {class} does not exist")]
    NoClass { claim: String, request: String, class: String },
    #[error(
        "claim {claim}, request {request}: asks for all devices, but resource pool {pool} is currently being updated"
    )]
    Incomplete { claim: String, request: String, pool: String },
    #[error(
        "claim {claim}, request {request}: asks for all devices, but resource pool {pool} is currently invalid"
    )]
    Invalid { claim: String, request: String, pool: String },
    #[error("class {class}: selector #{at}: {source}")]
    ClassSelector { class: String, at: usize, source: SelectionError },
    #[error("claim {claim}: selector #{at}: {source}")]
    ClaimSelector { claim: String, at: usize, source: SelectionError },
    #[error("claim {claim}: too many combinations of devices")]
    TooLong { claim: String },
}

/// A request for devices, or one of its alternatives.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    /// As results name it: with the name of the alternative.
    pub(super) name: String,
    pub(super) class: (&'a str, &'a Class),
    selectors: &'a [Selector],
    pub(super) is_admin: bool,
    pub(super) tolerations: &'a [Toleration],
    /// Amounts of capacity.
    pub(super) capacity: Amounts,
    pub(super) devices: Amount<'a>,
}

/// How many devices are wanted.
#[derive(Debug)]
pub(super) enum Amount<'a> {
    Exactly(usize),
    All(Vec<&'a Device>),
}

impl Amount<'_> {
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Exactly(count) => *count,
            Self::All(devices) => devices.len(),
        }
    }
}

/// A claim that is to be allocated.
#[derive(Debug)]
pub(super) struct Open<'a> {
    pub(super) claim: &'a Claim,
    pub(super) requests: Vec<Vec<Wanted<'a>>>,
}

/// What alternatives and requests without them have in common.
struct Parts<'a> {
    request: &'a str,
    alternative: Option<&'a str>,
    class: &'a str,
    selectors: &'a [Selector],
    mode: &'a str,
    count: i64,
    is_admin: bool,
    tolerations: &'a [Toleration],
    capacity: Option<&'a Requirements>,
}

impl<'a> Parts<'a> {
    fn exactly(request: &'a str, wanted: &'a Exactly) -> Self {
        Self {
            request,
            alternative: None,
            class: &wanted.device_class_name,
            selectors: &wanted.selectors,
            mode: &wanted.allocation_mode,
            count: wanted.count,
            is_admin: wanted.admin_access,
            tolerations: &wanted.tolerations,
            capacity: wanted.capacity.as_ref(),
        }
    }

    fn alternative(request: &'a str, wanted: &'a Alternative) -> Self {
        Self {
            request,
            alternative: Some(&wanted.name),
            class: &wanted.device_class_name,
            selectors: &wanted.selectors,
            mode: &wanted.allocation_mode,
            count: wanted.count,
            is_admin: false,
            tolerations: &wanted.tolerations,
            capacity: wanted.capacity.as_ref(),
        }
    }
}

impl<'a> Open<'a> {
    /// Reads a claim for a node with these pools.
    pub(super) fn new(
        devices: &'a Devices,
        claim: &'a Claim,
        pools: &[&'a Pool],
        node: &NodeInfo,
    ) -> Result<Self, AllocationError> {
        let mut open = Self { claim, requests: Vec::new() };
        for request in &claim.spec.devices.requests {
            let exactly = request.exactly.iter().map(|wanted| Parts::exactly(&request.name, wanted));
            let others = request.first_available.iter();
            let others = others.map(|wanted| Parts::alternative(&request.name, wanted));
            let wanted = exactly.chain(others).map(|parts| open.wanted(devices, pools, node, &parts));
            let wanted: Vec<Wanted<'a>> = wanted.collect::<Result<_, _>>()?;
            open.requests.push(wanted);
        }
        Ok(open)
    }

    fn wanted(
        &self,
        devices: &'a Devices,
        pools: &[&'a Pool],
        node: &NodeInfo,
        parts: &Parts<'a>,
    ) -> Result<Wanted<'a>, AllocationError> {
        let (claim, request) = (|| self.claim.key(), || parts.request.to_owned());
        let class = devices.classes.get(parts.class).ok_or_else(|| AllocationError::NoClass {
            claim: claim(),
            request: request(),
            class: parts.class.to_owned(),
        })?;
        let name = match parts.alternative {
            Some(alternative) => format!("{}/{alternative}", parts.request),
            None => parts.request.to_owned(),
        };
        let mut wanted = Wanted {
            name,
            class: (parts.class, class),
            selectors: parts.selectors,
            is_admin: parts.is_admin,
            tolerations: parts.tolerations,
            capacity: parts.capacity.map(|wanted| amounts(&wanted.requests)).unwrap_or_default(),
            devices: Amount::Exactly(usize::try_from(parts.count).unwrap_or(usize::MAX)),
        };
        if parts.mode == "All" {
            let mut all = Vec::new();
            for pool in pools {
                match pool.condition {
                    Condition::Usable => {}
                    Condition::Incomplete => {
                        let pool = pool.name.clone();
                        return Err(AllocationError::Incomplete { claim: claim(), request: request(), pool });
                    }
                    Condition::Invalid => {
                        let pool = pool.name.clone();
                        return Err(AllocationError::Invalid { claim: claim(), request: request(), pool });
                    }
                }
                for device in pool.devices.iter().filter(|device| device.nodes.has(node)) {
                    // A device of which too little is left is not one of all.
                    let has_room = || wanted.take(devices, device, std::iter::empty()).is_some();
                    if wanted.selects(devices, self.claim, device)? && has_room() {
                        all.push(device);
                    }
                }
            }
            wanted.devices = Amount::All(all);
        }
        Ok(wanted)
    }
}

impl Wanted<'_> {
    /// The name of the request, without that of the alternative.
    pub(super) fn request(&self) -> &str {
        self.name.split_once('/').map_or(&self.name, |(request, _)| request)
    }

    /// Whether a constraint or a configuration, which names these requests, is about it.
    pub(super) fn is_among(&self, requests: &[String]) -> bool {
        requests.is_empty() || requests.iter().any(|name| *name == self.name || name == self.request())
    }

    /// Whether class and selectors accept a device.
    pub(super) fn selects(
        &self,
        devices: &Devices,
        claim: &Claim,
        device: &Device,
    ) -> Result<bool, AllocationError> {
        let expressions = |selectors: &'_ [Selector]| -> Vec<String> {
            let text = |s: &Selector| s.cel.as_ref().map(|cel| cel.expression.clone()).unwrap_or_default();
            selectors.iter().map(text).collect()
        };
        for (at, text) in expressions(&self.class.1.spec.selectors).iter().enumerate() {
            let selects = devices.selection.selects(text, device).map_err(|source| {
                AllocationError::ClassSelector { class: self.class.0.to_owned(), at, source }
            });
            if !selects? {
                return Ok(false);
            }
        }
        for (at, text) in expressions(self.selectors).iter().enumerate() {
            let selects = devices
                .selection
                .selects(text, device)
                .map_err(|source| AllocationError::ClaimSelector { claim: claim.key(), at, source });
            if !selects? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What it takes of a device's capacity, beside claims that have devices and others that were chosen; nothing if too little
    /// is left.
    pub(super) fn take<'b>(
        &self,
        devices: &'b Devices,
        device: &Device,
        chosen: impl Iterator<Item = &'b Amounts>,
    ) -> Option<Amounts> {
        let held = devices.held.get(&device.id).map(|held| &held.consumed);
        capacity::take(&device.capacity, &self.capacity, held.into_iter().chain(chosen))
    }

    /// Whether every taint of a device is tolerated.
    pub(super) fn tolerates(&self, device: &Device) -> bool {
        let hinders = |effect: &str| matches!(effect, "NoSchedule" | "NoExecute");
        device
            .taints
            .iter()
            .filter(|taint| hinders(&taint.effect))
            .all(|taint| self.tolerations.iter().any(|toleration| toleration.tolerates(taint)))
    }
}

/// Whether a constraint allows a device beside others that were chosen for the claim.
pub(super) fn allows<'a>(
    constraint: &Constraint,
    device: &Device,
    mut chosen: impl Iterator<Item = &'a Device>,
) -> bool {
    match (&constraint.match_attribute, &constraint.distinct_attribute) {
        (Some(name), _) => {
            let Some(value) = device.attribute(name) else { return false };
            chosen.next().is_none_or(|other| other.attribute(name) == Some(value))
        }
        (None, Some(name)) => {
            let Some(value) = device.attribute(name) else { return false };
            chosen.all(|other| other.attribute(name) != Some(value))
        }
        // A constraint of a kind that is not known cannot be met.
        (None, None) => false,
    }
}
