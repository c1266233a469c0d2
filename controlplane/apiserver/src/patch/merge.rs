//! RFC 7386 JSON merge patch.

use serde_json::{Map, Value};

/// Applies a merge patch: objects merge key by key, null removes, everything else replaces.
pub fn apply(document: &Value, patch: &Value) -> Value {
    let mut document = document.clone();
    merge_into(&mut document, patch);
    document
}

fn merge_into(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else if let Some(old) = target.get_mut(key) {
            merge_into(old, value);
        } else {
            // Nulls inside a new subtree are removals too: merge it into nothing.
            let mut fresh = Value::Null;
            merge_into(&mut fresh, value);
            target.insert(key.clone(), fresh);
        }
    }
}

/// The merge patch that turns `from` into `to`; exact when `to` holds no nulls.
pub fn diff(from: &Value, to: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (from, to) else { return to.clone() };
    let mut patch = Map::new();
    for key in old.keys().filter(|k| !new.contains_key(*k)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(before) if before == value => {}
            Some(before) => {
                patch.insert(key.clone(), diff(before, value));
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::super::test_values::{document, without_nulls};
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_table_of_the_rfc() {
        let table = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (document, patch, expected) in table {
            assert_eq!(apply(&document, &patch), expected, "{document} + {patch}");
        }
    }

    proptest! {
        #[test]
        fn a_patch_applied_twice_changes_nothing_more(document in document(), patch in document()) {
            let once = apply(&document, &patch);
            prop_assert_eq!(apply(&once, &patch), once);
        }

        #[test]
        fn a_diff_round_trips(from in document().prop_map(without_nulls), to in document().prop_map(without_nulls)) {
            prop_assert_eq!(apply(&from, &diff(&from, &to)), to);
        }
    }
}
