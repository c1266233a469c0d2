//! Ratcheting: a change is not held to errors that the stored object has as well. An earlier version with fewer rules may have
//! stored it, and whoever changes something else, such as its finalizers, cannot correct it.
//!
//! Upstream compares each value with the old one at the same path, and items of lists by their keys. Here errors are compared:
//! they also tell of rules that look at several fields.

use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashMap;

/// A rule for whole objects.
pub type Rule = fn(&Value, &mut Vec<FieldError>);

/// Adds the errors of a rule that the old object does not have. Items of lists may move and go, but an error of the old object
/// excuses only one: a second item that is wrong in the same way is an error.
pub fn changed(rule: Rule, new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mut found = Vec::new();
    rule(new, &mut found);
    if found.is_empty() {
        return;
    }
    let mut before = Vec::new();
    rule(old, &mut before);
    let (moved, gone) = without_pairs(found, before, |error| error.field.clone());
    let (mut added, _) = without_pairs(moved, gone, unindexed);
    errors.append(&mut added);
}

/// What is left of both lists without pairs of errors with the same place and message.
fn without_pairs(
    found: Vec<FieldError>,
    before: Vec<FieldError>,
    place: fn(&FieldError) -> String,
) -> (Vec<FieldError>, Vec<FieldError>) {
    let key = |error: &FieldError| (place(error), error.message.clone());
    let mut known: HashMap<(String, String), usize> = HashMap::new();
    for error in &before {
        *known.entry(key(error)).or_default() += 1;
    }
    let mut take = |error: &FieldError| match known.get_mut(&key(error)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    };
    let found = found.into_iter().filter(|error| !take(error)).collect();
    let before = before.into_iter().filter(|error| take(error)).collect();
    (found, before)
}

/// The path of an error without indexes of lists; keys of maps stay.
fn unindexed(error: &FieldError) -> String {
    let mut parts = error.field.split('[');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(']') {
            Some((index, rest)) if index.bytes().all(|byte| byte.is_ascii_digit()) => path.push_str(rest),
            _ => {
                path.push('[');
                path.push_str(part);
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_ref::walk_as;
    use crate::field_rules::TextRules as _;
    use coracle_fields::core::v1::Pod;
    use serde_json::json;

    /// Containers have images, limits are not `x`.
    fn rule(object: &Value, errors: &mut Vec<FieldError>) {
        walk_as::<Pod>(object, errors, |pod| {
            for container in pod.spec().containers().items() {
                container.image().has_text("");
                for (_, limit) in container.resources().limits().entries() {
                    if limit.text() == "x" {
                        limit.invalid("not a limit");
                    }
                }
            }
        });
    }

    #[test]
    fn an_error_excuses_one_error() {
        let of = |images: &[&str]| {
            let containers: Vec<Value> = images.iter().map(|image| json!({"image": image})).collect();
            json!({"spec": {"containers": containers}})
        };
        let cases: [(&[&str], &[&str], &[usize]); 9] = [
            (&[""], &[""], &[]),
            (&["", "a"], &["a", ""], &[]),
            (&["", "a", ""], &["", ""], &[]),
            (&["", "a", ""], &["a"], &[]),
            (&["a"], &[""], &[0]),
            // The item that stayed is excused, the other is not.
            (&["", "a"], &["", ""], &[1]),
            (&["a", ""], &["", ""], &[0]),
            (&["", "a"], &["a", "", ""], &[2]),
            (&["", ""], &["", "a", "", "", ""], &[3, 4]),
        ];
        for (old, new, wrong) in cases {
            let mut errors = Vec::new();
            changed(rule, &of(new), &of(old), &mut errors);
            let fields: Vec<String> = errors.into_iter().map(|error| error.field).collect();
            let wrong: Vec<String> = wrong.iter().map(|at| format!("spec.containers[{at}].image")).collect();
            assert_eq!(fields, wrong, "{old:?} {new:?}");
        }
    }

    #[test]
    fn keys_of_maps_are_no_indexes() {
        let of = |key: &str| json!({"spec": {"containers": [{"image": "i", "resources": {"limits": {key: "x"}}}]}});
        for (old, new, wrong) in [("cpu", "cpu", 0), ("cpu", "memory", 1)] {
            let mut errors = Vec::new();
            changed(rule, &of(new), &of(old), &mut errors);
            assert_eq!(errors.len(), wrong, "{old} {new}");
        }
    }
}
