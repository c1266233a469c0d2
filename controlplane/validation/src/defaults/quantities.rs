//! Quantities inside objects: canonical spelling, and amounts that nobody set.

use coracle_fields::{Amount, Edit, Map};
use coracle_proto::quantity::Quantity;
use serde_json::{Value, json};

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
