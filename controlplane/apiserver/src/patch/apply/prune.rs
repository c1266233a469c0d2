//! Removes a set of fields from an object.

use super::super::types::{Shape, Type};
use super::fields::{field_element, item_element};
use super::set::{Node, Set};
use coracle_proto::schema::ListKind;
use serde_json::{Map, Value};

/// The object without the members of the set; containers that become empty go too.
pub fn remove(value: &Value, set: &Set, ty: Type) -> Value {
    take(value, set, ty).unwrap_or(Value::Null)
}

fn take(value: &Value, set: &Set, ty: Type) -> Option<Value> {
    match (ty.shape(), value) {
        (
            Shape::Struct { atomic: false, .. } | Shape::Map { atomic: false, .. } | Shape::Deduced,
            Value::Object(map),
        ) => {
            let mut out = Map::with_capacity(map.len());
            for (key, child) in map {
                match set.get(&field_element(key)) {
                    None => {
                        out.insert(key.clone(), child.clone());
                    }
                    Some(node) if node.member => {}
                    Some(node) => {
                        if let Some(rest) = take(child, &node.below, ty.child(key)) {
                            out.insert(key.clone(), rest);
                        }
                    }
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        (Shape::List { of, rule: rule @ (ListKind::Set | ListKind::Map(_)) }, Value::Array(items)) => {
            let kept: Vec<Value> = items
                .iter()
                .filter_map(|item| match item_element(item, of, rule).ok().and_then(|e| set.get(&e)) {
                    None => Some(item.clone()),
                    Some(node) if node.member => None,
                    Some(node) => take(item, &node.below, of),
                })
                .collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ if set.is_empty() => Some(value.clone()),
        _ => None,
    }
}

/// The set with every declared field on the way to a member as a member too, so that removing is not stopped by an
/// owner of the container alone.
#[must_use]
pub fn with_named_fields(set: &Set, ty: Type) -> Set {
    let entries = set.iter().map(|(element, node)| {
        let (below, named) = match element.strip_prefix("f:") {
            Some(name) => (ty.child(name), ty.field(name).is_some()),
            None => (ty.item(), false),
        };
        let member = node.member || (named && !node.below.is_empty());
        (element.into(), Node { member, below: with_named_fields(&node.below, below) })
    });
    Set::collect(entries.collect())
}
