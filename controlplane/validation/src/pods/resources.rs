//! Requests and limits.

use crate::field_ref::{Field, FieldRef};
use coracle_fields::core::v1::{PodSpec, ResourceClaim, ResourceRequirements};
use coracle_fields::{Amount, List, Map};
use coracle_proto::names::{dns1123_label, qualified_name};
use coracle_proto::quantity::Quantity;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};

const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Resources that come in whole numbers.
const WHOLE: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// How many names of claims a sentence lists.
const NAMES_SHOWN: usize = 100;

fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge(name)
}

/// A resource that the system knows, or a qualified name.
pub(crate) fn any_name(field: &FieldRef<'_>, name: &str) -> bool {
    let wrong = qualified_name(name);
    if !wrong.is_empty() {
        wrong.into_iter().for_each(|message| field.invalid_as(name, message));
        return false;
    }
    let known = STANDARD.contains(&name) || is_huge(name) || name.starts_with("requests.hugepages-");
    if !name.contains('/') && !known {
        field.invalid_as(name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

/// A resource that containers may ask for.
pub(crate) fn container_name(field: &FieldRef<'_>, name: &str) {
    any_name(field, name);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge(name) {
            field.invalid_as(name, "must be a standard resource for containers");
        }
    } else if !is_native(name)
        && (name.starts_with("requests.") || !qualified_name(&format!("requests.{name}")).is_empty())
    {
        field.invalid_as(name, "doesn't follow extended resource name standard");
    }
}

fn pod_name(field: &FieldRef<'_>, name: &str) {
    if any_name(field, name) && !matches!(name, "cpu" | "memory") && !is_huge(name) {
        field.with(&json!(name)).unsupported(&["cpu", "hugepages-", "memory"]);
    }
}

/// Reads a quantity; text that is none is reported.
pub(crate) fn quantity(field: &FieldRef<'_>) -> Option<Quantity> {
    let text = match field.value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    match text.parse::<Quantity>() {
        Ok(quantity) => Some(quantity),
        Err(why) => {
            field.invalid(why.to_string());
            None
        }
    }
}

/// A quantity that is not negative, and whole where the resource is counted.
pub(crate) fn amount(field: &FieldRef<'_>, name: &str) -> Option<Quantity> {
    let quantity = quantity(field)?;
    if quantity.signum() < 0 {
        field.invalid("must be greater than or equal to 0");
    }
    if (WHOLE.contains(&name) || !is_native(name)) && quantity.milli_value() % 1000 != 0 {
        field.invalid("must be an integer");
    }
    Some(quantity)
}

/// Requests and limits of a container.
pub(crate) fn requirements(
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
    let mut seen = HashSet::new();
    for claim in list.items() {
        let (name, request) = (claim.view().name().text(), claim.view().request().text());
        if name.is_empty() {
            claim.required("");
            continue;
        }
        if !request.is_empty() {
            claim.request().follows(dns1123_label);
        }
        if !seen.insert((name, request)) {
            let text = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
            claim.with(&json!(text)).duplicate();
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
    for (name, limit) in resources.view().limits().entries() {
        let Some(of_pod) = limit.text().parse::<Quantity>().ok() else { continue };
        for container in spec.containers().items() {
            let own = container.view().resources().limits().key(name).get();
            if let Some(own) = own.and_then(|text| text.parse::<Quantity>().ok())
                && own > of_pod
            {
                container.resources().limits().key(name).invalid_as(
                    own.to_string(),
                    format!("must be less than or equal to pod limits of {of_pod}"),
                );
            }
        }
    }
}

/// What the runtime itself needs.
pub(super) fn overhead(overhead: &Field<'_, Map<Amount>>) {
    for (name, field) in overhead.entries() {
        container_name(&field, name);
        amount(&field, name);
    }
}
