//! How tests ask for errors.

use coracle_proto::status::FieldError;
use serde_json::Value;

/// The errors of a rule, as text.
pub(super) fn errors(rule: fn(&Value, &mut Vec<FieldError>), object: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    rule(object, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

/// The errors of a rule for changes, as text.
pub(super) fn changes(
    rule: fn(&Value, &Value, &mut Vec<FieldError>),
    new: &Value,
    old: &Value,
) -> Vec<String> {
    let mut errors = Vec::new();
    rule(new, old, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}
