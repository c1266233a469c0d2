//! Ratcheting: a change is not held to errors that the stored object has as well. An earlier version with fewer rules may have
//! stored it, and whoever changes something else, such as its finalizers, cannot correct it.

use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;

/// A rule for whole objects.
pub type Rule = fn(&Value, &mut Vec<FieldError>);

/// Adds the errors of a rule that the old object does not have.
pub fn changed(rule: Rule, new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mut found = Vec::new();
    rule(new, &mut found);
    if found.is_empty() {
        return;
    }
    let mut before = Vec::new();
    rule(old, &mut before);
    let known: HashSet<(String, &str)> = before.iter().map(place).collect();
    found.retain(|error| !known.contains(&place(error)));
    errors.append(&mut found);
}

/// An error without its place in lists: items may be inserted and removed.
fn place(error: &FieldError) -> (String, &str) {
    let parts = error.field.split('[').enumerate();
    let names = parts
        .map(|(at, part)| if at == 0 { part } else { part.split_once(']').map_or(part, |(_, rest)| rest) });
    (names.collect(), &error.message)
}
