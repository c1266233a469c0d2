//! Columns of device claims and slices.

use super::{age, name, text};
use crate::registry::kinds::Column;
use coracle_validation::tree::Tree;
use serde_json::json;

/// ResourceClaims.
pub fn resource_claim() -> Vec<Column> {
    vec![
        name(),
        text("State", |object| {
            let leaving = object.has("metadata.deletionTimestamp");
            let mut words = Vec::new();
            if leaving {
                words.push("deleted");
            }
            if object.has("status.allocation") {
                words.push("allocated");
                if !object.items("status.reservedFor").is_empty() {
                    words.push("reserved");
                }
            } else if !leaving {
                words.push("pending");
            }
            json!(words.join(","))
        }),
        age(),
    ]
}

/// ResourceSlices.
pub fn resource_slice() -> Vec<Column> {
    vec![
        name(),
        text("Node", |object| json!(object.text("spec.nodeName"))),
        text("Driver", |object| object.at("spec.driver").clone()),
        text("Pool", |object| object.at("spec.pool.name").clone()),
        age(),
    ]
}
