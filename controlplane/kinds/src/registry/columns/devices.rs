//! Columns of device claims and slices.

use super::{Column, age, name, text};
use coracle_fields::resource::v1::{ResourceClaim, ResourceSlice};
use serde_json::json;

/// ResourceClaims.
pub fn resource_claim() -> Vec<Column> {
    vec![
        name(),
        text::<ResourceClaim>("State", |object| {
            let leaving = object.metadata().deletion_timestamp().is_set();
            let mut words = Vec::new();
            if leaving {
                words.push("deleted");
            }
            if object.status().allocation().is_set() {
                words.push("allocated");
                if !object.status().reserved_for().is_empty() {
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
        text::<ResourceSlice>("Node", |object| json!(object.spec().node_name().text())),
        text::<ResourceSlice>("Driver", |object| object.spec().driver().to_value()),
        text::<ResourceSlice>("Pool", |object| object.spec().pool().name().to_value()),
        age(),
    ]
}
