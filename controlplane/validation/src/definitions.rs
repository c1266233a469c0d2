//! Field rules of custom resource definitions.

use super::conversion;
use super::field_ref::{Field, FieldRef, walk_as};
use super::field_rules::TextRules as _;
use coracle_fields::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionVersion,
};
use coracle_fields::{List, Schema, Text};
use coracle_proto::names::{dns1035_label, dns1123_subdomain};
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::collections::HashSet;

/// Formats that a column of a table may name.
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

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

/// A new definition.
pub fn new_definition(object: &Value, errors: &mut Vec<FieldError>) {
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
    super::api_approval::changed(new, old, errors);
    super::schemas::changed(new, old, errors);
}

#[cfg(test)]
mod tests {
    use super::super::testing::errors;
    use super::*;

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
