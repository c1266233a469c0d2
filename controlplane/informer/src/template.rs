//! Pod templates: equality that does not see defaults written or left out, and the hash that names revisions.

use coracle_fields::Made;
use coracle_fields::core::v1::PodTemplateSpec;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// The letters of hashes in names: no vowels, so that no words come out.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Whether two trees mean the same: an absent field, null, an empty list and an empty map are alike.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let covered = |x: &Map<String, Value>, y: &Map<String, Value>| {
                x.iter().all(|(k, v)| same(v, y.get(k).unwrap_or(&Value::Null)))
            };
            covered(x, y) && y.iter().all(|(k, v)| x.contains_key(k) || empty(v))
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        _ => a == b || (empty(a) && empty(b)),
    }
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(empty),
        _ => false,
    }
}

/// Whether two pod templates are the same but for a label that a controller adds.
pub fn same_but_label(a: &Value, b: &Value, label: &str) -> bool {
    let strip = |template: &Value| {
        let mut template = Made::<PodTemplateSpec>::new(template.clone());
        template.edit().metadata().labels().remove(label);
        template.into_value()
    };
    same(&strip(a), &strip(b))
}

/// A short name of a template; equal templates have equal names. `collisions` makes another when the name is taken.
pub fn hash(template: &Value, collisions: Option<i64>) -> String {
    let mut text = String::new();
    canonical(template, &mut text);
    if let Some(count) = collisions {
        let _ = write!(text, "{count}");
    }
    let sum =
        text.bytes().fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    encode(&sum.to_string())
}

/// Digits and letters spelt with letters that make no words.
pub fn encode(text: &str) -> String {
    text.bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

/// JSON with sorted keys and without what is empty, so that the hash is the same wherever the tree came from.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().filter(|k| !empty(&map[*k])).collect();
            keys.sort();
            out.push('{');
            for key in keys {
                let _ = write!(out, "{key:?}:");
                canonical(&map[key], out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for item in list {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_empty_makes_no_difference() {
        for (a, b, alike) in [
            (json!({"a": 1, "b": null}), json!({"a": 1}), true),
            (json!({"a": 1}), json!({"a": 1, "b": []}), true),
            (json!({"a": 1, "m": {"x": {}}}), json!({"a": 1}), true),
            (json!({"a": 1}), json!({"a": 2}), false),
            (json!({"a": [1]}), json!({"a": [1, 2]}), false),
            (json!({"a": ""}), json!({}), false),
        ] {
            assert_eq!(same(&a, &b), alike, "{a} {b}");
            assert_eq!(same(&b, &a), alike, "{b} {a}");
            if alike {
                assert_eq!(hash(&a, None), hash(&b, None));
            }
        }
        assert_ne!(hash(&json!({"a": 1}), None), hash(&json!({"a": 1}), Some(1)));
    }

    #[test]
    fn the_added_label_is_not_seen() {
        let plain = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"x": 1}});
        let hashed = json!({"metadata": {"labels": {"app": "web", "h": "1"}}, "spec": {"x": 1}});
        assert!(same_but_label(&plain, &hashed, "h"));
        assert!(!same_but_label(&plain, &hashed, "other"));
    }
}
