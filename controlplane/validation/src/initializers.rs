//! Field rules of initializers: their configurations, and `metadata.initializers` of objects.

use super::extensions::qualified_domain;
use super::field_errors::unique;
use super::field_ref::{Field, walk_as};
use coracle_fields::initializers::{InitializerConfiguration, Rule};
use coracle_fields::meta::{Initializer, Initializers, PartialObjectMetadata};
use coracle_fields::{List, Schema as _, View};
use coracle_proto::status::FieldError;
use serde_json::Value;

/// More initializers than this are refused, in a configuration and of an object.
pub const MOST: usize = 64;

/// An InitializerConfiguration.
pub fn configuration(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<InitializerConfiguration>(object, errors, |root| {
        let all = root.initializers();
        if all.len() > MOST {
            return all.too_many(MOST);
        }
        unique(all.items().map(|one| one.name()));
        for one in all.items() {
            qualified_domain(&one.name());
            one.rules().items().for_each(|of| rule(&of));
        }
    });
}

fn rule(rule: &Field<'_, Rule>) {
    let (groups, versions, resources) = (rule.api_groups(), rule.api_versions(), rule.resources());
    for (list, what) in [(&groups, "API groups"), (&versions, "API versions"), (&resources, "resources")] {
        if list.is_empty() {
            list.required("");
        }
        if list.len() > 1 && list.items().any(|item| item.text() == "*") {
            list.invalid(format!("if '*' is present, must not specify other {what}"));
        }
    }
    for text in versions.items().chain(resources.items()).filter(|text| text.text().is_empty()) {
        text.required("");
    }
    for resource in resources.items().filter(|resource| resource.text().contains('/')) {
        resource.invalid("must not specify subresources");
    }
}

/// `metadata.initializers` of a new object.
pub fn of_object(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<PartialObjectMetadata>(object, errors, |object| always(&object.metadata().initializers()));
}

fn always(initializers: &Field<'_, Initializers>) {
    let pending = initializers.pending();
    if pending.len() > MOST {
        return pending.too_many(MOST);
    }
    unique(pending.items().map(|one| one.name()));
    pending.items().for_each(|one| qualified_domain(&one.name()));
    let result = initializers.result();
    if result.is_set() && result.status().text() != "Failure" {
        result.status().invalid("must be 'Failure'");
    }
}

/// A change of `metadata.initializers`. The one whose turn it is may remove itself, or set a result; others wait for their turn.
pub fn of_change(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = PartialObjectMetadata::of(old).metadata().initializers();
    walk_as::<PartialObjectMetadata>(new, errors, |object| {
        let new = object.metadata().initializers();
        if !old.is_set() {
            if new.is_set() {
                new.invalid("field is immutable once initialization has completed");
            }
            return;
        }
        if old.result().is_set() {
            new.result().immutable(old.result());
            return;
        }
        in_turn(&new.pending(), old.pending());
        always(&new);
    });
}

/// The pending initializers are those of before, or those of before without the first.
fn in_turn(new: &Field<'_, List<Initializer>>, old: View<'_, List<Initializer>>) {
    let names = |list: View<'_, List<Initializer>>| -> Vec<String> {
        list.items().map(|one| one.name().text().to_owned()).collect()
    };
    let (now, before) = (names(new.view()), names(old));
    let removed = before.len().saturating_sub(now.len());
    if removed > 1 || now[..] != before[removed..] {
        let first = before.first().map_or("", String::as_str);
        new.invalid(format!("only the first pending initializer, {first:?}, may be removed"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(rules: impl FnOnce(&mut Vec<FieldError>)) -> Vec<String> {
        let mut errors = Vec::new();
        rules(&mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn configurations() {
        let one = |name: &str, rule: Value| json!({"initializers": [{"name": name, "rules": [rule]}]});
        let pods = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        let said = |object: Value| texts(|errors| configuration(&object, errors));
        assert_eq!(said(one("a.example.com", pods.clone())), [""; 0]);
        let short = said(one("example.com", pods));
        assert!(short[0].ends_with("should be a domain with at least three segments separated by dots"));
        let odd = json!({"apiGroups": [], "apiVersions": ["*", "v1"], "resources": ["pods/status"]});
        assert_eq!(
            said(one("a.example.com", odd)),
            [
                "initializers[0].rules[0].apiGroups: Required value",
                "initializers[0].rules[0].apiVersions: Invalid value: [\"*\",\"v1\"]: if '*' is present, must not specify other API versions",
                "initializers[0].rules[0].resources[0]: Invalid value: \"pods/status\": must not specify subresources",
            ]
        );
    }

    fn object(initializers: Value) -> Value {
        json!({"metadata": {"initializers": initializers}})
    }

    fn pending(names: &[&str]) -> Value {
        json!({"pending": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()})
    }

    #[test]
    fn one_after_the_other() {
        let old = pending(&["a.example.com", "b.example.com", "c.example.com"]);
        let changed = |old: &Value, new: Value| {
            texts(|errors| of_change(&object(new), &object(old.clone()), errors)).len()
        };
        for (names, errors) in [
            (&["a.example.com", "b.example.com", "c.example.com"][..], 0),
            (&["b.example.com", "c.example.com"], 0),
            (&["a.example.com", "c.example.com"], 1),
            (&["c.example.com"], 1),
            (&["b.example.com", "c.example.com", "d.example.com"], 1),
            (&["c.example.com", "b.example.com"], 1),
        ] {
            assert_eq!(changed(&old, pending(names)), errors, "{names:?}");
        }
        assert_eq!(changed(&old, Value::Null), 1, "others are pending");
        assert_eq!(changed(&pending(&["a.example.com"]), Value::Null), 0);
        assert_eq!(changed(&Value::Null, pending(&["a.example.com"])), 1, "it is initialized");
        let mut failed = old.clone();
        failed["result"] = json!({"status": "Failure", "message": "no"});
        assert_eq!((changed(&old, failed.clone()), changed(&failed, old.clone())), (0, 1));
        failed["result"]["status"] = json!("Success");
        assert_eq!(changed(&old, failed), 1);
    }
}
