//! Defaults of device claims, their templates, and slices of devices.

use coracle_fields::resource::v1::{
    ExactDeviceRequest, ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate, ResourceSlice,
};
use coracle_fields::{Edit, Schema};
use coracle_proto::time;
use serde_json::Value;

/// A ResourceClaim.
pub fn resource_claim(object: &mut Value) {
    claim_spec(ResourceClaim::edit(object).spec().section());
}

/// A ResourceClaimTemplate.
pub fn resource_claim_template(object: &mut Value) {
    claim_spec(ResourceClaimTemplate::edit(object).spec().spec().section());
}

/// A ResourceSlice: taints count from when they are written, unless they say otherwise.
pub fn resource_slice(object: &mut Value) {
    ResourceSlice::edit(object).spec().section().devices().each_object(|mut device| {
        device.taints().each_object(|mut taint| taint.time_added().default(time::now()));
    });
}

fn claim_spec(mut spec: Edit<'_, ResourceClaimSpec>) {
    spec.devices().requests().each_object(|mut request| {
        if let Some(exactly) = request.exactly().existing() {
            device_request(exactly);
        }
        // A subrequest has the same two fields.
        request.first_available().each_object(|request| device_request(request.like()));
    });
}

fn device_request(mut request: Edit<'_, ExactDeviceRequest>) {
    request.allocation_mode().default("ExactCount");
    if request.view().allocation_mode() == "ExactCount" {
        request.count().default_empty(1);
    }
}
