//! Merges an applied object into the live one: nothing is removed, leaves of the applied object win.

use super::super::types::{Shape, Type};
use super::fields::item_element;
use coracle_proto::schema::ListKind;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet, VecDeque};

/// Lays `over` on `base`. Both fit the type.
pub fn overlay(base: &Value, over: &Value, ty: Type) -> Value {
    match (ty.shape(), base, over) {
        (
            Shape::Struct { atomic: false, .. } | Shape::Map { atomic: false, .. } | Shape::Deduced,
            Value::Object(a),
            Value::Object(b),
        ) if !b.is_empty() => overlay_map(a, b, ty),
        (
            Shape::Struct { atomic: false, .. } | Shape::Map { atomic: false, .. },
            Value::Object(a),
            Value::Object(_) | Value::Null,
        ) if !a.is_empty() => base.clone(),
        (
            Shape::List { of, rule: rule @ (ListKind::Set | ListKind::Map(_)) },
            Value::Array(a),
            Value::Array(b),
        ) if !b.is_empty() => Value::Array(overlay_list(a, b, of, rule)),
        (
            Shape::List { rule: ListKind::Set | ListKind::Map(_), .. },
            Value::Array(a),
            Value::Array(_) | Value::Null,
        ) if !a.is_empty() => base.clone(),
        _ => over.clone(),
    }
}

fn overlay_map(base: &Map<String, Value>, over: &Map<String, Value>, ty: Type) -> Value {
    let mut out = base.clone();
    for (key, value) in over {
        match out.get_mut(key) {
            Some(slot) => *slot = overlay(slot, value, ty.child(key)),
            None => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
}

/// Shared items take the order of `over`; items only in `base` stay near their neighbours.
fn overlay_list(base: &[Value], over: &[Value], of: Type, rule: &ListKind) -> Vec<Value> {
    let named = |items: &[Value]| -> Vec<String> {
        items
            .iter()
            .enumerate()
            .map(|(i, v)| item_element(v, of, rule).unwrap_or_else(|_| format!("?{i}")))
            .collect()
    };
    let (left, right) = (named(base), named(over));
    let mut in_left: HashMap<&str, Option<&Value>> = HashMap::with_capacity(left.len());
    for (element, item) in left.iter().zip(base) {
        // Items that share a key are not merged into: the applied one takes their place.
        in_left.entry(element).and_modify(|seen| *seen = None).or_insert(Some(item));
    }
    let in_right: HashSet<&str> = right.iter().map(String::as_str).collect();
    let mut shared: VecDeque<&str> =
        right.iter().map(String::as_str).filter(|e| in_left.contains_key(e)).collect();
    let mut next = shared.pop_front();
    let mut placed: HashSet<&str> = HashSet::new();
    let mut out = Vec::with_capacity(base.len().max(over.len()));
    let (mut l, mut r) = (0, 0);
    let merged = |element: &str, item: &Value| match in_left.get(element) {
        Some(Some(before)) => overlay(before, item, of),
        _ => item.clone(),
    };
    while l < left.len() || r < right.len() {
        if l < left.len() {
            let element = left[l].as_str();
            if !in_right.contains(element) {
                out.push(base[l].clone());
                l += 1;
                continue;
            }
            if placed.contains(element) || (r < right.len() && next != Some(element)) {
                // Already placed, or shared but not yet its turn: it comes where the applied list has it.
                l += 1;
                continue;
            }
        }
        if r < right.len() {
            let element = right[r].as_str();
            out.push(merged(element, &over[r]));
            placed.insert(element);
            r += 1;
            if next == Some(element) {
                next = shared.pop_front();
            }
        }
    }
    out
}
