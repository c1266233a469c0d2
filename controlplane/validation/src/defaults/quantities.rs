//! Quantities inside objects: canonical spelling, and what a pod asks for altogether.

use coracle_fields::core::v1::{Container, PodSpec};
use coracle_fields::{Amount, Edit, Map, View};
use coracle_proto::quantity::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Writes quantities in their canonical form, rounded up to thousandths; malformed ones stay for validation.
pub(super) fn canonical_resources(mut list: Edit<'_, Map<Amount>>) {
    for (_, value) in list.map_mut().into_iter().flatten() {
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

/// Makes the list, and adds the amounts of names that it does not have.
pub(super) fn fill_missing(list: Edit<'_, Map<Amount>>, amounts: impl IntoIterator<Item = (String, Value)>) {
    let mut list = list.section();
    let Some(Value::Object(list)) = list.tree() else { return };
    for (name, amount) in amounts {
        // By the whole name: that of an extended resource has dots.
        let entry = list.entry(name).or_insert(Value::Null);
        if entry.is_null() {
            *entry = amount;
        }
    }
}

type Amounts = BTreeMap<String, Quantity>;

/// What the containers of a pod ask for together. Init containers run one at a time before the others; those that
/// stay (sidecars) count from their turn on.
pub(super) fn sum_of_requests(spec: View<'_, PodSpec>) -> BTreeMap<String, String> {
    let (mut total, mut sidecars, mut peak) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in spec.containers().items() {
        add(&mut total, &requests(container));
    }
    for container in spec.init_containers().items() {
        let asked = requests(container);
        let mut now = sidecars.clone();
        add(&mut now, &asked);
        raise(&mut peak, &now);
        if container.restart_policy() == "Always" {
            add(&mut total, &asked);
            sidecars = now;
        }
    }
    raise(&mut total, &peak);
    total.into_iter().map(|(name, quantity)| (name, quantity.to_string())).collect()
}

fn requests(container: View<'_, Container>) -> Amounts {
    let entries = container.resources().requests().entries();
    entries.filter_map(|(name, text)| Some((name.to_owned(), text.get()?.parse().ok()?))).collect()
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
