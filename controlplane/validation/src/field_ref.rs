//! A reference to a field of an object: its value, its path, and the list that collects errors.

use crate::tree::{Tree, is_empty, same};
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::cell::RefCell;

const NON_NEGATIVE: &str = "must be greater than or equal to 0";
const IMMUTABLE: &str = "field is immutable";

/// Where errors go.
pub struct Sink(RefCell<Vec<FieldError>>);

/// A place in an object.
#[derive(Clone)]
pub struct FieldRef<'a> {
    /// What is there, `null` when nothing is.
    pub value: &'a Value,
    path: String,
    sink: &'a Sink,
}

/// Walks an object with rules and adds the errors.
///
/// ```
/// use coracle_validation::field_ref::walk;
/// let (object, mut errors) = (serde_json::json!({"spec": {"replicas": -1}}), Vec::new());
/// walk(&object, &mut errors, |root| root.at("spec.replicas").non_negative());
/// assert_eq!(errors[0].to_string(), "spec.replicas: Invalid value: -1: must be greater than or equal to 0");
/// ```
pub fn walk(object: &Value, errors: &mut Vec<FieldError>, rules: impl FnOnce(FieldRef<'_>)) {
    let sink = Sink(RefCell::new(std::mem::take(errors)));
    rules(FieldRef { value: object, path: String::new(), sink: &sink });
    *errors = sink.0.into_inner();
}

impl<'a> FieldRef<'a> {
    /// A field below, by dotted path.
    pub fn at(&self, path: &str) -> FieldRef<'a> {
        // Written by hand: thousands of containers have millions of fields, and most paths are never shown.
        let mut whole = String::with_capacity(self.path.len() + 1 + path.len());
        whole.push_str(&self.path);
        if !whole.is_empty() {
            whole.push('.');
        }
        whole.push_str(path);
        FieldRef { value: self.value.at(path), path: whole, sink: self.sink }
    }

    /// The items of the list here.
    pub fn items(&self) -> impl Iterator<Item = FieldRef<'a>> + use<'a> {
        let (path, sink) = (self.path.clone(), self.sink);
        let items = self.value.as_array().map_or(&[][..], Vec::as_slice);
        items.iter().enumerate().map(move |(index, value)| FieldRef {
            value,
            path: format!("{path}[{index}]"),
            sink,
        })
    }

    /// The items of a list below.
    pub fn each(&self, path: &str) -> impl Iterator<Item = FieldRef<'a>> + use<'a> {
        self.at(path).items()
    }

    /// The entries of the map here; each value's path ends in `[key]`.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, FieldRef<'a>)> + use<'a> {
        let (path, sink) = (self.path.clone(), self.sink);
        let entries = self.value.as_object().into_iter().flatten();
        entries
            .map(move |(key, value)| (key.as_str(), FieldRef { value, path: format!("{path}[{key}]"), sink }))
    }

    /// The same place with another value, for errors about what is not in the object as such.
    pub fn with<'b>(&self, value: &'b Value) -> FieldRef<'b>
    where
        'a: 'b,
    {
        FieldRef { value, path: self.path.clone(), sink: self.sink }
    }

    /// An entry of a map by key: the path ends in `[key]`.
    pub fn key(&self, key: &str) -> FieldRef<'a> {
        static NULL: Value = Value::Null;
        let value = self.value.get(key).unwrap_or(&NULL);
        FieldRef { value, path: format!("{}[{key}]", self.path), sink: self.sink }
    }

    /// The path, such as `spec.containers[0].image`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether something is here.
    pub fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Whether nothing is here, or something empty or zero.
    pub fn is_empty(&self) -> bool {
        is_empty(self.value)
    }

    /// The text here, empty when there is none.
    pub fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    /// The integer here.
    pub fn int(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// How many items or entries are here.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(items) => items.len(),
            Value::Object(entries) => entries.len(),
            _ => 0,
        }
    }

    /// Adds an error.
    pub fn report(&self, error: FieldError) {
        self.sink.0.borrow_mut().push(error);
    }

    /// How many errors there are so far, to see whether a rule added any.
    pub fn errors(&self) -> usize {
        self.sink.0.borrow().len()
    }

    /// `Required value`.
    pub fn required(&self, detail: &str) {
        self.report(FieldError::required(&self.path, detail));
    }

    /// `Invalid value: …`. A missing text or number prints as its zero value does.
    pub fn invalid(&self, detail: impl AsRef<str>) {
        self.report(FieldError::invalid(&self.path, self.value, detail.as_ref()));
    }

    /// `Invalid value` with a value that is not the one here.
    pub fn invalid_as(&self, value: impl Into<Value>, detail: impl AsRef<str>) {
        self.report(FieldError::invalid(&self.path, &value.into(), detail.as_ref()));
    }

    /// `Forbidden`.
    pub fn forbidden(&self, detail: impl AsRef<str>) {
        self.report(FieldError::forbidden(&self.path, detail.as_ref()));
    }

    /// `Duplicate value`.
    pub fn duplicate(&self) {
        self.report(FieldError::duplicate(&self.path, self.value));
    }

    /// `Not found`.
    pub fn not_found(&self) {
        self.report(FieldError::not_found(&self.path, self.value));
    }

    /// `Unsupported value`; a missing text prints as empty.
    pub fn unsupported(&self, supported: &[&str]) {
        let empty = json!("");
        let value = if self.value.is_null() { &empty } else { self.value };
        self.report(FieldError::unsupported(&self.path, value, supported));
    }

    /// `Too long`.
    pub fn too_long(&self, max: usize) {
        self.report(FieldError::too_long(&self.path, max));
    }

    /// `Too many: N: must have at most MAX items`.
    pub fn too_many(&self, max: usize) {
        let items = if max == 1 { "item" } else { "items" };
        let text = format!("Too many: {}: must have at most {max} {items}", self.len());
        self.report(FieldError::new("FieldValueTooMany", &self.path, text));
    }

    /// Every sentence is an `Invalid value`.
    pub fn all_good(&self, messages: Vec<String>) {
        for message in messages {
            self.invalid(message);
        }
    }

    /// The text follows a rule.
    pub fn follows(&self, rule: fn(&str) -> Vec<String>) {
        self.all_good(rule(self.text()));
    }

    /// There is a text.
    pub fn has_text(&self, detail: &str) -> bool {
        let there = !self.text().is_empty();
        if !there {
            self.required(detail);
        }
        there
    }

    /// There is a text and it follows a rule.
    pub fn named(&self, rule: fn(&str) -> Vec<String>) {
        if self.has_text("") {
            self.follows(rule);
        }
    }

    /// The text, when there is one, is among some.
    pub fn one_of(&self, supported: &[&str]) {
        if !supported.contains(&self.text()) {
            self.unsupported(supported);
        }
    }

    /// The text is there and among some.
    pub fn required_one_of(&self, supported: &[&str]) {
        if self.has_text("") {
            self.one_of(supported);
        }
    }

    /// The number, when there is one, is not negative.
    pub fn non_negative(&self) {
        if self.int().is_some_and(|number| number < 0) {
            self.invalid(NON_NEGATIVE);
        }
    }

    /// The number, when there is one, is positive.
    pub fn positive(&self) {
        if self.int().is_some_and(|number| number <= 0) {
            self.invalid("must be greater than 0");
        }
    }

    /// The number is in a range.
    pub fn in_range(&self, lo: i64, hi: i64) {
        if let Some(number) = self.int() {
            self.all_good(coracle_proto::names::in_range(number, lo, hi));
        }
    }

    /// Nothing changed here.
    pub fn immutable(&self, old: &Value) -> bool {
        self.immutable_because(old, IMMUTABLE)
    }

    /// Nothing changed here, or why that matters.
    pub fn immutable_because(&self, old: &Value, why: &str) -> bool {
        let unchanged = same(self.value, old);
        if !unchanged {
            self.invalid(why);
        }
        unchanged
    }

    /// The texts of a list, by key, are unique.
    pub fn unique(&self, key: &str) {
        let mut seen = std::collections::HashSet::new();
        for item in self.items() {
            let field = item.at(key);
            if !field.text().is_empty() && !seen.insert(field.text()) {
                field.duplicate();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_texts() {
        let object = json!({"spec": {"list": [{"name": "a"}, {"name": "a"}], "map": {"k.x": "v"}, "n": -1}});
        let mut errors = Vec::new();
        walk(&object, &mut errors, |root| {
            root.at("spec.list").unique("name");
            root.at("spec.n").non_negative();
            root.at("spec.missing").required("say something");
            root.at("spec.map").entries().for_each(|(_, value)| value.invalid("bad"));
            root.at("spec.kind").one_of(&["A", "B"]);
        });
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "spec.list[1].name: Duplicate value: \"a\"",
                "spec.n: Invalid value: -1: must be greater than or equal to 0",
                "spec.missing: Required value: say something",
                "spec.map[k.x]: Invalid value: \"v\": bad",
                "spec.kind: Unsupported value: \"\": supported values: \"A\", \"B\"",
            ]
        );
    }
}
