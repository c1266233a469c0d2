//! Quantities inside objects: canonical spelling, and what a pod asks for altogether.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Numbers become text.
pub(super) fn canonical_resources(list: &mut Value) {
    for (_, value) in list.as_object_mut().into_iter().flatten() {
        if let Value::Number(number) = &*value {
            *value = json!(number.to_string());
        }
    }
}

pub(super) fn sum_of_requests(_spec: &Value) -> BTreeMap<String, String> {
    BTreeMap::new()
}
