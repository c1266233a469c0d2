//! Extended resources of DeviceClasses: where no device plugin offers a resource, devices of the class are allocated for it, with
//! one claim per pod that the scheduler makes.

use super::wire::{Claim, ClaimSpec, Class, Exactly, Meta, Request, Wanted};
use super::{Devices, EXTENDED_ANNOTATION};
use crate::extended_uses::{ContainerUse, OF_CLASS, is_extended};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// The name of a claim that is not created yet; no claim of the API can have it.
const NOT_CREATED: &str = "<extended-resources>";

/// Which class is behind a resource that several classes name: the newest, then the first by name.
pub(super) fn by_resource(classes: &HashMap<String, Class>) -> HashMap<String, String> {
    let mut found: HashMap<String, (&str, &String)> = HashMap::new();
    for (name, class) in classes {
        let Some(resource) = class.spec.extended_resource_name.as_ref().filter(|text| !text.is_empty())
        else {
            continue;
        };
        let created = class.metadata.creation_timestamp.as_deref().unwrap_or_default();
        let is_better = |(other, other_name): &(&str, &String)| {
            created > *other || (created == *other && name < *other_name)
        };
        if found.get(resource).is_none_or(is_better) {
            found.insert(resource.clone(), (created, name));
        }
    }
    found.into_iter().map(|(resource, (_, class))| (resource, class.clone())).collect()
}

/// A claim for the extended resources of a pod.
#[derive(Debug, Clone)]
pub struct ExtendedClaim {
    /// `spec.devices.requests` of the claim.
    pub requests: Value,
    /// `requestMappings` of the pod's status.
    pub mappings: Value,
}

#[derive(Debug, Clone)]
struct Wish {
    name: String,
    class: String,
    count: i64,
}

#[derive(Debug)]
struct Mapping {
    container: String,
    resource: Arc<str>,
    request: String,
}

/// The request of a container for a resource, beside requests of others that it can use first; none if those suffice.
fn wish(
    used: &ContainerUse,
    (resource, class): (&str, &str),
    reusable: &[Option<Wish>],
    mappings: &mut Vec<Mapping>,
) -> Option<Wish> {
    let wanted = used.amounts.iter().find(|one| &*one.resource == resource)?;
    let mut map = |request: &str| {
        let (container, resource) = (used.container.clone(), wanted.resource.clone());
        mappings.push(Mapping { container, resource, request: request.to_owned() });
    };
    let mut missing = wanted.amount;
    for other in reusable.iter().flatten() {
        map(&other.name);
        missing -= other.count;
        if missing <= 0 {
            return None;
        }
    }
    let name = format!("container-{}-request-{}", used.index, wanted.index);
    map(&name);
    Some(Wish { name, class: class.to_owned(), count: missing })
}

/// Requests for these resources, and which containers use them. Init containers take turns with what later containers have.
fn wishes(uses: &[ContainerUse], backed: &[(&str, &str)]) -> (Vec<Wish>, Vec<Mapping>) {
    let (mut all, mut mappings) = (Vec::new(), Vec::new());
    let containers = uses.iter().map(|used| used.index + 1).max().unwrap_or_default();
    for resource in backed {
        let mut lasting: Vec<Option<Wish>> = vec![None; containers];
        for used in uses.iter().filter(|used| !used.is_short_lived) {
            lasting[used.index] = wish(used, *resource, &[], &mut mappings);
        }
        let mut short = Vec::new();
        let mut short_mappings = Vec::new();
        for used in uses.iter().filter(|used| used.is_short_lived) {
            short.extend(wish(used, *resource, &lasting[used.index..], &mut short_mappings));
        }
        // The first of those with the largest count serves all init containers.
        let most = short.iter().rev().max_by_key(|one| one.count).cloned();
        if let Some(most) = &most {
            for mapping in &mut short_mappings {
                if short.iter().any(|one| one.name == mapping.request) {
                    mapping.request.clone_from(&most.name);
                }
            }
        }
        all.extend(most.into_iter().chain(lasting.into_iter().flatten()));
        mappings.extend(short_mappings);
    }
    all.sort_by(|a: &Wish, b: &Wish| a.name.cmp(&b.name));
    (all, mappings)
}

impl Devices {
    fn class_of(&self, resource: &str) -> Option<&str> {
        let of_class = resource.strip_prefix(OF_CLASS).and_then(|name| self.classes.get_key_value(name));
        let named = || self.by_resource.get(resource).map(String::as_str);
        of_class.map(|(name, _)| name.as_str()).or_else(named)
    }

    /// Whether devices of a class are behind a resource on a node: no device plugin offers it there.
    pub fn is_backed(&self, resource: &str, node: &NodeInfo) -> bool {
        is_extended(resource) && node.allocatable.extended(resource) == 0 && self.class_of(resource).is_some()
    }

    /// The claim that a pod needs on a node for its extended resources.
    pub(super) fn extended_claim(&self, pod: &PodInfo, node: &NodeInfo) -> Option<(Claim, ExtendedClaim)> {
        let names = pod.extended_uses.iter().flat_map(|used| &used.amounts).map(|one| &*one.resource);
        let mut backed: Vec<(&str, &str)> = names
            .filter(|name| node.allocatable.extended(name) == 0)
            .filter_map(|name| Some((name, self.class_of(name)?)))
            .collect();
        backed.sort_unstable();
        backed.dedup();
        if backed.is_empty() {
            return None;
        }
        let (wishes, mappings) = wishes(&pod.extended_uses, &backed);
        let exactly = |wish: &Wish| Exactly {
            device_class_name: wish.class.clone(),
            allocation_mode: "ExactCount".to_owned(),
            count: wish.count,
            ..Exactly::default()
        };
        let requests = wishes
            .iter()
            .map(|wish| Request {
                name: wish.name.clone(),
                exactly: Some(exactly(wish)),
                ..Request::default()
            })
            .collect();
        let claim = Claim {
            metadata: Meta {
                name: format!("{NOT_CREATED}/{}", pod.name),
                namespace: pod.namespace.clone(),
                ..Meta::default()
            },
            spec: ClaimSpec { devices: Wanted { requests, ..Wanted::default() } },
            ..Claim::default()
        };
        let written = |wish: &Wish| {
            json!({"name": wish.name, "exactly": {"deviceClassName": wish.class, "allocationMode": "ExactCount",
                "count": wish.count}})
        };
        let mapped = |one: &Mapping| json!({"containerName": one.container, "resourceName": &*one.resource, "requestName": one.request});
        let extended = ExtendedClaim {
            requests: wishes.iter().map(written).collect(),
            mappings: mappings.iter().map(mapped).collect(),
        };
        Some((claim, extended))
    }

    /// The pod whose extended resources a claim is for.
    pub(super) fn extended_owner(claim: &Claim) -> Option<&str> {
        let is_extended = claim.metadata.annotations.get(EXTENDED_ANNOTATION).is_some_and(|v| v == "true");
        let owner = claim.metadata.owner_references.iter().find(|owner| owner.controller);
        owner.filter(|_| is_extended).map(|owner| owner.uid.as_str())
    }

    /// The claim of a pod was created under another name than that of the decision.
    pub fn created(&mut self, pod: &PodInfo, decided: &str, claim: &str) {
        if decided == claim {
            return;
        }
        if let Some(mut pending) = self.pending.remove(&format!("{}/{decided}", pod.namespace)) {
            pending.is_new = true;
            self.pending.insert(format!("{}/{claim}", pod.namespace), pending);
        }
    }
}
