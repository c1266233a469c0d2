//! Field rules of parts of devices and requests: taints and tolerations, binding conditions, shared capacity.

use super::field_errors::unique;
use super::field_ref::Field;
use super::field_rules::TextRules as _;
use super::quantities::quantity;
use coracle_fields::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceTaint, DeviceToleration,
};
use coracle_fields::{List, Text};
use coracle_proto::names::{label_value, qualified_name};
use coracle_proto::quantity::Quantity;

const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const CONDITIONS: usize = 4;
const VALUES: usize = 10;
const TAINTS: usize = 16;

/// Taints of a device.
pub(super) fn taints(list: &Field<'_, List<DeviceTaint>>) {
    if list.len() > TAINTS {
        return list.too_many(TAINTS);
    }
    for taint in list.items() {
        taint.key().follows(qualified_name);
        if taint.value().is_set() {
            taint.value().follows(label_value);
        }
        taint.effect().required_one_of(&EFFECTS);
    }
}

/// Tolerations of a request.
pub(super) fn tolerations(list: &Field<'_, List<DeviceToleration>>) {
    if list.len() > TAINTS {
        return list.too_many(TAINTS);
    }
    for one in list.items() {
        let (key, value, effect) = (one.key(), one.value(), one.effect());
        if !key.text().is_empty() {
            key.follows(qualified_name);
        }
        match one.operator().text() {
            "Exists" if !value.text().is_empty() => value.invalid("must be empty for operator `Exists`"),
            "Exists" => {}
            "Equal" | "" => value.follows(label_value),
            _ => one.operator().unsupported(&["Equal", "Exists"]),
        }
        if !effect.text().is_empty() {
            effect.one_of(&EFFECTS);
        }
    }
}

/// Conditions that a driver sets before a pod is bound, and those with which it says that it cannot.
pub(super) fn binding(conditions: &Field<'_, List<Text>>, failures: &Field<'_, List<Text>>) {
    for list in [conditions, failures] {
        if list.len() > CONDITIONS {
            list.too_many(CONDITIONS);
        }
        list.items().take(CONDITIONS).for_each(|one| one.follows(qualified_name));
        unique(list.items());
    }
    for failure in failures.items() {
        if conditions.items().any(|one| one.text() == failure.text()) {
            failure.invalid("bindingFailureConditions must not overlap with bindingConditions");
        }
    }
    match (conditions.is_empty(), failures.is_empty()) {
        (true, false) => conditions.invalid("bindingConditions are required to use bindingFailureConditions"),
        (false, true) => failures.invalid("bindingFailureConditions are required to use bindingConditions"),
        _ => {}
    }
}

/// Capacity of a device, and how claims share it.
pub(super) fn capacity(device: &Field<'_, Device>) {
    let is_shared = device.allow_multiple_allocations().get() == Some(true);
    for (_, capacity) in device.capacity().entries() {
        let Some(most) = quantity(&capacity.value()) else { continue };
        let policy = capacity.request_policy();
        match (policy.is_set(), is_shared) {
            (false, _) => {}
            (true, false) => policy.forbidden("allowMultipleAllocations must be true"),
            (true, true) => request_policy(&policy, &most),
        }
    }
}

fn request_policy(policy: &Field<'_, CapacityRequestPolicy>, most: &Quantity) {
    let (values, range, default) = (policy.valid_values(), policy.valid_range(), policy.default_());
    match (values.is_empty(), range.is_set()) {
        (false, true) => policy.forbidden(
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time",
        ),
        (false, false) if !default.is_set() => default.required("required when validValues is defined"),
        (true, true) if !default.is_set() => default.required("required when validRange is defined"),
        (false, false) => {
            if values.len() > VALUES {
                return values.too_many(VALUES);
            }
            let default = quantity(&default);
            let mut before: Option<Quantity> = None;
            let mut has_default = false;
            for place in values.items() {
                let Some(value) = quantity(&place) else { continue };
                if before.as_ref().is_some_and(|before| *before > value) {
                    place.invalid("values must be sorted in ascending order");
                }
                if before.as_ref() == Some(&value) {
                    place.duplicate();
                }
                if value > *most {
                    place.invalid(format!("option is larger than capacity value: {most}"));
                }
                has_default |= default.as_ref() == Some(&value);
                before = Some(value);
            }
            if let Some(default) = default.filter(|_| !has_default) {
                let why = "default value is not valid according to the requestPolicy";
                values.invalid_as(default.to_string(), why);
            }
        }
        (true, true) => {
            if let Some(default) = quantity(&default) {
                valid_range(&range, &default, most);
            }
        }
        (true, false) => {}
    }
}

fn valid_range(range: &Field<'_, CapacityRequestPolicyRange>, default: &Quantity, most: &Quantity) {
    let (min_at, max_at, step_at) = (range.min(), range.max(), range.step());
    if !min_at.is_set() {
        return min_at.required("required when validRange is defined");
    }
    let Some(min) = quantity(&min_at) else { return };
    if min > *most {
        min_at.invalid(format!("min is larger than capacity value: {most}"));
    }
    if *default < min {
        min_at.invalid_as(default.to_string(), format!("default is less than min: {min}"));
    }
    let max = quantity(&max_at);
    if let Some(max) = &max {
        if min > *max {
            max_at.invalid_as(min.to_string(), format!("min is larger than max: {max}"));
        }
        if max > most {
            max_at.invalid(format!("max is larger than capacity value: {most}"));
        }
        if default > max {
            max_at.invalid_as(default.to_string(), format!("default is more than max: {max}"));
        }
    }
    let Some(step) = quantity(&step_at) else { return };
    if step.value() <= 0 {
        return step_at.invalid("must be greater than zero");
    }
    let mut first = min.clone();
    first.add(&step);
    if first > *most {
        step_at.invalid(format!("one step {first} is larger than capacity value: {most}"));
    }
    for value in [Some(default), max.as_ref()].into_iter().flatten() {
        if value.value().saturating_sub(min.value()) % step.value() != 0 {
            let why = format!("value is not a multiple of a given step ({step}) from ({min})");
            step_at.invalid_as(value.to_string(), why);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::devices::{claim, slice};
    use crate::testing::errors;
    use serde_json::{Value, json};

    fn device(more: Value) -> Vec<String> {
        let mut device = json!({"name": "d"});
        for (key, value) in more.as_object().into_iter().flatten() {
            device[key] = value.clone();
        }
        let spec = json!({"driver": "gpu.example.com", "nodeName": "n1", "devices": [device],
            "pool": {"name": "n1", "resourceSliceCount": 1}});
        errors(slice, &json!({"spec": spec}))
    }

    #[test]
    fn taints_and_tolerations() {
        assert_eq!(device(json!({"taints": [{"key": "a.example/b", "effect": "NoExecute"}]})), [""; 0]);
        assert_eq!(
            device(json!({"taints": [{"key": "a", "effect": "Never"}, {"key": "b"}]})),
            [
                "spec.devices[0].taints[0].effect: Unsupported value: \"Never\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
                "spec.devices[0].taints[1].effect: Required value",
            ]
        );
        let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
            "tolerations": [{"operator": "Exists", "value": "x"}, {"key": "a", "operator": "Near"}]});
        let object = json!({"spec": {"devices": {"requests": [{"name": "a", "exactly": exactly}]}}});
        assert_eq!(
            errors(claim, &object),
            [
                "spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: \"x\": must be empty for operator `Exists`",
                "spec.devices.requests[0].exactly.tolerations[1].operator: Unsupported value: \"Near\": supported values: \"Equal\", \"Exists\"",
            ]
        );
    }

    #[test]
    fn binding_conditions_come_with_failure_conditions() {
        let of = |conditions: Value, failures: Value| {
            device(json!({"bindingConditions": conditions, "bindingFailureConditions": failures}))
        };
        assert_eq!(of(json!(["ready"]), json!(["broken"])), [""; 0]);
        let first = "spec.devices[0].bindingFailureConditions";
        assert_eq!(
            of(json!(["ready"]), json!(["ready"])),
            [format!(
                "{first}[0]: Invalid value: \"ready\": bindingFailureConditions must not overlap with bindingConditions"
            )]
        );
        assert_eq!(of(json!(["ready"]), json!([])).len(), 1);
        assert_eq!(of(json!([]), json!(["broken"])).len(), 1);
        assert_eq!(of(json!(["a", "b", "c", "d", "e"]), json!(["broken"])).len(), 1);
    }

    #[test]
    fn policies_of_shared_capacity() {
        let of = |is_shared: bool, policy: Value| {
            let capacity = json!({"memory": {"value": "10Gi", "requestPolicy": policy}});
            device(json!({"allowMultipleAllocations": is_shared, "capacity": capacity}))
        };
        let at = "spec.devices[0].capacity[memory].requestPolicy";
        let range = |more: Value| {
            let mut range = json!({"min": "1Gi", "max": "9Gi", "step": "2Gi"});
            for (key, value) in more.as_object().into_iter().flatten() {
                range[key] = value.clone();
            }
            json!({"default": "1Gi", "validRange": range})
        };
        assert_eq!(of(true, range(json!({}))), [""; 0]);
        assert_eq!(of(true, json!({"default": "1Gi", "validValues": ["1Gi", "2Gi"]})), [""; 0]);
        for (is_shared, policy, want) in [
            (false, json!({"default": "1Gi"}), ": Forbidden: allowMultipleAllocations must be true"),
            (
                true,
                json!({"validValues": ["1Gi"]}),
                ".default: Required value: required when validValues is defined",
            ),
            (
                true,
                json!({"default": "1Gi", "validValues": ["1Gi", "11Gi"]}),
                ".validValues[1]: Invalid value: \"11Gi\": option is larger than capacity value: 10Gi",
            ),
            (
                true,
                json!({"default": "1Gi", "validValues": ["2Gi"]}),
                ".validValues: Invalid value: \"1Gi\": default value is not valid according to the requestPolicy",
            ),
            (
                true,
                range(json!({"step": "0"})),
                ".validRange.step: Invalid value: \"0\": must be greater than zero",
            ),
            (
                true,
                range(json!({"max": "8Gi"})),
                ".validRange.step: Invalid value: \"8Gi\": value is not a multiple of a given step (2Gi) from (1Gi)",
            ),
            (
                true,
                range(json!({"min": null})),
                ".validRange.min: Required value: required when validRange is defined",
            ),
        ] {
            assert_eq!(of(is_shared, policy), [format!("{at}{want}")]);
        }
    }
}
