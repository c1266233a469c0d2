//! Errors of a field.
//!
//! Methods named like an error (`required`, `invalid`, `forbidden`, `duplicate`, `not_found`, `unsupported`, `too_long`,
//! `too_many`) always report it: the caller has checked. Methods named like a rule (`immutable`, and those of
//! [`crate::field_rules`]) check, and report only what breaks the rule.

use crate::field_ref::{Field, FieldRef};
use crate::tree::same;
use coracle_fields::{Access, At, Text};
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashSet;

const IMMUTABLE: &str = "field is immutable";

/// The value of a field before a change: a tree, or a place that is read.
pub trait OldValue {
    /// The value as a tree.
    fn tree(&self) -> Cow<'_, Value>;
}

impl OldValue for &Value {
    fn tree(&self) -> Cow<'_, Value> {
        Cow::Borrowed(*self)
    }
}

impl<C: Access, T> OldValue for At<C, T> {
    fn tree(&self) -> Cow<'_, Value> {
        self.as_value()
    }
}

/// The texts are unique; those that are empty do not count.
pub fn unique<'a>(texts: impl Iterator<Item = Field<'a, Text>>) {
    let mut seen = HashSet::new();
    for field in texts {
        if !field.text().is_empty() && !seen.insert(field.text()) {
            field.duplicate();
        }
    }
}

/// Fields of which only one may be set: the first is checked, the others are forbidden.
pub struct Alternatives {
    set: usize,
    too_many: &'static str,
}

impl Alternatives {
    /// None so far. `too_many` says why a second is forbidden.
    pub fn new(too_many: &'static str) -> Self {
        Self { set: 0, too_many }
    }

    /// Checks a field, if it is set and the first.
    pub fn check<'a, T>(&mut self, field: Field<'a, T>, rules: impl FnOnce(&Field<'a, T>)) {
        if !field.is_set() {
            return;
        }
        self.set += 1;
        if self.set > 1 {
            field.forbidden(self.too_many);
        } else {
            rules(&field);
        }
    }

    /// Checks a field, if it is set, even after another: upstream does not forbid it.
    pub fn check_always<'a, T>(&mut self, field: Field<'a, T>, rules: impl FnOnce(&Field<'a, T>)) {
        if field.is_set() {
            self.set += 1;
            rules(&field);
        }
    }

    /// Requires that one was set.
    pub fn require(self, place: &FieldRef<'_>, detail: &str) {
        if self.set == 0 {
            place.required(detail);
        }
    }
}

impl FieldRef<'_> {
    /// Adds an error.
    pub fn report(&self, error: FieldError) {
        self.sink.0.borrow_mut().push(error);
    }

    /// How many errors there are so far, to see whether a rule added any.
    pub fn errors(&self) -> usize {
        self.sink.0.borrow().len()
    }

    /// Reports `Required value`, with the detail unless it is empty.
    pub fn required(&self, detail: &str) {
        self.report(FieldError::required(self.path(), detail));
    }

    /// Reports `Invalid value: VALUE: DETAIL`. A missing value prints as `null`; [`FieldRef::invalid_as`] prints another one.
    pub fn invalid(&self, detail: impl AsRef<str>) {
        self.report(FieldError::invalid(self.path(), self.value, detail.as_ref()));
    }

    /// Reports `Invalid value` with a value that is not the one here.
    pub fn invalid_as(&self, value: impl Into<Value>, detail: impl AsRef<str>) {
        self.report(FieldError::invalid(self.path(), &value.into(), detail.as_ref()));
    }

    /// Reports `Forbidden: DETAIL`.
    pub fn forbidden(&self, detail: impl AsRef<str>) {
        self.report(FieldError::forbidden(self.path(), detail.as_ref()));
    }

    /// Reports `Duplicate value: VALUE`; [`unique`] checks a list of texts.
    pub fn duplicate(&self) {
        self.report(FieldError::duplicate(self.path(), self.value));
    }

    /// Reports `Not found: VALUE`.
    pub fn not_found(&self) {
        self.report(FieldError::not_found(self.path(), self.value));
    }

    /// Reports `Unsupported value: VALUE: supported values: …`; a missing text prints as empty. [`TextRules::one_of`] checks
    /// first.
    ///
    /// [`TextRules::one_of`]: crate::field_rules::TextRules::one_of
    pub fn unsupported(&self, supported: &[&str]) {
        let empty = json!("");
        let value = if self.value.is_null() { &empty } else { self.value };
        self.report(FieldError::unsupported(self.path(), value, supported));
    }

    /// Reports `Too long: may not be more than MAX bytes`, whatever the length is: compare `text().len()` first.
    pub fn too_long(&self, max: usize) {
        self.report(FieldError::too_long(self.path(), max));
    }

    /// Reports `Too many: N: must have at most MAX items`, whatever `N` is: compare `len()` first.
    pub fn too_many(&self, max: usize) {
        let items = if max == 1 { "item" } else { "items" };
        let text = format!("Too many: {}: must have at most {max} {items}", self.len());
        self.report(FieldError::new("FieldValueTooMany", self.path(), text));
    }

    /// Every sentence is an `Invalid value`.
    pub fn all_good(&self, messages: Vec<String>) {
        for message in messages {
            self.invalid(message);
        }
    }

    /// Nothing changed here.
    pub fn immutable(&self, old: impl OldValue) -> bool {
        self.immutable_because(old, IMMUTABLE)
    }

    /// Nothing changed here, or why that matters.
    pub fn immutable_because(&self, old: impl OldValue, why: &str) -> bool {
        let unchanged = same(self.value, &old.tree());
        if !unchanged {
            self.invalid(why);
        }
        unchanged
    }
}
