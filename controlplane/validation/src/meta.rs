//! Metadata of every object.

use super::field_ref::{Field, reported_at, walk_as};
use super::field_rules::{NumberRules as _, TextRules as _};
use super::names::{self, Rule};
use coracle_fields::meta::{
    Condition, LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference, PartialObjectMetadata,
};
use coracle_fields::{List, Map, Schema as _, Text, View};
use coracle_proto::names::{label_value, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::BTreeSet;

/// Keeps a definition until its objects are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// 256 KiB for all annotations together.
const ANNOTATIONS_MAX: usize = 256 * 1024;
/// How terms of selectors compare.
const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Metadata of a new object.
pub fn check(object: &Value, namespaced: bool, rule: Rule, errors: &mut Vec<FieldError>) {
    walk_as::<PartialObjectMetadata>(object, errors, |object| {
        let meta = object.metadata();
        let prefix = meta.generate_name();
        if !prefix.text().is_empty() {
            prefix.all_good(rule(prefix.text(), true));
        }
        let name = meta.name();
        if name.text().is_empty() {
            name.required("name or generateName is required");
        } else {
            name.all_good(rule(name.text(), false));
        }
        let namespace = meta.namespace();
        match (namespaced, namespace.text()) {
            (true, "") => namespace.required(""),
            (true, text) => namespace.all_good(names::label(text, false)),
            (false, "") => {}
            (false, _) => namespace.forbidden("not allowed on this type"),
        }
        always(&meta);
    });
}

/// Metadata of a changed object.
pub fn check_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = PartialObjectMetadata::of(old).metadata();
    walk_as::<PartialObjectMetadata>(new, errors, |object| {
        let meta = object.metadata();
        if old.deletion_timestamp().is_set() {
            no_new_finalizers(&meta.finalizers(), old.finalizers());
        }
        if meta.resource_version().text().is_empty() {
            meta.resource_version().invalid_as("", "must be specified for an update");
        }
        if meta.generation().or(0) < old.generation().or(0) {
            meta.generation().invalid("must not be decremented");
        }
        meta.name().immutable(old.name());
        meta.namespace().immutable(old.namespace());
        meta.uid().immutable(old.uid());
        meta.creation_timestamp().immutable(old.creation_timestamp());
        meta.deletion_timestamp().immutable(old.deletion_timestamp());
        meta.deletion_grace_period_seconds().immutable(old.deletion_grace_period_seconds());
        always(&meta);
    });
}

fn no_new_finalizers(new: &Field<'_, List<Text>>, old: View<'_, List<Text>>) {
    let added: BTreeSet<&str> = new.view().texts().filter(|name| !old.has(name)).collect();
    if !added.is_empty() {
        let list: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
        new.forbidden(format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            list.join(", ")
        ));
    }
}

/// What holds for new and for changed objects.
fn always(meta: &Field<'_, ObjectMeta>) {
    meta.generation().non_negative();
    labels(&meta.labels());
    annotations(&meta.annotations());
    owners(&meta.owner_references());
    finalizers(&meta.finalizers());
}

/// Keys are qualified names, values are label values.
pub fn labels(labels: &Field<'_, Map<Text>>) {
    for (key, value) in labels.view().entries() {
        for message in qualified_name(key) {
            labels.invalid_as(key, message);
        }
        for message in label_value(value.text()) {
            labels.invalid_as(value.text(), message);
        }
    }
}

/// Keys are qualified names in any case, and all together are not too big.
pub fn annotations(annotations: &Field<'_, Map<Text>>) {
    let mut size = 0;
    for (key, value) in annotations.view().entries() {
        for message in qualified_name(&key.to_lowercase()) {
            annotations.invalid_as(key, message);
        }
        size += key.len() + value.text().len();
    }
    if size > ANNOTATIONS_MAX {
        annotations.too_long(ANNOTATIONS_MAX);
    }
}

fn owners(owners: &Field<'_, List<OwnerReference>>) {
    let mut controller = String::new();
    for owner in owners.items() {
        // Upstream reports owners at the list, not at the item.
        let owner = reported_at(&owner, owners);
        let version = owner.view().api_version().text();
        if version.is_empty() || version.ends_with('/') {
            owner.api_version().invalid_as(version, "version must not be empty");
        }
        for field in [owner.kind(), owner.name(), owner.uid()] {
            if field.text().is_empty() {
                field.invalid_as("", "must not be empty");
            }
        }
        let (kind, name) = (owner.view().kind().text(), owner.view().name().text());
        if version == "v1" && kind == "Event" {
            owner.invalid("/v1, Kind=Event is disallowed from being an owner");
        }
        if owner.view().controller().flag() {
            let name = format!("{kind}/{name}");
            if controller.is_empty() {
                controller = name;
            } else {
                owners.invalid(format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {controller} and {name}"
                ));
            }
        }
    }
}

fn finalizers(finalizers: &Field<'_, List<Text>>) {
    let mut both = (false, false);
    for name in finalizers.view().texts() {
        for message in qualified_name(name) {
            finalizers.invalid_as(name, message);
        }
        // The core namespace takes plain names that upstream has always had; others must be qualified.
        if !name.contains('/') && !matches!(name, ORPHAN | FOREGROUND | "kubernetes" | CLEANUP) {
            finalizers
                .invalid_as(name, "name is neither a standard finalizer name nor is it fully qualified");
        }
        both = (both.0 || name == ORPHAN, both.1 || name == FOREGROUND);
    }
    if both == (true, true) {
        finalizers.invalid(format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set"));
    }
}

/// A label selector.
pub fn selector(selector: &Field<'_, LabelSelector>) {
    labels(&selector.match_labels());
    selector.match_expressions().items().for_each(|term| requirement(&term, false));
}

/// A term of a label selector. Those that are only asked about may have operators of newer versions.
pub(super) fn requirement(term: &Field<'_, LabelSelectorRequirement>, takes_any_operator: bool) {
    let (operator, values) = (term.operator(), term.values());
    match_values(operator.text(), &values);
    if !takes_any_operator && !OPERATORS.contains(&operator.text()) {
        operator.invalid("not a valid selector operator");
    }
    let key = term.key();
    for message in qualified_name(key.text()) {
        key.invalid_as(key.text(), message);
    }
    for value in values.items() {
        value.follows(label_value);
    }
}

/// Terms of selectors have values exactly if their operator compares with some.
pub(super) fn match_values(operator: &str, values: &Field<'_, List<Text>>) {
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            values.required("must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        _ => {}
    }
}

/// Conditions of the newer kinds, which all look alike.
pub fn conditions(list: &Field<'_, List<Condition>>) {
    let mut seen = BTreeSet::new();
    for condition in list.items() {
        let kind = condition.type_();
        if !seen.insert(kind.text()) {
            kind.duplicate();
        }
        kind.follows(qualified_name);
        condition.status().one_of(&["False", "True", "Unknown"]);
        if condition.observed_generation().int().is_some_and(|number| number < 0) {
            condition.observed_generation().invalid("must be greater than or equal to zero");
        }
        if !condition.last_transition_time().is_set() {
            condition.last_transition_time().required("");
        }
        let reason = condition.reason();
        if reason.has_text("") && reason.text().len() > 1024 {
            reason.too_long(1024);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn new_objects() {
        let good = json!({"metadata": {"name": "a", "namespace": "n", "labels": {"x/y": "z"}, "finalizers": ["a.b/c"]}});
        let mut errors = Vec::new();
        check(&good, true, names::subdomain, &mut errors);
        assert!(errors.is_empty(), "{errors:?}");
        let bad = json!({"metadata": {"namespace": "n", "labels": {"-": "ok"}, "finalizers": ["plain"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1", "controller": true},
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "b", "uid": "", "controller": true}]}});
        check(&bad, false, names::label, &mut errors);
        let texts = texts(&errors);
        assert_eq!(texts[0], "metadata.name: Required value: name or generateName is required");
        assert_eq!(texts[1], "metadata.namespace: Forbidden: not allowed on this type");
        assert!(texts[2].starts_with("metadata.labels: Invalid value: \"-\": name part must consist of"));
        assert_eq!(texts[3], "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty");
        assert!(texts[4].ends_with("Found \"true\" in references for Pod/a and ReplicaSet/b"));
        assert!(texts[5].contains("name is neither a standard finalizer name nor is it fully qualified"));
    }

    #[test]
    fn changes() {
        let old = json!({"metadata": {"name": "a", "uid": "1", "resourceVersion": "5", "generation": 2,
            "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["a/b"]}});
        let mut errors = Vec::new();
        check_update(&old, &old, &mut errors);
        assert!(errors.is_empty(), "{errors:?}");
        let new = json!({"metadata": {"name": "b", "uid": "1", "generation": 2,
            "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["a/b", "c/d"]}});
        check_update(&new, &old, &mut errors);
        assert_eq!(
            texts(&errors),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"c/d\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.name: Invalid value: \"b\": field is immutable",
            ]
        );
    }
}
