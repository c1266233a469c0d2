//! Defaults of flow schemas and priority levels.

use crate::tree::Grow;
use serde_json::Value;

/// A FlowSchema.
pub fn flow_schema(object: &mut Value) {
    object.section("spec").default_empty("matchingPrecedence", 1000);
}

/// A PriorityLevelConfiguration.
pub fn priority_level(object: &mut Value) {
    let spec = object.section("spec");
    if let Some(exempt) = spec.existing("exempt") {
        exempt.default("nominalConcurrencyShares", 0);
        exempt.default("lendablePercent", 0);
    }
    let Some(limited) = spec.existing("limited") else { return };
    limited.default("nominalConcurrencyShares", 30);
    limited.default("lendablePercent", 0);
    if let Some(queuing) = limited.existing("limitResponse").and_then(|response| response.existing("queuing"))
    {
        queuing.default_empty("handSize", 8);
        queuing.default_empty("queues", 64);
        queuing.default_empty("queueLengthLimit", 50);
    }
}
