//! Which fields an object has, and how items of lists are named.

use super::super::types::{Shape, Type};
use super::set::{Node, Set, key_element};
use coracle_proto::schema::ListKind;
use serde_json::Value;

/// The fields an applied object mentions: every leaf, every item of a keyed list, every key of a map.
pub fn of(value: &Value, ty: Type) -> Set {
    node(value, ty).below
}

fn node(value: &Value, ty: Type) -> Node {
    match (ty.shape(), value) {
        (Shape::List { of, rule: rule @ (ListKind::Set | ListKind::Map(_)) }, Value::Array(items)) => {
            Node { member: false, below: items_of(items, of, rule) }
        }
        (
            Shape::Struct { atomic: false, .. } | Shape::Map { atomic: false, .. } | Shape::Deduced,
            Value::Object(map),
        ) => {
            let below = map.iter().map(|(key, child)| {
                let mut node = node(child, ty.child(key));
                let bare = child.is_null() || child.as_object().is_some_and(serde_json::Map::is_empty);
                node.member |= bare || ty.field(key).is_none();
                (field_element(key), node)
            });
            Node { member: false, below: Set::collect(below.collect()) }
        }
        // Null stands for an absent list, map or struct; whoever holds the field adds it.
        (Shape::List { rule: ListKind::Set | ListKind::Map(_), .. }, Value::Null)
        | (Shape::Struct { atomic: false, .. } | Shape::Map { atomic: false, .. }, Value::Null) => {
            Node::default()
        }
        _ => Node::leaf(),
    }
}

fn items_of(items: &[Value], of: Type, rule: &ListKind) -> Set {
    let mut entries: Vec<(Box<str>, Node)> = Vec::with_capacity(items.len());
    for item in items {
        let Ok(element) = item_element(item, of, rule) else { continue };
        let mut node = node(item, of);
        node.member = true;
        entries.push((element.into(), node));
    }
    // Items with the same key are owned as one.
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    entries.dedup_by(|b, a| {
        let same = a.0 == b.0;
        if same {
            a.1 = Node::leaf();
        }
        same
    });
    Set::collect(entries)
}

/// `f:name`.
pub fn field_element(name: &str) -> Box<str> {
    let mut element = String::with_capacity(name.len() + 2);
    element.push_str("f:");
    element.push_str(name);
    element.into()
}

/// Why an item of a list has no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// Items of the list have none.
    #[error("invalid indexing of non-associative list")]
    Atomic,
    /// An object in a set.
    #[error("associative list without keys has an element that's a map type")]
    ObjectInSet,
    /// A list in a set.
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    /// Null in a set.
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
    /// Null in a keyed list.
    #[error("associative list with keys may not have a null element")]
    Null,
    /// Something else than an object in a keyed list.
    #[error("associative list with keys may not have non-map elements")]
    NotAnObject,
    /// An object without any of the key fields, which have no defaults.
    #[error(
        "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
        quoted(.0)
    )]
    NoKey(Vec<String>),
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(" ")
}

/// How an item of a set or keyed list is named; omitted key fields take their defaults.
pub fn item_element(item: &Value, of: Type, rule: &ListKind) -> Result<String, ItemError> {
    match rule {
        ListKind::Atomic => Err(ItemError::Atomic),
        ListKind::Set => match item {
            Value::Object(_) => Err(ItemError::ObjectInSet),
            Value::Array(_) => Err(ItemError::ListInSet),
            Value::Null => Err(ItemError::NullInSet),
            scalar => Ok(format!("v:{scalar}")),
        },
        ListKind::Map(keys) => {
            let map = match item {
                Value::Object(map) => map,
                Value::Null => return Err(ItemError::Null),
                _ => return Err(ItemError::NotAnObject),
            };
            let value = |key: &str| map.get(key).or_else(|| of.default_of(key));
            let mut found: Vec<(&str, &Value)> =
                keys.iter().filter_map(|key| Some((key.as_ref(), value(key)?))).collect();
            if found.is_empty() {
                return Err(ItemError::NoKey(keys.iter().map(|key| key.to_string()).collect()));
            }
            Ok(key_element(&mut found))
        }
    }
}
