//! Quantities inside objects: canonical spelling, and what a pod asks for altogether.

use crate::tree::Tree;
use coracle_proto::quantity::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Writes quantities in their canonical form, rounded up to thousandths; malformed ones stay for validation.
pub(super) fn canonical_resources(list: &mut Value) {
    for (_, value) in list.as_object_mut().into_iter().flatten() {
        let text = match &*value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => continue,
        };
        let Ok(quantity) = text.parse::<Quantity>() else { continue };
        let rounded = Quantity::milli(quantity.milli_value(), quantity.format());
        let exact = quantity == rounded || quantity.milli_value() == i64::MAX;
        *value = json!(if exact { quantity.to_string() } else { rounded.to_string() });
    }
}

type Amounts = BTreeMap<String, Quantity>;

/// What the containers of a pod ask for together. Init containers run one at a time before the others; those that
/// stay (sidecars) count from their turn on.
pub(super) fn sum_of_requests(spec: &Value) -> BTreeMap<String, String> {
    let (mut total, mut sidecars, mut peak) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in spec.items("containers") {
        add(&mut total, &requests(container));
    }
    for container in spec.items("initContainers") {
        let asked = requests(container);
        let mut now = sidecars.clone();
        add(&mut now, &asked);
        raise(&mut peak, &now);
        if container.text("restartPolicy") == "Always" {
            add(&mut total, &asked);
            sidecars = now;
        }
    }
    raise(&mut total, &peak);
    total.into_iter().map(|(name, quantity)| (name, quantity.to_string())).collect()
}

fn requests(container: &Value) -> Amounts {
    let entries = container.entries("resources.requests");
    entries.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.parse().ok()?))).collect()
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, quantity) in more {
        total.entry(name.clone()).and_modify(|sum| sum.add(quantity)).or_insert_with(|| quantity.clone());
    }
}

/// Each amount is at least what `floor` says.
fn raise(total: &mut Amounts, floor: &Amounts) {
    for (name, quantity) in floor {
        if total.get(name).is_none_or(|sum| sum < quantity) {
            total.insert(name.clone(), quantity.clone());
        }
    }
}
