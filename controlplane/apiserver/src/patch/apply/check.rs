//! Whether an applied object fits its type: declared fields, scalar kinds, list keys, no duplicates. As upstream this knows no
//! more of a scalar than a schema says: the result of an apply is read by its type as well.

use super::super::types::{Scalar, Shape, Type};
use super::fields::item_element;
use super::set::readable;
use coracle_proto::schema::ListKind;
use serde_json::Value;
use std::collections::HashSet;

/// Every misfit, as `path: what is wrong`, in the wording that apply users know.
pub fn misfits(value: &Value, ty: Type) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, ty, "", &mut found);
    found
}

fn walk(value: &Value, ty: Type, path: &str, found: &mut Vec<String>) {
    let mut bad = |what: String| found.push(if path.is_empty() { what } else { format!("{path}: {what}") });
    match (ty.shape(), value) {
        (_, Value::Null) | (Shape::Opaque | Shape::Deduced, _) => {}
        (Shape::Scalar(kind), _) => match (kind, value) {
            (_, Value::Object(_) | Value::Array(_)) => bad(format!("expected {}, got {value}", name(kind))),
            (Scalar::Any, _)
            | (Scalar::String, Value::String(_))
            | (Scalar::Number, Value::Number(_))
            | (Scalar::Boolean, Value::Bool(_)) => {}
            (Scalar::Number, _) => bad(format!("expected numeric (int or float), got {}", go_type(value))),
            (Scalar::String, _) => {
                bad(format!("expected string, got &value.valueUnstructured{{Value:{value}}}"))
            }
            (Scalar::Boolean, _) => bad(format!("expected boolean, got {value}")),
        },
        (Shape::Struct { open, .. }, Value::Object(map)) => {
            for (key, child) in map {
                let path = format!("{path}.{key}");
                match ty.field(key) {
                    Some(_) => walk(child, ty.child(key), &path, found),
                    None if open => {}
                    None => found.push(format!("{path}: field not declared in schema")),
                }
            }
        }
        (Shape::Map { of, .. }, Value::Object(map)) => {
            for (key, child) in map {
                walk(child, of, &format!("{path}.{key}"), found);
            }
        }
        (Shape::List { of, rule }, Value::Array(items)) => {
            let mut seen = HashSet::new();
            for (i, item) in items.iter().enumerate() {
                if *rule == ListKind::Atomic {
                    walk(item, of, &format!("{path}[{i}]"), found);
                    continue;
                }
                match item_element(item, of, rule) {
                    Err(why) => found.push(format!("{path}: element {i}: {why}")),
                    Ok(element) => {
                        let name = readable(&element);
                        if seen.insert(element) {
                            walk(item, of, &format!("{path}{name}"), found);
                        } else {
                            found.push(format!("{path}: duplicate entries for key {name}"));
                        }
                    }
                }
            }
        }
        (Shape::List { .. }, _) => bad(format!("expected list, got {value}")),
        (Shape::Struct { .. } | Shape::Map { .. }, _) => bad(format!("expected map, got {value}")),
    }
}

fn name(kind: Scalar) -> &'static str {
    match kind {
        Scalar::String => "string",
        Scalar::Number => "numeric (int or float)",
        Scalar::Boolean => "boolean",
        Scalar::Any => "any scalar",
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        _ => "value",
    }
}
