//! Rules that many fields have, by the type of the field. A rule checks, and reports only what breaks it.

use crate::field_ref::{Field, FieldRef};
use coracle_fields::{Amount, Base64, Duration, Int32, Int64, IntOrString, Text, Time};

/// Rules of texts.
pub trait TextRules {
    /// The place of the text.
    fn place(&self) -> &FieldRef<'_>;

    /// The text follows a rule.
    fn follows(&self, rule: fn(&str) -> Vec<String>) {
        self.place().all_good(rule(text(self.place())));
    }

    /// There is a text.
    fn has_text(&self, detail: &str) -> bool {
        let there = !text(self.place()).is_empty();
        if !there {
            self.place().required(detail);
        }
        there
    }

    /// There is a text and it follows a rule.
    fn named(&self, rule: fn(&str) -> Vec<String>) {
        if self.has_text("") {
            self.follows(rule);
        }
    }

    /// The text is among some. A missing text counts as empty and is reported as unsupported: if the field is optional, check
    /// `is_set()` first.
    fn one_of(&self, supported: &[&str]) {
        if !supported.contains(&text(self.place())) {
            self.place().unsupported(supported);
        }
    }

    /// The text is among some; a missing or empty one is reported as required.
    fn required_one_of(&self, supported: &[&str]) {
        if self.has_text("") {
            self.one_of(supported);
        }
    }
}

fn text<'a>(place: &FieldRef<'a>) -> &'a str {
    place.value.as_str().unwrap_or_default()
}

/// Rules of numbers.
pub trait NumberRules {
    /// The place of the number.
    fn place(&self) -> &FieldRef<'_>;

    /// The number, when there is one, is not negative.
    fn non_negative(&self) {
        if number(self.place()).is_some_and(|number| number < 0) {
            self.place().invalid("must be greater than or equal to 0");
        }
    }

    /// The number, when there is one, is positive.
    fn positive(&self) {
        if number(self.place()).is_some_and(|number| number <= 0) {
            self.place().invalid("must be greater than 0");
        }
    }

    /// The number, when there is one, is in a range, both ends included.
    fn in_range(&self, lo: i64, hi: i64) {
        if let Some(number) = number(self.place()) {
            self.place().all_good(coracle_proto::names::in_range(number, lo, hi));
        }
    }
}

fn number(place: &FieldRef<'_>) -> Option<i64> {
    place.value.as_i64()
}

macro_rules! rules {
    ($($rules:ident: $($leaf:ident)*;)*) => { $($(
        impl $rules for Field<'_, $leaf> {
            fn place(&self) -> &FieldRef<'_> {
                self
            }
        }
    )*)* };
}

rules! {
    TextRules: Text Time Duration Base64 Amount;
    NumberRules: Int32 Int64 IntOrString;
}
