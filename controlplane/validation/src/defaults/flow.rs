//! Defaults of flow schemas and priority levels.

use coracle_fields::Schema;
use coracle_fields::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use serde_json::Value;

/// A FlowSchema.
pub fn flow_schema(object: &mut Value) {
    FlowSchema::edit(object).spec().section().matching_precedence().default_empty(1000);
}

/// A PriorityLevelConfiguration.
pub fn priority_level(object: &mut Value) {
    let mut level = PriorityLevelConfiguration::edit(object);
    let mut spec = level.spec().section();
    if let Some(mut exempt) = spec.exempt().existing() {
        exempt.nominal_concurrency_shares().default(0);
        exempt.lendable_percent().default(0);
    }
    let Some(mut limited) = spec.limited().existing() else { return };
    limited.nominal_concurrency_shares().default(30);
    limited.lendable_percent().default(0);
    if let Some(mut queuing) = limited.limit_response().queuing().existing() {
        queuing.hand_size().default_empty(8);
        queuing.queues().default_empty(64);
        queuing.queue_length_limit().default_empty(50);
    }
}
