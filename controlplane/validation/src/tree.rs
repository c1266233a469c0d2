//! Reading and growing JSON trees without ceremony. Paths are dotted; what is missing or `null` reads as nothing,
//! as in the Go types that clients were written against.

use coracle_fields::View;
use serde_json::{Map, Value, json};

pub(crate) static NULL: Value = Value::Null;

/// Reads from a tree.
pub trait Tree {
    /// The value at a dotted path, `null` when missing.
    fn at(&self, path: &str) -> &Value;

    /// Whether there is something at the path.
    fn has(&self, path: &str) -> bool {
        !self.at(path).is_null()
    }

    /// The text at the path, empty when missing.
    fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    /// The list at the path, empty when missing.
    fn items(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map_or(&[], Vec::as_slice)
    }

    /// The fields of the object at the path, none when missing.
    fn entries(&self, path: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.at(path).as_object().into_iter().flatten()
    }

    /// The integer at the path.
    fn int(&self, path: &str) -> Option<i64> {
        self.at(path).as_i64()
    }

    /// Whether the boolean at the path is true.
    fn flag(&self, path: &str) -> bool {
        self.at(path).as_bool().unwrap_or_default()
    }
}

impl Tree for Value {
    fn at(&self, path: &str) -> &Value {
        let mut at = self;
        for key in path.split('.').filter(|key| !key.is_empty()) {
            match at.get(key) {
                Some(next) => at = next,
                None => return &NULL,
            }
        }
        at
    }
}

/// Whether a Go client would have left the field out: missing, empty text, zero, empty list or object.
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

/// Whether two trees mean the same: missing, `null` and empty are one.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(key, value)| same(value, b.get(key).unwrap_or(&NULL)))
                && b.iter().all(|(key, value)| a.contains_key(key) || same(&NULL, value))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Null, other) | (other, Value::Null) => match other {
            Value::Object(entries) => entries.values().all(|value| same(&NULL, value)),
            Value::Array(items) => items.is_empty(),
            Value::String(text) => text.is_empty(),
            other => other.is_null(),
        },
        (a, b) => a == b,
    }
}

/// Whether two places of one type have the same meaning, as [`same`] has it.
pub fn same_at<T>(a: View<'_, T>, b: View<'_, T>) -> bool {
    same(&a.as_value(), &b.as_value())
}

/// Adds to a tree.
pub trait Grow {
    /// Sets `key` unless something is there already; an empty text counts as nothing.
    fn default(&mut self, key: &str, value: impl Into<Value>);

    /// Sets `key` unless it holds something that is not zero or empty.
    fn default_empty(&mut self, key: &str, value: impl Into<Value>);

    /// The object at `key`, made when it is missing.
    fn section(&mut self, key: &str) -> &mut Value;

    /// The object at `key`, when there is one.
    fn existing(&mut self, key: &str) -> Option<&mut Value>;

    /// Calls `change` with every item of the list at `key`.
    fn each(&mut self, key: &str, change: impl FnMut(&mut Value));

    /// Sets `key`.
    fn put(&mut self, key: &str, value: impl Into<Value>);

    /// Removes `key`.
    fn drop_key(&mut self, key: &str) -> Option<Value>;

    /// The fields of an object as a map.
    fn fields_mut(&mut self) -> Option<&mut Map<String, Value>>;
}

impl Grow for Value {
    fn default(&mut self, key: &str, value: impl Into<Value>) {
        if matches!(self.at(key), Value::Null) || self.at(key) == "" {
            self.put(key, value);
        }
    }

    fn default_empty(&mut self, key: &str, value: impl Into<Value>) {
        if is_empty(self.at(key)) {
            self.put(key, value);
        }
    }

    fn section(&mut self, key: &str) -> &mut Value {
        if self.is_null() {
            *self = json!({});
        }
        if !self.at(key).is_object() {
            self.put(key, json!({}));
        }
        &mut self[key]
    }

    fn existing(&mut self, key: &str) -> Option<&mut Value> {
        self.get_mut(key).filter(|value| value.is_object())
    }

    fn each(&mut self, key: &str, change: impl FnMut(&mut Value)) {
        if let Some(items) = self.get_mut(key).and_then(Value::as_array_mut) {
            items.iter_mut().filter(|item| item.is_object()).for_each(change);
        }
    }

    fn put(&mut self, key: &str, value: impl Into<Value>) {
        if let Some(object) = self.as_object_mut() {
            object.insert(key.into(), value.into());
        }
    }

    fn drop_key(&mut self, key: &str) -> Option<Value> {
        self.as_object_mut()?.remove(key)
    }

    fn fields_mut(&mut self) -> Option<&mut Map<String, Value>> {
        self.as_object_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_null_read_as_nothing() {
        let tree = json!({"a": {"b": null, "c": [1], "d": "x"}});
        assert!(!tree.has("a.b") && !tree.has("a.z.y") && tree.has("a.c"));
        assert_eq!((tree.text("a.d"), tree.items("a.c").len(), tree.int("a.d")), ("x", 1, None));
    }

    #[test]
    fn missing_null_and_empty_are_the_same() {
        let pairs = [
            (json!({"a": null}), json!({}), true),
            (json!({"a": []}), json!({"a": null, "b": {"c": ""}}), true),
            (json!({"a": [1]}), json!({"a": [1, 2]}), false),
            (json!({"a": false}), json!({}), false),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 1, "c": {}}}), true),
        ];
        for (a, b, equal) in pairs {
            assert_eq!(same(&a, &b), equal, "{a} {b}");
            assert_eq!(same(&b, &a), equal, "{b} {a}");
        }
    }

    #[test]
    fn defaults_fill_only_gaps() {
        let mut tree = json!({"a": "", "b": 0, "c": "x", "n": null});
        tree.default("a", "1");
        tree.default("b", 1);
        tree.default_empty("b", 2);
        tree.default("c", "y");
        tree.default("n", true);
        tree.section("s").default("t", 1);
        assert_eq!(tree, json!({"a": "1", "b": 2, "c": "x", "n": true, "s": {"t": 1}}));
    }
}
