//! Columns of flow schemas and priority levels.

use super::{Column, age, count, format, name, text, text_or};
use coracle_fields::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration, QueuingConfiguration};
use coracle_fields::{Int32, View};
use serde_json::{Value, json};

/// FlowSchemas.
pub fn flow_schema() -> Vec<Column> {
    vec![
        name(),
        text::<FlowSchema>("PriorityLevel", |object| {
            object.spec().priority_level_configuration().name().to_value()
        }),
        text::<FlowSchema>("MatchingPrecedence", |object| count(object.spec().matching_precedence().int())),
        text::<FlowSchema>("DistinguisherMethod", |object| {
            text_or(object.spec().distinguisher_method().type_().text(), "<none>")
        }),
        age(),
        text::<FlowSchema>("MissingPL", |object| {
            let dangling = format::condition(object.status().conditions(), "Dangling");
            json!(dangling.map_or("?", |condition| condition.status().text()))
        }),
    ]
}

/// PriorityLevelConfigurations.
pub fn priority_level() -> Vec<Column> {
    fn or_none(number: View<'_, Int32>) -> Value {
        if number.is_set() { number.to_value() } else { json!("<none>") }
    }
    fn queuing(level: View<'_, PriorityLevelConfiguration>) -> View<'_, QueuingConfiguration> {
        level.spec().limited().limit_response().queuing()
    }
    vec![
        name(),
        text::<PriorityLevelConfiguration>("Type", |level| level.spec().type_().to_value()),
        text::<PriorityLevelConfiguration>("NominalConcurrencyShares", |level| {
            or_none(level.spec().limited().nominal_concurrency_shares())
        }),
        text::<PriorityLevelConfiguration>("Queues", |level| or_none(queuing(level).queues())),
        text::<PriorityLevelConfiguration>("HandSize", |level| or_none(queuing(level).hand_size())),
        text::<PriorityLevelConfiguration>("QueueLengthLimit", |level| {
            or_none(queuing(level).queue_length_limit())
        }),
        age(),
    ]
}
