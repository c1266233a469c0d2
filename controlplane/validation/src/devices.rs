//! Field rules of device classes, claims, their templates, and slices of devices.

use super::compiled::{self, EXPRESSION};
use super::field_errors::unique;
use super::field_ref::{Field, FieldRef, walk_as};
use super::field_rules::TextRules as _;
use super::names::{self, driver_name};
use super::pods::scheduling::node_selector;
use super::quantities::quantity;
use super::{device_facts, device_rules};
use coracle_fields::resource::v1::{
    AllocationResult, Device, DeviceClass, DeviceRequest, DeviceSelector, ExactDeviceRequest,
    OpaqueDeviceConfiguration, ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate, ResourceSlice,
    ResourceSliceSpec,
};
use coracle_fields::{List, Schema, Text, View};
use coracle_proto::names::{dns1123_label, dns1123_subdomain, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;

const MANY: usize = 32;
const CONSUMERS: usize = 256;
const DEVICES: usize = 128;
/// With taints or shared counters.
const LARGE_DEVICES: usize = 64;
const BAD_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// Whether a list is short enough for its items to be looked at.
fn few(list: &FieldRef<'_>, max: usize) -> bool {
    let fits = list.len() <= max;
    if !fits {
        list.too_many(max);
    }
    fits
}

fn selectors(list: &Field<'_, List<DeviceSelector>>) {
    if !few(list, MANY) {
        return;
    }
    for selector in list.items() {
        let cel = selector.cel();
        if !cel.is_set() {
            cel.required("");
            continue;
        }
        let expression = cel.expression();
        if expression.text().len() > EXPRESSION {
            expression.too_long(EXPRESSION);
        } else {
            compiled::selector(&expression);
        }
    }
}

fn configuration(opaque: &Field<'_, OpaqueDeviceConfiguration>) {
    if !opaque.is_set() {
        return opaque.required("");
    }
    driver_name(&opaque.driver());
    let parameters = opaque.parameters();
    match parameters.value {
        Value::Null => parameters.required(""),
        Value::Object(_) if parameters.value.to_string().len() > EXPRESSION => {
            parameters.too_long(EXPRESSION)
        }
        Value::Object(_) => {}
        _ => parameters.invalid_as("<value omitted>", "must be a valid JSON object"),
    }
}

/// The resource that devices of a class are behind.
fn extended_resource(name: &Field<'_, Text>) {
    let text = name.text();
    let is_native = !text.contains('/') || text.contains("kubernetes.io/");
    let is_extended = !is_native
        && !text.starts_with("requests.")
        && qualified_name(&format!("requests.{text}")).is_empty();
    if name.is_set() && !is_extended {
        name.invalid("must be a valid extended resource name");
    }
}

/// A DeviceClass.
pub fn class(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<DeviceClass>(object, errors, |root| {
        selectors(&root.spec().selectors());
        extended_resource(&root.spec().extended_resource_name());
        let config = root.spec().config();
        if few(&config, MANY) {
            config.items().for_each(|one| configuration(&one.opaque()));
        }
    });
}

fn device_request(request: &Field<'_, ExactDeviceRequest>) {
    let class = request.device_class_name();
    if class.has_text("") {
        class.all_good(names::subdomain(class.text(), false));
    }
    selectors(&request.selectors());
    compiled::selectors(&request.selectors());
    device_rules::tolerations(&request.tolerations());
    // Upstream takes any name.
    for (_, amount) in request.capacity().requests().entries() {
        quantity(&amount);
    }
    let (mode, count) = (request.allocation_mode(), request.count());
    let amount = count.or(0);
    match mode.text() {
        "All" if amount != 0 => count.invalid("must not be specified when allocationMode is 'All'"),
        "ExactCount" if amount <= 0 => count.invalid_as(amount, "must be greater than zero"),
        "All" | "ExactCount" => {}
        _ => mode.unsupported(&["All", "ExactCount"]),
    }
}

fn request(request: &Field<'_, DeviceRequest>) {
    request.name().follows(dns1123_label);
    let (exactly, first) = (request.exactly(), request.first_available());
    match (exactly.is_set(), !first.is_empty()) {
        (false, false) => request.required("exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => request.invalid_as(
            Value::Null,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (true, false) => device_request(&exactly),
        (false, true) => {
            if few(&first, 8) {
                for one in first.items() {
                    one.name().follows(dns1123_label);
                    // A subrequest has the same fields.
                    device_request(&one.as_type());
                }
                unique(first.items().map(|one| one.name()));
            }
        }
    }
}

/// What configuration and results may refer to: requests and their alternatives.
fn request_names(spec: View<'_, ResourceClaimSpec>) -> HashSet<String> {
    let mut names = HashSet::new();
    for request in spec.devices().requests().items() {
        let name = request.name().text();
        names.insert(name.to_owned());
        let alternatives = request.first_available().items();
        names.extend(alternatives.map(|one| format!("{name}/{}", one.name().text())));
    }
    names
}

fn references(list: &Field<'_, List<Text>>, known: &HashSet<String>) {
    let mut seen = HashSet::new();
    if few(list, MANY) {
        for one in list.items() {
            if !known.contains(one.text()) {
                one.invalid(BAD_REQUEST);
            }
            if !seen.insert(one.text()) {
                one.duplicate();
            }
        }
    }
}

fn fully_qualified(name: &Field<'_, Text>) {
    match name.text().split_once('/') {
        None => name.invalid("a fully qualified name must be a domain and a name separated by a slash"),
        Some(("", _)) => name.invalid_as("", "the domain must not be empty"),
        Some((_, "")) => name.invalid_as("", "the name must not be empty"),
        Some((domain, _)) => {
            for message in dns1123_subdomain(domain) {
                name.invalid(message);
            }
        }
    }
}

fn claim_spec(spec: &Field<'_, ResourceClaimSpec>) {
    let devices = spec.devices();
    let known = request_names(spec.view());
    let requests = devices.requests();
    if few(&requests, MANY) {
        requests.items().for_each(|one| request(&one));
        unique(requests.items().map(|one| one.name()));
    }
    let constraints = devices.constraints();
    if few(&constraints, MANY) {
        for constraint in constraints.items() {
            references(&constraint.requests(), &known);
            let attribute = constraint.match_attribute();
            let distinct = constraint.distinct_attribute();
            if attribute.is_set() {
                fully_qualified(&attribute);
            } else if distinct.is_set() {
                fully_qualified(&distinct);
            } else {
                attribute.required("");
            }
        }
    }
    let config = devices.config();
    if few(&config, MANY) {
        for one in config.items() {
            references(&one.requests(), &known);
            configuration(&one.opaque());
        }
    }
}

/// A ResourceClaim that is new; later its spec never changes.
pub fn claim(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ResourceClaim>(object, errors, |root| claim_spec(&root.spec()));
}

/// The spec of a claim or of a template never changes.
pub fn spec_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = ResourceClaim::of(old);
    walk_as::<ResourceClaim>(new, errors, |root| {
        root.spec().immutable(old.spec());
    });
}

/// A change of a claim's status: who uses it, and what was found for it.
pub fn claim_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = ResourceClaim::of(old);
    walk_as::<ResourceClaim>(new, errors, |root| {
        let status = root.status();
        let (users, allocation) = (status.reserved_for(), status.allocation());
        if few(&users, CONSUMERS) {
            for user in users.items() {
                user.resource().has_text("");
                user.name().has_text("");
                user.uid().has_text("");
            }
            unique(users.items().map(|user| user.uid()));
        }
        if !users.is_empty() && !allocation.is_set() {
            users.forbidden("may not be specified when `allocated` is not set");
        }
        let before = old.status().reserved_for();
        let added = users.view().items().any(|user| !before.items().any(|was| was.same_as(user)));
        if !users.is_empty() && root.view().metadata().deletion_timestamp().is_set() && added {
            users.forbidden(
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
            );
        }
        if old.status().allocation().is_set() && allocation.is_set() {
            allocation.immutable(old.status().allocation());
        } else if allocation.is_set() {
            allocated(&allocation, &request_names(root.view().spec()));
        }
    });
}

fn allocated(allocation: &Field<'_, AllocationResult>, known: &HashSet<String>) {
    let results = allocation.devices().results();
    if few(&results, MANY) {
        for result in results.items() {
            let request = result.request();
            if !known.contains(request.text()) {
                request.invalid(BAD_REQUEST);
            }
            driver_name(&result.driver());
            pool_name(&result.pool());
            result.device().follows(dns1123_label);
        }
    }
    if allocation.node_selector().is_set() {
        node_selector(&allocation.node_selector());
    }
}

/// A ResourceClaimTemplate that is new.
pub fn template(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ResourceClaimTemplate>(object, errors, |root| claim_spec(&root.spec().spec()));
}

fn pool_name(name: &Field<'_, Text>) {
    if name.has_text("") {
        if name.text().len() > 253 {
            name.too_long(253);
        }
        for part in name.text().split('/') {
            name.all_good(dns1123_subdomain(part));
        }
    }
}

/// A ResourceSlice.
pub fn slice(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ResourceSlice>(object, errors, |root| {
        let spec = root.spec();
        driver_name(&spec.driver());
        pool_name(&spec.pool().name());
        let count = spec.pool().resource_slice_count();
        if count.or(0) <= 0 {
            count.invalid_as(count.or(0), "must be greater than zero");
        }
        if spec.pool().generation().int().is_some_and(|generation| generation < 0) {
            spec.pool().generation().invalid("must be greater than or equal to zero");
        }
        where_from(&spec);
        let devices = spec.devices();
        if !devices.is_empty() && !spec.shared_counters().is_empty() {
            spec.invalid_as("", "only one of `sharedCounters` or `devices` is allowed");
        }
        let large =
            |device: View<'_, Device>| !device.taints().is_empty() || !device.consumes_counters().is_empty();
        if few(&devices, if devices.view().items().any(large) { LARGE_DEVICES } else { DEVICES }) {
            for device in devices.items() {
                device.name().follows(dns1123_label);
                device_rules::taints(&device.taints());
                device_rules::binding(&device.binding_conditions(), &device.binding_failure_conditions());
                device_rules::capacity(&device);
                let facts = device.attributes().len() + device.capacity().len();
                if facts > MANY {
                    let why = "the total number of attributes and capacities must not exceed 32";
                    device.invalid_as(facts, why);
                } else {
                    device_facts::facts(&device);
                }
                device_facts::consumed(&device.consumes_counters());
            }
            unique(devices.items().map(|device| device.name()));
        }
        device_facts::sets(&spec.shared_counters());
    });
}

fn where_from(spec: &Field<'_, ResourceSliceSpec>) {
    let mut set = Vec::new();
    let node = spec.node_name();
    if node.is_set() {
        if node.text().is_empty() {
            node.invalid("must be either unset or set to a non-empty string");
        } else {
            set.push("`nodeName`");
            node.follows(dns1123_subdomain);
        }
    }
    let selector = spec.node_selector();
    if selector.is_set() {
        set.push("`nodeSelector`");
        node_selector(&selector);
        if selector.node_selector_terms().len() != 1 {
            selector.node_selector_terms().invalid("must have exactly one node selector term");
        }
    }
    for (field, quoted) in
        [(spec.all_nodes(), "`allNodes`"), (spec.per_device_node_selection(), "`perDeviceNodeSelection`")]
    {
        match field.get() {
            Some(true) => set.push(quoted),
            Some(false) => field.invalid("must be either unset or set to true"),
            None => {}
        }
    }
    let rule = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match set.len() {
        0 => spec.required(rule),
        1 => {}
        _ => {
            spec.invalid_as(format!("{{{}}}", set.join(", ")), format!("{rule}, but multiple fields are set"))
        }
    }
}

/// A slice stays with its driver, its pool and its node.
pub fn slice_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = ResourceSlice::of(old);
    walk_as::<ResourceSlice>(new, errors, |root| {
        let (spec, before) = (root.spec(), old.spec());
        spec.pool().name().immutable(before.pool().name());
        spec.driver().immutable(before.driver());
        spec.node_name().immutable(before.node_name());
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{changes, errors};
    use serde_json::json;

    #[test]
    fn claims_say_what_they_want_in_one_way() {
        let claim_of = |devices: Value| json!({"spec": {"devices": devices}});
        let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
        let good = claim_of(json!({"requests": [{"name": "a", "exactly": exactly}],
            "constraints": [{"requests": ["a"], "matchAttribute": "example.com/numa"}]}));
        assert_eq!(errors(claim, &good), [""; 0]);
        let bad = claim_of(json!({
            "requests": [{"name": "a"}, {"name": "a", "exactly": {"allocationMode": "Some"}}],
            "constraints": [{"requests": ["b"], "matchAttribute": "numa"}],
            "config": [{}],
        }));
        assert_eq!(
            errors(claim, &bad),
            [
                "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
                "spec.devices.requests[1].exactly.deviceClassName: Required value",
                "spec.devices.requests[1].exactly.allocationMode: Unsupported value: \"Some\": supported values: \"All\", \"ExactCount\"",
                "spec.devices.requests[1].name: Duplicate value: \"a\"",
                &format!("spec.devices.constraints[0].requests[0]: Invalid value: \"b\": {BAD_REQUEST}"),
                "spec.devices.constraints[0].matchAttribute: Invalid value: \"numa\": a fully qualified name must be a domain and a name separated by a slash",
                "spec.devices.config[0].opaque: Required value",
            ]
        );
        assert_eq!(changes(spec_update, &bad, &good).len(), 1);
    }

    #[test]
    fn a_claim_is_reserved_only_once_it_is_allocated() {
        let user = json!({"resource": "pods", "name": "p", "uid": "1"});
        let old = json!({"spec": {"devices": {"requests": [{"name": "a"}]}}});
        let mut new = old.clone();
        new["status"] = json!({"reservedFor": [user]});
        assert_eq!(
            changes(claim_status, &new, &old),
            ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"]
        );
        let result = json!({"request": "a", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"});
        new["status"]["allocation"] = json!({"devices": {"results": [result]}});
        assert_eq!(changes(claim_status, &new, &old), [""; 0]);
    }

    #[test]
    fn slices_come_from_one_place() {
        let of = |more: Value| {
            let mut spec =
                json!({"driver": "gpu.example.com", "pool": {"name": "n1", "resourceSliceCount": 1}});
            spec.as_object_mut()
                .into_iter()
                .for_each(|s| s.extend(more.as_object().cloned().unwrap_or_default()));
            json!({"spec": spec})
        };
        assert_eq!(errors(slice, &of(json!({"nodeName": "n1"}))), [""; 0]);
        assert_eq!(errors(slice, &of(json!({}))).len(), 1);
        assert_eq!(
            errors(slice, &of(json!({"nodeName": "n1", "allNodes": true}))),
            [
                "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, \
              `perDeviceNodeSelection` is required, but multiple fields are set"
            ]
        );
        assert_eq!(
            changes(slice_update, &of(json!({"nodeName": "n2"})), &of(json!({"nodeName": "n1"}))).len(),
            1
        );
    }
}
