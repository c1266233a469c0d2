//! Columns of flow schemas and priority levels.

use super::{age, count, format, name, text, text_or};
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
            json!(format::condition(object, "Dangling").map_or("?", |condition| condition.text("status")))
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
