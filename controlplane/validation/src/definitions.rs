//! Field rules of custom resource definitions.

use super::conversion;
use super::field_ref::{Field, FieldRef, reported_at, walk_as};
use super::field_rules::TextRules as _;
use coracle_fields::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionVersion,
    CustomResourceSubresourceScale,
};
use coracle_fields::{List, Schema, Text};
use coracle_proto::names::{dns1035_label, dns1123_subdomain};
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::collections::HashSet;

/// Formats that a column of a table may name.
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// Longest warning about a deprecated version, in bytes.
const WARNING: usize = 256;

/// A CustomResourceDefinition; its schema is checked where schemas are understood.
pub fn definition(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<CustomResourceDefinition>(object, errors, |root| {
        let spec = root.spec();
        let expected = format!("{}.{}", spec.view().names().plural().text(), spec.view().group().text());
        let name = root.metadata().name();
        if !name.text().is_empty() && name.text() != expected {
            name.invalid("must be spec.names.plural+\".\"+spec.group");
        }
        let group = spec.group();
        if group.has_text("") {
            let wrong = dns1123_subdomain(group.text());
            if !wrong.is_empty() {
                group.invalid(wrong.join(","));
            } else if !group.text().contains('.') {
                group.invalid("should be a domain with at least one dot");
            }
        }
        spec.scope().required_one_of(&["Cluster", "Namespaced"]);
        versions(&spec.versions());
        definition_names(&spec.names());
        conversion::strategy(&spec);
        stored_versions(&root.status().stored_versions(), &spec.versions());
    });
}

fn versions(list: &Field<'_, List<CustomResourceDefinitionVersion>>) {
    let mut names = HashSet::new();
    let mut unique = true;
    for version in list.items() {
        unique &= names.insert(version.view().name().text());
        let name = version.name();
        let wrong = dns1035_label(name.text());
        if !wrong.is_empty() {
            name.invalid_as(name.text(), wrong.join(","));
        }
        let schema = version.schema().open_apiv3_schema();
        if !schema.is_set() {
            FieldRef::required(&schema, "");
        }
        let warning = version.deprecation_warning();
        if warning.is_set() && !version.view().deprecated().flag() {
            warning.invalid("can only be set for deprecated versions");
        }
        conversion::selectable(&version);
        for column in version.additional_printer_columns().items() {
            column.name().has_text("");
            column.type_().required_one_of(&["integer", "number", "string", "boolean", "date"]);
            let format = column.format();
            if !format.text().is_empty() && !COLUMN_FORMATS.contains(&format.text()) {
                format.invalid(format!("must be one of {}", COLUMN_FORMATS.join(",")));
            }
            let path = column.json_path();
            if path.has_text("") && !path.text().starts_with('.') {
                path.invalid("must be a simple json path starting with .");
            }
        }
    }
    if !unique {
        list.invalid("must contain unique version names");
    }
    if list.items().filter(|version| version.view().storage().flag()).count() != 1 {
        list.invalid("must have exactly one version marked as storage version");
    }
}

fn definition_names(names: &Field<'_, CustomResourceDefinitionNames>) {
    let mut resources = HashSet::new();
    for name in [names.plural(), names.singular()] {
        if name.has_text("") {
            let wrong = dns1035_label(name.text());
            if !wrong.is_empty() {
                name.invalid(wrong.join(","));
            }
            resources.insert(name.text());
        }
    }
    for name in names.short_names().items().chain(names.categories().items()) {
        let wrong = dns1035_label(name.text());
        if !wrong.is_empty() {
            name.invalid(wrong.join(","));
        }
    }
    for name in [names.kind(), names.list_kind()] {
        if name.has_text("") {
            let wrong = dns1035_label(&name.text().to_lowercase());
            if !wrong.is_empty() {
                name.invalid(format!("may have mixed case, but should otherwise match: {}", wrong.join(",")));
            }
        }
    }
    if !names.kind().is_empty() && names.kind().value == names.list_kind().value {
        names.list_kind().invalid("kind and listKind may not be the same");
    }
}

fn stored_versions(
    stored: &Field<'_, List<Text>>,
    versions: &Field<'_, List<CustomResourceDefinitionVersion>>,
) {
    if stored.is_empty() {
        return stored.with(&json!([])).invalid("must have at least one stored version");
    }
    let known: HashSet<&str> = versions.items().map(|version| version.view().name().text()).collect();
    for version in versions.items().filter(|version| version.view().storage().flag()) {
        if !stored.items().any(|name| name.value == version.name().value) {
            stored.invalid(format!("must have the storage version {}", version.view().name().text()));
        }
    }
    for name in stored.items().filter(|name| !known.contains(name.text())) {
        name.invalid(format!(
            "missing from spec.versions; {0} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {0} and removes {0} from status.storedVersions",
            name.text()
        ));
    }
}

/// What definitions may only keep, because they were stored before anybody checked it.
fn kept(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<CustomResourceDefinition>(object, errors, |root| {
        let spec = root.spec();
        let versions: Vec<Field<'_, CustomResourceDefinitionVersion>> = spec.versions().items().collect();
        versions.iter().for_each(warning);
        // Subresources that all versions have are reported where they stood before versions had their own.
        let shared =
            versions.windows(2).all(|pair| pair[0].subresources().value == pair[1].subresources().value);
        for version in versions.iter().take(if shared { 1 } else { usize::MAX }) {
            let own = version.subresources();
            let at = if shared { reported_at(&own, &spec.below("subresources")) } else { own };
            scale(&at.scale());
        }
        if spec.preserve_unknown_fields().flag() {
            spec.preserve_unknown_fields().invalid(
                "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
            );
        }
    });
}

/// What clients of a deprecated version are told.
fn warning(version: &Field<'_, CustomResourceDefinitionVersion>) {
    let warning = version.deprecation_warning();
    // That others have none is a rule of its own.
    if !warning.is_set() || !version.view().deprecated().flag() {
        return;
    }
    let text = warning.text();
    if text.len() > WARNING {
        warning.invalid(format!("must be <= {WARNING} characters long"));
    }
    if text.is_empty() {
        warning.invalid("must not be an empty string");
    }
    let hidden = |c: char| c.is_control() || (c.is_whitespace() && c != ' ');
    if let Some((at, _)) = text.char_indices().find(|(_, c)| hidden(*c)) {
        warning.invalid(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

/// Where `/scale` finds its values.
fn scale(scale: &Field<'_, CustomResourceSubresourceScale>) {
    if !scale.is_set() {
        return;
    }
    for (path, section) in [(scale.spec_replicas_path(), ".spec"), (scale.status_replicas_path(), ".status")]
    {
        if path.has_text("") {
            leads_below(&path, &[section], &format!("should be a json path under {section}"));
        }
    }
    let selector = scale.label_selector_path();
    if !selector.text().is_empty() {
        let why = "should be a json path under either .spec or .status";
        leads_below(&selector, &[".spec", ".status"], why);
    }
}

/// A simple path leads to something inside one of some sections.
fn leads_below(path: &Field<'_, Text>, sections: &[&str], why: &str) {
    let inside =
        |section: &&str| path.text().strip_prefix(*section).is_some_and(|rest| rest.starts_with('.'));
    if !path.text().starts_with('.') {
        path.invalid("must be a simple json path starting with .");
    } else if !sections.iter().any(inside) {
        path.invalid(why);
    }
}

/// A new definition.
pub fn new_definition(object: &Value, errors: &mut Vec<FieldError>) {
    kept(object, errors);
    super::api_approval::new_definition(object, errors);
    super::schemas::new(object, errors);
}

/// A definition that serves objects keeps its group, scope and names.
pub fn definition_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let before = CustomResourceDefinition::of(old);
    walk_as::<CustomResourceDefinition>(new, errors, |root| {
        let (spec, was) = (root.spec(), before.spec());
        spec.group().immutable(was.group());
        spec.names().plural().immutable(was.names().plural());
        if conversion::is_established(before) {
            spec.scope().immutable(was.scope());
            spec.names().kind().immutable(was.names().kind());
        }
        conversion::authority(&spec, before);
    });
    super::ratchet::changed(kept, new, old, errors);
    super::api_approval::changed(new, old, errors);
    super::schemas::changed(new, old, errors);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, errors};
    use super::*;

    #[test]
    fn what_may_only_be_kept() {
        let definition = |fields: Value, preserve: bool| {
            let mut version = json!({"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}});
            for (name, value) in fields.as_object().into_iter().flatten() {
                version[name] = value.clone();
            }
            json!({"spec": {"group": "demo.io", "preserveUnknownFields": preserve, "versions": [version]}})
        };
        let scale = |scale: Value| json!({"subresources": {"scale": scale}});
        let at = "spec.subresources.scale";
        let good = scale(json!({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.a.n",
            "labelSelectorPath": ".spec.s"}));
        assert_eq!(errors(new_definition, &definition(good.clone(), false)), [""; 0]);
        let long = "x".repeat(257);
        let cases = [
            (
                scale(json!({})),
                vec![
                    format!("{at}.specReplicasPath: Required value"),
                    format!("{at}.statusReplicasPath: Required value"),
                ],
            ),
            (
                scale(json!({"specReplicasPath": "spec.n", "statusReplicasPath": ".spec.n", "labelSelectorPath": ".a"})),
                vec![
                    format!("{at}.specReplicasPath: Invalid value: \"spec.n\": must be a simple json path starting with ."),
                    format!("{at}.statusReplicasPath: Invalid value: \".spec.n\": should be a json path under .status"),
                    format!("{at}.labelSelectorPath: Invalid value: \".a\": should be a json path under either .spec or .status"),
                ],
            ),
            (
                json!({"deprecated": true, "deprecationWarning": long}),
                vec![format!("spec.versions[0].deprecationWarning: Invalid value: \"{long}\": must be <= 256 characters long")],
            ),
            (
                json!({"deprecated": true, "deprecationWarning": ""}),
                vec!["spec.versions[0].deprecationWarning: Invalid value: \"\": must not be an empty string".to_owned()],
            ),
            (
                json!({"deprecated": true, "deprecationWarning": "a\n"}),
                vec!["spec.versions[0].deprecationWarning: Invalid value: \"a\\n\": must only contain printable UTF-8 characters; non-printable character found at index 1".to_owned()],
            ),
        ];
        for (fields, want) in cases {
            let bad = definition(fields, false);
            assert_eq!(errors(new_definition, &bad), want);
            assert_eq!(changes(definition_update, &bad, &bad), [""; 0], "what is there already may stay");
            assert_eq!(changes(definition_update, &bad, &definition(good.clone(), false)), want);
        }
        let open = definition(json!({}), true);
        let why = [
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ];
        assert_eq!(errors(new_definition, &open), why);
        assert_eq!(changes(definition_update, &open, &definition(json!({}), false)), why);
        assert_eq!(changes(definition_update, &open, &open), [""; 0]);
    }

    #[test]
    fn definitions() {
        let mut object = json!({"metadata": {"name": "boats.demo.io"}, "spec": {"group": "demo.io", "scope": "Namespaced",
            "names": {"plural": "boats", "kind": "Boat"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
        crate::defaults::extensions::definition(&mut object);
        assert_eq!(errors(definition, &object), [""; 0]);
        object["metadata"]["name"] = json!("x");
        object["spec"]["versions"][0]["storage"] = json!(false);
        let wrong = errors(definition, &object);
        assert_eq!(
            wrong[0],
            "metadata.name: Invalid value: \"x\": must be spec.names.plural+\".\"+spec.group"
        );
        assert!(wrong[1].ends_with("must have exactly one version marked as storage version"));
        let column =
            |format: &str| json!([{"name": "A", "type": "string", "format": format, "jsonPath": ".a"}]);
        for (format, is_known) in [("", true), ("date-time", true), ("name", false)] {
            object["spec"]["versions"][0]["additionalPrinterColumns"] = column(format);
            let said =
                errors(definition, &object).into_iter().any(|why| why.contains("must be one of byte,"));
            assert_eq!(said, !is_known, "{format:?}");
        }
    }
}
