//! Defaults of device claims and their templates.

use crate::tree::{Grow, Tree};
use serde_json::Value;

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
