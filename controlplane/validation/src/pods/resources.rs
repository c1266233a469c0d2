//! Requests and limits.

use crate::field_ref::{Field, FieldRef, reported_at};
use crate::field_rules::TextRules as _;
use crate::pod_sums;
use crate::quantities::{amount, any_name, container_name, is_huge, is_native};
use coracle_fields::core::v1::{PodSpec, ResourceClaim, ResourceRequirements};
use coracle_fields::{Amount, List, Map};
use coracle_proto::names::dns1123_label;
use coracle_proto::quantity::Quantity;
use serde_json::json;
use std::collections::{BTreeSet, HashMap, HashSet};

/// How many names of claims a sentence lists.
const NAMES_SHOWN: usize = 100;

fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge(name)
}

fn pod_name(field: &FieldRef<'_>, name: &str) {
    if any_name(field, name) && !matches!(name, "cpu" | "memory") && !is_huge(name) {
        field.with(&json!(name)).unsupported(&["cpu", "hugepages-", "memory"]);
    }
}

/// Requests and limits of a container.
pub(super) fn requirements(
    resources: &Field<'_, ResourceRequirements>,
    check_name: fn(&FieldRef<'_>, &str),
    claims: &BTreeSet<&str>,
) {
    let (limits, requests) = (resources.limits(), resources.requests());
    let (mut plain, mut huge) = (false, false);
    let mut seen = |field: &FieldRef<'_>, name: &str| {
        check_name(field, name);
        plain |= matches!(name, "cpu" | "memory");
        huge |= is_huge(name);
        let quantity = amount(field, name);
        if let Some(quantity) = quantity.as_ref().filter(|_| is_huge(name)) {
            huge_pages(field, name, quantity);
        }
        quantity
    };
    for (name, limit) in limits.entries() {
        seen(&limit, name);
    }
    for (name, request) in requests.entries() {
        let Some(asked) = seen(&request, name) else { continue };
        let limit = limits.view().key(name).get().and_then(|text| text.parse::<Quantity>().ok());
        match limit {
            Some(limit) if asked != limit && !may_overcommit(name) => {
                requests.invalid_as(asked.to_string(), format!("must be equal to {name} limit of {limit}"));
            }
            Some(limit) if asked > limit => {
                requests.invalid_as(
                    asked.to_string(),
                    format!("must be less than or equal to {name} limit of {limit}"),
                );
            }
            None if !may_overcommit(name) => {
                limits.required("Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
    if huge && !plain {
        resources.forbidden("HugePages require cpu or memory");
    }
    claim_names(&resources.claims(), claims);
}

fn huge_pages(field: &FieldRef<'_>, name: &str, quantity: &Quantity) {
    let page = name.strip_prefix("hugepages-").and_then(|size| size.parse::<Quantity>().ok());
    let divides = page.is_some_and(|page| page.value() > 0 && quantity.value() % page.value() == 0);
    if !divides {
        field.invalid(format!("{quantity} is not positive integer multiple of {name}"));
    }
}

fn claim_names(list: &Field<'_, List<ResourceClaim>>, claims: &BTreeSet<&str>) {
    let mut seen: HashMap<&str, HashSet<&str>> = HashMap::new();
    for claim in list.items() {
        let (name, request) = (claim.view().name().text(), claim.view().request().text());
        if name.is_empty() {
            claim.required("");
            continue;
        }
        // Without a request, all requests of the claim are meant.
        let before = seen.entry(name).or_default();
        if before.contains("") {
            claim.with(&json!(name)).duplicate();
        } else {
            if !request.is_empty() {
                claim.request().follows(dns1123_label);
            }
            if before.contains(request) {
                claim.with(&json!(format!("{name}/{request}"))).duplicate();
            } else if request.is_empty() {
                before.iter().for_each(|_| claim.with(&json!(name)).duplicate());
            }
            before.insert(request);
        }
        if !claims.contains(name) {
            // Thousands of names in each of thousands of sentences would fill the memory.
            let shown = claims.iter().copied().filter(|name| !name.is_empty()).take(NAMES_SHOWN);
            let mut known: Vec<&str> = shown.collect();
            if claims.len() > NAMES_SHOWN {
                known.push("...");
            }
            let hint = if known.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", known.join(", "))
            };
            let text =
                format!("Not found: {:?}: must be one of the names in pod.spec.resourceClaims{hint}", name);
            claim.report(coracle_proto::status::FieldError::new("FieldValueNotFound", claim.path(), text));
        }
    }
}

/// Requests and limits of the pod as a whole.
pub(super) fn pod_level(spec: &Field<'_, PodSpec>, claims: &BTreeSet<&str>) {
    let resources = spec.resources();
    if !resources.is_set() {
        return;
    }
    if resources.claims().is_set() {
        resources.claims().forbidden("claims may not be set for Resources at pod-level");
    }
    requirements(&resources, pod_name, claims);
    holds_containers(&resources, spec);
}

/// The pod as a whole has at least what its containers have.
fn holds_containers(resources: &Field<'_, ResourceRequirements>, spec: &Field<'_, PodSpec>) {
    let at_least = |list: Field<'_, Map<Amount>>, name: &str, sum: Quantity, what: &str| {
        let place = list.key(name);
        let of_pod = place.get().and_then(|text| text.parse::<Quantity>().ok());
        if let Some(of_pod) = of_pod.filter(|of_pod| sum > *of_pod) {
            let why = format!("must be greater than or equal to aggregate container {what} of {sum}");
            place.invalid_as(of_pod.to_string(), why);
        }
    };
    for (name, sum) in pod_sums::requests(spec.view()) {
        at_least(resources.requests(), &name, sum, "requests");
    }
    for (name, sum) in pod_sums::limits(spec.view()).into_iter().filter(|(name, _)| is_huge(name)) {
        at_least(resources.limits(), &name, sum, "limits");
    }
    let limit_of_pod = |name: &str| resources.view().limits().key(name).get()?.parse::<Quantity>().ok();
    for (index, container) in spec.view().containers().items().enumerate() {
        for (name, limit) in container.resources().limits().entries() {
            let Some(of_pod) = limit_of_pod(name) else { continue };
            if let Some(own) = limit.text().parse::<Quantity>().ok().filter(|own| *own > of_pod) {
                // Upstream's path is not where the limit is.
                resources.below(&format!("containers[{index}][{name}].limits")).invalid_as(
                    own.to_string(),
                    format!("must be less than or equal to pod limits of {of_pod}"),
                );
            }
        }
    }
}

/// What the runtime itself needs.
pub(super) fn overhead(overhead: &Field<'_, Map<Amount>>) {
    // Upstream checks it as limits of a container.
    for (name, field) in reported_at(overhead, &overhead.below("limits")).entries() {
        container_name(&field, name);
        amount(&field, name);
    }
}
