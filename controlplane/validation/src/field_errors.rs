//! Errors of a field, and the rules that many fields have.
//!
//! Methods named like an error (`required`, `invalid`, `forbidden`, `duplicate`, `not_found`, `unsupported`, `too_long`,
//! `too_many`) always report it: the caller has checked. Methods named like a rule (`non_negative`, `in_range`, `one_of`,
//! `follows`, `immutable`) check, and report only what breaks the rule.

use crate::field_ref::{Field, FieldRef};
use crate::tree::same;
use coracle_fields::{Access, At, Text};
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashSet;

const NON_NEGATIVE: &str = "must be greater than or equal to 0";
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

    /// Reports `Unsupported value: VALUE: supported values: …`; a missing text prints as empty. [`FieldRef::one_of`] checks first.
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

    /// The text is among some. A missing text counts as empty and is reported as unsupported: if the field is optional, check
    /// `is_set()` first.
    pub fn one_of(&self, supported: &[&str]) {
        if !supported.contains(&self.text()) {
            self.unsupported(supported);
        }
    }

    /// The text is among some; a missing or empty one is reported as required.
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

    /// The number, when there is one, is in a range, both ends included.
    pub fn in_range(&self, lo: i64, hi: i64) {
        if let Some(number) = self.int() {
            self.all_good(coracle_proto::names::in_range(number, lo, hi));
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
