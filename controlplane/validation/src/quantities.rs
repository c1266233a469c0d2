//! Names and quantities of resources.

use super::field_ref::FieldRef;
use coracle_proto::names::qualified_name;
use coracle_proto::quantity::Quantity;
use serde_json::Value;

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

pub(super) fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether the system knows the resource.
pub(super) fn is_known(name: &str) -> bool {
    STANDARD.contains(&name) || is_huge(name) || name.starts_with("requests.hugepages-")
}

/// A resource that the system knows, or a qualified name.
pub(super) fn any_name(field: &FieldRef<'_>, name: &str) -> bool {
    let wrong = qualified_name(name);
    if !wrong.is_empty() {
        wrong.into_iter().for_each(|message| field.invalid_as(name, message));
        return false;
    }
    if !name.contains('/') && !is_known(name) {
        field.invalid_as(name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

/// A resource that containers may ask for.
pub(super) fn container_name(field: &FieldRef<'_>, name: &str) {
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

/// Reads a quantity; text that is none is reported.
pub(super) fn quantity(field: &FieldRef<'_>) -> Option<Quantity> {
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
pub(super) fn amount(field: &FieldRef<'_>, name: &str) -> Option<Quantity> {
    let quantity = quantity(field)?;
    if quantity.signum() < 0 {
        field.invalid("must be greater than or equal to 0");
    }
    if (WHOLE.contains(&name) || !is_native(name)) && quantity.milli_value() % 1000 != 0 {
        field.invalid("must be an integer");
    }
    Some(quantity)
}
