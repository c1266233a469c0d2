//! Items of lists in custom resources: which are the same, and what they were before.

use coracle_fields::View;
use coracle_fields::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;
use std::collections::HashMap;

/// The keys of the items of a list that is a map; none of any other list.
pub(super) fn map_keys(schema: View<'_, JSONSchemaProps>) -> Vec<String> {
    if schema.x_kubernetes_list_type() != "map" {
        return Vec::new();
    }
    schema.x_kubernetes_list_map_keys().items().filter_map(|key| key.get()).map(str::to_owned).collect()
}

/// The items of a list as they were, by their keys; what an item of a list without keys was nobody knows. There is no
/// search for every item: lists have many.
pub(super) struct Followed<'v> {
    keys: &'v [String],
    items: HashMap<String, &'v Value>,
}

impl<'v> Followed<'v> {
    pub(super) fn of(keys: &'v [String], old: Option<&'v Value>) -> Self {
        let items = old.and_then(Value::as_array).filter(|_| !keys.is_empty()).into_iter().flatten();
        // The first of those with the same keys counts.
        let items = items.rev().map(|item| (Self::key(keys, item), item)).collect();
        Self { keys, items }
    }

    fn key(keys: &[String], item: &Value) -> String {
        keys.iter().map(|key| item.get(key).map_or_else(|| "-".to_owned(), sorted) + ",").collect()
    }

    /// What an item was.
    pub(super) fn item(&self, item: &Value) -> Option<&'v Value> {
        if self.items.is_empty() { None } else { self.items.get(&Self::key(self.keys, item)).copied() }
    }
}

/// The text of a value, the same for all that are equal.
pub(super) fn sorted(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().map(|(name, value)| (name, sorted(value))).collect();
            fields.sort();
            let fields =
                fields.iter().map(|(name, value)| format!("{}:{value},", Value::from(name.as_str())));
            format!("{{{}}}", fields.collect::<String>())
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(|item| sorted(item) + ",").collect::<String>())
        }
        scalar => scalar.to_string(),
    }
}
