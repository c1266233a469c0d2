//! The difference of two statuses as a strategic merge patch: only what changed, guarded by the uid. Pure.

use coracle_fields::core::v1;
use coracle_fields::{Schema as _, make};
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Map, Value, json};

use super::conditions::{OWNED, PASSING};

/// The patch that makes `old` into `new`; `None` when there is nothing to say.
pub fn status_patch(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    let (old, new) = (object(old), object(new));
    let mut changed = Map::new();
    for (field, value) in &new {
        let before = old.get(field);
        if before == Some(value) {
            continue;
        }
        let value = match field.as_str() {
            "conditions" => match keyed(before, value) {
                Value::Array(list) if list.is_empty() => continue,
                list => list,
            },
            // Merged by address: without the marker an old address would stay.
            "podIPs" | "hostIPs" => replaced(before, value),
            _ => value.clone(),
        };
        changed.insert(field.clone(), value);
    }
    for field in old.keys().filter(|field| !new.contains_key(*field)) {
        changed.insert(field.clone(), Value::Null);
    }
    (!changed.is_empty()).then(|| {
        let mut patch = make!(part v1::Pod { metadata: { uid } });
        patch.edit().status().put(Value::Object(changed));
        patch.into_value()
    })
}

/// What the control plane writes, and a node may not.
const OF_OTHERS: [&str; 2] = ["resourceClaimStatuses", "extendedResourceClaimStatus"];

fn object(status: &PodStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(mut map)) => {
            map.retain(|field, _| !OF_OTHERS.contains(&field.as_str()));
            map
        }
        _ => Map::new(),
    }
}

/// Conditions merge by type: the ones that changed, with fields that went away set to null, and the ones that went.
fn keyed(before: Option<&Value>, now: &Value) -> Value {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let before = list(before);
    let mut out = Vec::new();
    for condition in list(Some(now)) {
        let kind = v1::PodCondition::of(&condition).type_().text();
        let old = before.iter().find(|old| v1::PodCondition::of(old).type_() == kind);
        // Conditions of other owners are shown, never written.
        if old == Some(&condition) || !OWNED.contains(&kind) {
            continue;
        }
        let mut condition = condition;
        if let (Some(Value::Object(old)), Value::Object(new)) = (old, &mut condition) {
            for field in old.keys() {
                new.entry(field.clone()).or_insert(Value::Null);
            }
        }
        out.push(condition);
    }
    let now = list(Some(now));
    for kind in PASSING {
        let is = |condition: &Value| v1::PodCondition::of(condition).type_() == kind;
        if before.iter().any(is) && !now.iter().any(is) {
            out.push(json!({"type": kind, "$patch": "delete"}));
        }
    }
    Value::Array(out)
}

fn replaced(before: Option<&Value>, now: &Value) -> Value {
    let mut list = now.as_array().cloned().unwrap_or_default();
    if before.and_then(Value::as_array).is_some_and(|before| !before.is_empty()) {
        list.push(json!({"$patch": "replace"}));
    }
    Value::Array(list)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_what_changed() {
        let old = status(
            json!({"phase": "Pending", "qosClass": "BestEffort", "message": "m", "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "False", "reason": "r"}, {"type": "PodScheduled", "status": "True"}]}),
        );
        let new = status(
            json!({"phase": "Running", "qosClass": "BestEffort", "podIPs": [{"ip": "10.0.0.2"}],
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]}),
        );
        assert_eq!(
            status_patch("u", &old, &new).unwrap(),
            json!({"metadata": {"uid": "u"}, "status": {"phase": "Running", "message": null,
                "podIPs": [{"ip": "10.0.0.2"}, {"$patch": "replace"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": null}]}})
        );
        assert_eq!(status_patch("u", &new, &new), None);
    }

    #[test]
    fn a_resize_that_is_over_is_taken_back_and_no_other_condition() {
        let old = status(json!({"conditions": [{"type": "PodResizePending", "status": "True"},
            {"type": "DisruptionTarget", "status": "True"}, {"type": "x/lb", "status": "True"}]}));
        let new = status(json!({"conditions": []}));
        assert_eq!(
            status_patch("u", &old, &new).unwrap()["status"],
            json!({"conditions": [{"type": "PodResizePending", "$patch": "delete"}]})
        );
    }

    #[test]
    fn names_of_generated_claims_are_left_to_the_control_plane() {
        let with: PodStatus = serde_json::from_value(
            json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "b"}]}),
        )
        .unwrap();
        assert_eq!(status_patch("u", &with, &PodStatus::default()), None);
        assert_eq!(status_patch("u", &PodStatus::default(), &with), None);
    }
}
