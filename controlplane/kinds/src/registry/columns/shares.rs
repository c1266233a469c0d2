//! Columns of flow schemas, priority levels and device claims.

use super::{age, count, name, text, text_or, words};
use crate::registry::kinds::Column;
use coracle_validation::tree::Tree;
use serde_json::{Value, json};

/// FlowSchemas.
pub fn flow_schema() -> Vec<Column> {
    vec![
        name(),
        text("PriorityLevel", |object| object.at("spec.priorityLevelConfiguration.name").clone()),
        text("MatchingPrecedence", |object| count(object, "spec.matchingPrecedence")),
        text("DistinguisherMethod", |object| text_or(object, "spec.distinguisherMethod.type", "<none>")),
        age(),
        text("MissingPL", |object| {
            json!(words::condition(object, "Dangling").map_or("?", |condition| condition.text("status")))
        }),
    ]
}

/// PriorityLevelConfigurations.
pub fn priority_level() -> Vec<Column> {
    fn or_none(value: &Value) -> Value {
        if value.is_null() { json!("<none>") } else { value.clone() }
    }
    vec![
        name(),
        text("Type", |object| object.at("spec.type").clone()),
        text("NominalConcurrencyShares", |object| {
            or_none(object.at("spec.limited.nominalConcurrencyShares"))
        }),
        text("Queues", |object| or_none(object.at("spec.limited.limitResponse.queuing.queues"))),
        text("HandSize", |object| or_none(object.at("spec.limited.limitResponse.queuing.handSize"))),
        text("QueueLengthLimit", |object| {
            or_none(object.at("spec.limited.limitResponse.queuing.queueLengthLimit"))
        }),
        age(),
    ]
}

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
