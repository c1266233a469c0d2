//! Defaults of flow schemas, priority levels and device claims.

use crate::tree::{Grow, Tree};
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

/// A ResourceClaim.
pub fn resource_claim(object: &mut Value) {
    claim_spec(object.section("spec"));
}

/// A ResourceClaimTemplate.
pub fn resource_claim_template(object: &mut Value) {
    claim_spec(object.section("spec").section("spec"));
}

fn claim_spec(spec: &mut Value) {
    let Some(devices) = spec.existing("devices") else { return };
    devices.each("requests", |request| {
        if let Some(exactly) = request.existing("exactly") {
            device_request(exactly);
        }
        request.each("firstAvailable", device_request);
    });
}

fn device_request(request: &mut Value) {
    request.default("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.default_empty("count", 1);
    }
}
