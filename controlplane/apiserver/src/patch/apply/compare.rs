//! Which fields differ between two objects.

use super::super::types::{Shape, Type};
use super::fields::{field_element, item_element};
use super::set::{Node, Set};
use coracle_proto::schema::ListKind;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The difference of two objects; no path is in more than one set.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Only in the first.
    pub removed: Set,
    /// In both, with different values.
    pub modified: Set,
    /// Only in the second.
    pub added: Set,
}

impl Comparison {
    /// Without these fields and what is below them.
    #[must_use]
    pub fn without(self, fields: &[&str]) -> Self {
        Self {
            removed: self.removed.without(fields),
            modified: self.modified.without(fields),
            added: self.added.without(fields),
        }
    }
}

/// Compares two objects of a type, in one pass.
pub fn compare(old: &Value, new: &Value, ty: Type) -> Comparison {
    let diff = walk(Some(old), Some(new), ty);
    Comparison { removed: diff.removed.below, modified: diff.modified.below, added: diff.added.below }
}

#[derive(Default)]
struct Diff {
    removed: Node,
    modified: Node,
    added: Node,
}

impl Diff {
    fn mark(&mut self, old: Option<&Value>, new: Option<&Value>) {
        self.added.member |= old.is_none();
        self.removed.member |= old.is_some() && new.is_none();
    }
}

/// Differences below one level, before they are sorted into sets.
#[derive(Default)]
struct Below {
    removed: Vec<(Box<str>, Node)>,
    modified: Vec<(Box<str>, Node)>,
    added: Vec<(Box<str>, Node)>,
}

impl Below {
    fn push(&mut self, element: impl Fn() -> Box<str>, diff: Diff) {
        for (list, node) in [
            (&mut self.removed, diff.removed),
            (&mut self.modified, diff.modified),
            (&mut self.added, diff.added),
        ] {
            if !node.is_empty() {
                list.push((element(), node));
            }
        }
    }

    fn finish(self) -> Diff {
        let node = |list| Node { member: false, below: Set::collect(list) };
        Diff { removed: node(self.removed), modified: node(self.modified), added: node(self.added) }
    }
}

fn walk(old: Option<&Value>, new: Option<&Value>, ty: Type) -> Diff {
    // The same tree has no differences; equality is much cheaper than naming every path.
    if let (Some(a), Some(b)) = (old, new)
        && a == b
    {
        return Diff::default();
    }
    let mut diff = match ty.shape() {
        Shape::Struct { atomic: false, .. } | Shape::Map { atomic: false, .. } | Shape::Deduced => {
            match (as_map(old), as_map(new)) {
                (Some(a), Some(b)) if !(is_bare(a) && is_bare(b)) => walk_map(a, b, ty, old.is_some()),
                _ => return leaf(old, new),
            }
        }
        Shape::List { of, rule: rule @ (ListKind::Set | ListKind::Map(_)) } => {
            match (as_list(old), as_list(new)) {
                (Some(a), Some(b)) if !(a.is_empty() && b.is_empty()) => walk_list(a, b, of, rule),
                _ => return leaf(old, new),
            }
        }
        _ => return leaf(old, new),
    };
    diff.mark(old, new);
    diff
}

fn leaf(old: Option<&Value>, new: Option<&Value>) -> Diff {
    let mut diff = Diff::default();
    if old.is_some() && new.is_some() {
        diff.modified.member = old != new;
    } else {
        diff.mark(old, new);
    }
    diff
}

/// Null and absent count as an empty map; `None` when it is something else.
fn as_map(value: Option<&Value>) -> Option<Option<&Map<String, Value>>> {
    match value {
        None | Some(Value::Null) => Some(None),
        Some(Value::Object(map)) => Some(Some(map)),
        _ => None,
    }
}

fn is_bare(map: Option<&Map<String, Value>>) -> bool {
    map.is_none_or(Map::is_empty)
}

fn as_list(value: Option<&Value>) -> Option<&[Value]> {
    match value {
        None | Some(Value::Null) => Some(&[]),
        Some(Value::Array(items)) => Some(items),
        _ => None,
    }
}

fn walk_map(
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    ty: Type,
    known: bool,
) -> Diff {
    static NULL: Value = Value::Null;
    static EMPTY: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| Value::Object(Map::new()));
    let mut below = Below::default();
    for (key, after) in new.into_iter().flatten() {
        let mut before = old.and_then(|m| m.get(key));
        // A struct held by value is there in an empty object: whoever fills it in does not own it as such.
        if before.is_none() && known && ty.always_has(key) {
            let of = ty.child(key).shape();
            before = Some(if matches!(of, Shape::Struct { .. }) { &EMPTY } else { &NULL });
        }
        below.push(|| field_element(key), walk(before, Some(after), ty.child(key)));
    }
    for (key, before) in old.into_iter().flatten() {
        if !new.is_some_and(|m| m.contains_key(key)) {
            below.push(|| field_element(key), walk(Some(before), None, ty.child(key)));
        }
    }
    below.finish()
}

fn walk_list(old: &[Value], new: &[Value], of: Type, rule: &ListKind) -> Diff {
    let mut order: Vec<String> = Vec::with_capacity(old.len().max(new.len()));
    let mut items: HashMap<String, (Vec<&Value>, Vec<&Value>)> = HashMap::new();
    for (list, is_new) in [(old, false), (new, true)] {
        for item in list {
            let Ok(element) = item_element(item, of, rule) else { continue };
            let slot = items.entry(element.clone()).or_insert_with(|| {
                order.push(element);
                Default::default()
            });
            if is_new { slot.1.push(item) } else { slot.0.push(item) }
        }
    }
    let mut below = Below::default();
    for element in order {
        let (before, after) = &items[&element];
        below.push(|| element.as_str().into(), compare_items(before, after, of));
    }
    below.finish()
}

/// Items that share a key are compared as one value, and owned as one.
fn compare_items(before: &[&Value], after: &[&Value], of: Type) -> Diff {
    let item = |old: Option<&&Value>, new: Option<&&Value>| walk(old.copied(), new.copied(), of);
    match (before.len(), after.len()) {
        (0 | 1, 0 | 1) => item(before.first(), after.first()),
        (0 | 1, _) => {
            let mut diff = before.first().map(|b| item(Some(b), None)).unwrap_or_default();
            diff.added.member = true;
            diff
        }
        (_, 0 | 1) => {
            let mut diff = after.first().map(|a| item(None, Some(a))).unwrap_or_default();
            diff.removed.member = true;
            diff
        }
        _ => {
            let mut diff = Diff::default();
            diff.modified.member = before != after;
            diff
        }
    }
}
