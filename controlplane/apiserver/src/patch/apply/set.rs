//! A set of field paths as a tree. Path elements are kept in their `fieldsV1` spelling: `f:name` a field, `k:{…}` an
//! item by key fields, `v:…` an item by value, `i:n` by index. A node is a member, has members below, or both.

use serde_json::{Map, Value};
use std::cmp::Ordering;

/// Field paths, sorted by element. No node is kept that is neither a member nor has members below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    entries: Vec<(Box<str>, Node)>,
}

/// What is known of one path element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Whether the path up to here is in the set.
    pub member: bool,
    /// Longer paths.
    pub below: Set,
}

impl Node {
    /// The path itself and nothing below.
    pub const fn leaf() -> Self {
        Self { member: true, below: Set { entries: Vec::new() } }
    }

    /// Whether neither it nor anything below is in the set.
    pub fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    fn into_value(self) -> Value {
        let mut map = Map::with_capacity(self.below.entries.len() + 1);
        if self.member && !self.below.is_empty() {
            map.insert(".".into(), Value::Object(Map::new()));
        }
        self.below.encode_into(&mut map);
        Value::Object(map)
    }

    fn combine(a: Option<&Self>, b: Option<&Self>, keep: impl Fn(bool, bool) -> bool + Copy) -> Self {
        let empty = Set::default();
        let (am, a) = a.map_or((false, &empty), |n| (n.member, &n.below));
        let (bm, b) = b.map_or((false, &empty), |n| (n.member, &n.below));
        Self { member: keep(am, bm), below: Set::combine(a, b, keep) }
    }
}

impl Set {
    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The node of one element.
    pub fn get(&self, element: &str) -> Option<&Node> {
        self.entries.binary_search_by(|(e, _)| e.as_ref().cmp(element)).ok().map(|i| &self.entries[i].1)
    }

    /// Elements with their nodes, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.entries.iter().map(|(e, n)| (e.as_ref(), n))
    }

    /// A set of what was collected in any order; empty nodes are dropped, equal elements united.
    pub fn collect(mut entries: Vec<(Box<str>, Node)>) -> Self {
        entries.retain(|(_, n)| !n.is_empty());
        if entries.windows(2).all(|w| w[0].0 < w[1].0) {
            return Self { entries };
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let mut sorted: Vec<(Box<str>, Node)> = Vec::with_capacity(entries.len());
        for (element, node) in entries {
            match sorted.last_mut() {
                Some((last, before)) if *last == element => {
                    *before = Node::combine(Some(before), Some(&node), |a, b| a || b);
                }
                _ => sorted.push((element, node)),
            }
        }
        Self { entries: sorted }
    }

    fn combine(a: &Self, b: &Self, keep: impl Fn(bool, bool) -> bool + Copy) -> Self {
        let mut entries = Vec::with_capacity(a.entries.len().max(b.entries.len()));
        let (mut i, mut j) = (0, 0);
        while i < a.entries.len() || j < b.entries.len() {
            let order = match (a.entries.get(i), b.entries.get(j)) {
                (Some(x), Some(y)) => x.0.cmp(&y.0),
                (Some(_), None) => Ordering::Less,
                _ => Ordering::Greater,
            };
            let left = (order != Ordering::Greater).then(|| &a.entries[i]);
            let right = (order != Ordering::Less).then(|| &b.entries[j]);
            i += usize::from(left.is_some());
            j += usize::from(right.is_some());
            let node = Node::combine(left.map(|e| &e.1), right.map(|e| &e.1), keep);
            if let (false, Some((element, _))) = (node.is_empty(), left.or(right)) {
                entries.push((element.clone(), node));
            }
        }
        Self { entries }
    }

    /// Paths in either.
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        if other.is_empty() {
            return self.clone();
        }
        Self::combine(self, other, |a, b| a || b)
    }

    /// Paths in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut entries = Vec::new();
        for (element, node) in &self.entries {
            if let Some(theirs) = other.get(element) {
                let both = Node {
                    member: node.member && theirs.member,
                    below: node.below.intersection(&theirs.below),
                };
                if !both.is_empty() {
                    entries.push((element.clone(), both));
                }
            }
        }
        Self { entries }
    }

    /// Paths only in `self`; a longer path stays when only its beginning is in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        Self::combine(self, other, |a, b| a && !b)
    }

    /// Whether the sets share a path.
    pub fn intersects(&self, other: &Self) -> bool {
        self.entries.iter().any(|(element, node)| {
            other
                .get(element)
                .is_some_and(|theirs| (node.member && theirs.member) || node.below.intersects(&theirs.below))
        })
    }

    /// Without these fields, such as `status` or `metadata.labels`, and everything below them.
    #[must_use]
    pub fn without(mut self, paths: &[&str]) -> Self {
        for path in paths {
            self.drop_path(path);
        }
        self
    }

    fn drop_path(&mut self, path: &str) {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        self.entries.retain_mut(|(element, node)| {
            if element.strip_prefix("f:") != Some(first) {
                return true;
            }
            let Some(rest) = rest else { return false };
            node.below.drop_path(rest);
            !node.is_empty()
        });
    }

    /// Paths in either, without a copy when one of them is empty.
    #[must_use]
    pub fn unite(self, other: Self) -> Self {
        if other.is_empty() {
            self
        } else if self.is_empty() {
            other
        } else {
            self.union(&other)
        }
    }

    /// Keeps the top elements for which `keep` holds; it may change what is below them.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Node) -> bool) {
        self.entries.retain_mut(|(element, node)| keep(element, node) && !node.is_empty());
    }

    /// The `fieldsV1` form.
    pub fn encode(&self) -> Value {
        self.clone().into_value()
    }

    /// The `fieldsV1` form, for those who need the set no more.
    pub fn into_value(self) -> Value {
        let mut map = Map::with_capacity(self.entries.len());
        self.encode_into(&mut map);
        Value::Object(map)
    }

    fn encode_into(self, map: &mut Map<String, Value>) {
        for (element, node) in self.entries {
            map.insert(element.into_string(), node.into_value());
        }
    }

    /// Reads the `fieldsV1` form.
    pub fn decode(value: &Value) -> Result<Self, ElementError> {
        let Value::Object(map) = value else { return Err(ElementError(value.to_string())) };
        let mut entries = Vec::with_capacity(map.len());
        for (element, below) in map.iter().filter(|(e, _)| *e != ".") {
            let Value::Object(inner) = below else { return Err(ElementError(element.clone())) };
            let node =
                Node { member: inner.is_empty() || inner.contains_key("."), below: Self::decode(below)? };
            entries.push((canonical(element)?, node));
        }
        Ok(Self::collect(entries))
    }

    /// Every path, in the form that people read: `.spec.containers[name="web"].image`.
    pub fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.paths_into("", &mut found);
        found
    }

    fn paths_into(&self, prefix: &str, found: &mut Vec<String>) {
        // A path comes before the longer ones that begin with it, members of one level before any of the next.
        for (element, node) in &self.entries {
            if node.member {
                found.push(format!("{prefix}{}", readable(element)));
            }
        }
        for (element, node) in self.entries.iter().filter(|(_, n)| !n.below.is_empty()) {
            node.below.paths_into(&format!("{prefix}{}", readable(element)), found);
        }
    }
}

/// An element of `fieldsV1` that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse {0}")]
pub struct ElementError(String);

/// The one spelling of an element, so that equal elements are equal text.
fn canonical(element: &str) -> Result<Box<str>, ElementError> {
    let bad = || ElementError(element.to_owned());
    match element.split_at_checked(2).ok_or_else(bad)? {
        ("f:", _) => Ok(element.into()),
        ("i:", rest) if rest.parse::<i64>().is_ok() => Ok(element.into()),
        ("v:", rest) => {
            let value: Value = serde_json::from_str(rest).map_err(|_| bad())?;
            Ok(format!("v:{value}").into())
        }
        ("k:", rest) => {
            let Ok(Value::Object(fields)) = serde_json::from_str(rest) else { return Err(bad()) };
            let mut fields: Vec<(&str, &Value)> = fields.iter().map(|(k, v)| (k.as_str(), v)).collect();
            Ok(key_element(&mut fields).into())
        }
        _ => Err(bad()),
    }
}

/// `k:{"name":"x"}` from key fields.
pub fn key_element(fields: &mut [(&str, &Value)]) -> String {
    fields.sort_by_key(|(name, _)| *name);
    let list: Vec<String> = fields.iter().map(|(name, v)| format!("{}:{v}", Value::from(*name))).collect();
    format!("k:{{{}}}", list.join(","))
}

/// An element as people read it: `.name`, `[name="x"]`, `[="v"]`, `[3]`.
pub fn readable(element: &str) -> String {
    match element.split_at_checked(2) {
        Some(("f:", name)) => format!(".{name}"),
        Some(("k:", key)) => match serde_json::from_str(key) {
            Ok(Value::Object(fields)) => {
                let list: Vec<String> = fields.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("[{}]", list.join(","))
            }
            _ => element.to_owned(),
        },
        Some(("v:", value)) => format!("[={value}]"),
        Some(("i:", index)) => format!("[{index}]"),
        _ => element.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn set(value: Value) -> Set {
        Set::decode(&value).unwrap()
    }

    #[test]
    fn algebra() {
        let a = set(json!({"f:a": {}, "f:b": {".": {}, "f:c": {}}, "f:d": {"v:1": {}}}));
        let b = set(json!({"f:b": {"f:c": {}, "f:x": {}}, "f:d": {}}));
        assert_eq!(
            a.union(&b).encode(),
            json!({"f:a": {}, "f:b": {".": {}, "f:c": {}, "f:x": {}}, "f:d": {".": {}, "v:1": {}}})
        );
        assert_eq!(a.intersection(&b).encode(), json!({"f:b": {"f:c": {}}}));
        assert_eq!(a.difference(&b).encode(), json!({"f:a": {}, "f:b": {}, "f:d": {"v:1": {}}}));
        assert!(a.intersects(&b) && !a.intersects(&set(json!({"f:d": {}}))));
        assert_eq!(a.difference(&a), Set::default());
    }

    #[test]
    fn fields_are_left_out_with_all_below() {
        let all = set(
            json!({"f:metadata": {"f:labels": {"f:a": {}}, "f:name": {}}, "f:spec": {"f:x": {}}, "f:status": {}}),
        );
        let kept = all.without(&["spec", "metadata.labels", "status.no", "none.at.all"]);
        assert_eq!(kept.encode(), json!({"f:metadata": {"f:name": {}}, "f:status": {}}));
        assert!(
            set(json!({"f:metadata": {"f:labels": {"f:a": {}}}})).without(&["metadata.labels"]).is_empty()
        );
    }

    #[test]
    fn elements_have_one_spelling_and_a_readable_form() {
        let odd =
            set(json!({"f:ports": {"k:{ \"protocol\" : \"TCP\", \"port\":80 }": {".": {}, "f:name": {}}}}));
        assert_eq!(
            odd.encode(),
            json!({"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}})
        );
        assert_eq!(
            odd.paths(),
            [".ports[port=80,protocol=\"TCP\"]", ".ports[port=80,protocol=\"TCP\"].name"]
        );
        assert_eq!(
            set(json!({"f:finalizers": {"v:\"a/b\"": {}}, "i:3": {}})).paths(),
            ["[3]", ".finalizers[=\"a/b\"]"]
        );
        for bad in [json!({"x": {}}), json!({"k:nope": {}}), json!({"f:a": 1}), json!([])] {
            assert!(Set::decode(&bad).is_err(), "{bad}");
        }
    }
}
