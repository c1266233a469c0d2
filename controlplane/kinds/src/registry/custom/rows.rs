//! From a CustomResourceDefinition to rows: one per version that is served.

use super::conversion::Webhook;
use super::{Custom, Scale, Version, at, defaults, rules};
use crate::object::field::Field;
use crate::registry::columns::{self, Cell, Column};
use crate::registry::kinds::{ALL_VERBS, Kind, Scope};
use coracle_fields::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceSubresources, JSONSchemaProps,
};
use coracle_fields::{List, Schema, Text, View};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

type Schemas = Arc<HashMap<String, Arc<Value>>>;
type Definition<'a> = View<'a, CustomResourceDefinition>;
type Offered<'a> = View<'a, CustomResourceDefinitionVersion>;

/// What is left of the verbs when the definition is going.
const ENDING_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The rows of a definition, the stored version first.
pub fn of(definition: &Value) -> Vec<Kind> {
    let definition = CustomResourceDefinition::of(definition);
    let versions: Vec<Offered<'_>> = definition.spec().versions().items().collect();
    let stored = versions.iter().find(|version| version.storage().flag());
    let stored = stored.map_or("", |version| version.name().text());
    let schemas = versions.iter().map(|version| (text(version.name()), schema(definition, *version)));
    let schemas: Schemas = Arc::new(schemas.collect());
    let all = Arc::new(versions.iter().map(|version| offered(*version)).collect::<Vec<_>>());
    let mut served: Vec<Offered<'_>> =
        versions.into_iter().filter(|version| version.served().flag()).collect();
    served.sort_by_key(|version| version.name() != stored);
    served.into_iter().map(|version| row(definition, version, stored, &schemas, &all)).collect()
}

fn text(place: View<'_, Text>) -> String {
    place.text().to_owned()
}

fn offered(version: Offered<'_>) -> Version {
    let of = version.subresources();
    let subresources = [("status", of.status().is_set()), ("scale", of.scale().is_set())];
    let subresources = subresources.into_iter().filter(|(_, there)| *there).map(|(name, _)| name);
    Version { name: text(version.name()), subresources: subresources.collect() }
}

fn schema(definition: Definition<'_>, version: Offered<'_>) -> Arc<Value> {
    let mut schema = version.schema().open_apiv3_schema().to_value();
    if definition.spec().preserve_unknown_fields().flag() || schema.is_null() {
        JSONSchemaProps::edit(&mut schema).x_kubernetes_preserve_unknown_fields().set(true);
    }
    Arc::new(schema)
}

fn row(
    definition: Definition<'_>,
    version: Offered<'_>,
    stored: &str,
    schemas: &Schemas,
    versions: &Arc<Vec<Version>>,
) -> Kind {
    let (spec, names) = (definition.spec(), definition.spec().names());
    let list = |list: View<'_, List<Text>>| -> Vec<String> { list.texts().map(str::to_owned).collect() };
    let (group, name) = (text(spec.group()), text(version.name()));
    let mut kind = Kind::new(&group, &name, names.kind().text(), names.plural().text());
    kind.singular = text(names.singular());
    kind.short_names = list(names.short_names());
    kind.categories = list(names.categories());
    kind.schema = schema_name(&group, &name, &kind.kind);
    kind.generation = true;
    kind.conditional = true;
    kind.verbs = if definition.metadata().deletion_timestamp().is_set() { ENDING_VERBS } else { ALL_VERBS };
    if spec.scope() == "Cluster" {
        kind.scope = Scope::Cluster;
    }
    let subresources = version.subresources();
    let status = subresources.status().is_set();
    if status {
        kind = kind.status_only();
    }
    let scale = scale(subresources);
    if scale.is_some() {
        kind = kind.scale();
    }
    kind.columns = printed(version);
    kind.fields.extend(
        version.selectable_fields().items().filter_map(|field| field.json_path().get()).map(selectable),
    );
    let schema = schemas.get(&name).cloned().unwrap_or_default();
    let (rules, fills) = (rules::of(&schema), defaults::fills(&schema));
    let several = schemas.len() > 1;
    // As stored bytes have it.
    let head = |version: &str| format!("{{\"kind\":\"{}\",\"apiVersion\":\"{group}/{version}\",", kind.kind);
    kind.custom = Some(Arc::new(Custom {
        schema,
        schemas: schemas.clone(),
        versions: versions.clone(),
        storage_version: stored.to_owned(),
        several,
        heads: (head(&name), head(stored)),
        webhook: Webhook::of(spec.conversion()).filter(|_| several),
        memo: Default::default(),
        fills,
        status,
        scale,
        rules,
    }));
    kind
}

fn scale(subresources: View<'_, CustomResourceSubresources>) -> Option<Scale> {
    let paths = subresources.scale();
    paths.is_set().then(|| Scale {
        spec: text(paths.spec_replicas_path()),
        status: text(paths.status_replicas_path()),
        selector: text(paths.label_selector_path()),
    })
}

/// A field that selectors may name, by its path.
fn selectable(path: &str) -> Field {
    let owned = path.to_owned();
    let read = move |object: &Value| match at(object, &owned) {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Field::new(path.trim_start_matches('.'), read)
}

/// The name of the schema in OpenAPI documents: `io.example.stable.v1.CronTab`.
fn schema_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}

fn printed(version: Offered<'_>) -> Vec<Column> {
    let own = version.additional_printer_columns();
    if own.is_empty() {
        return columns::described("", vec![columns::name(), columns::age()]);
    }
    let mut all = columns::described("", vec![columns::name()]);
    for column in own.items() {
        let kind = match column.type_().text() {
            "integer" => "integer",
            "number" => "number",
            "boolean" => "boolean",
            "date" => "date",
            _ => "string",
        };
        let path = text(column.json_path());
        let description = match column.description().text() {
            "" => format!("Value at the JSONPath {path} of the custom resource."),
            own => own.to_owned(),
        };
        all.push(Column {
            name: text(column.name()),
            kind,
            format: format(column.format().text()),
            description: description.into(),
            priority: column.priority().or(0) as i32,
            cell: Cell::Path(path),
        });
    }
    all
}

/// The formats that a definition may name.
fn format(name: &str) -> &'static str {
    const ALL: [&str; 8] = ["int32", "int64", "float", "double", "byte", "date", "date-time", "password"];
    ALL.into_iter().find(|known| *known == name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_definition_makes_rows() {
        let definition = json!({"metadata": {"name": "crontabs.stable.example.com"}, "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "shortNames": ["ct"]},
            "versions": [
                {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                 "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                 "additionalPrinterColumns": [{"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"}]},
                {"name": "v0", "served": false, "storage": false}]}});
        let rows = of(&definition);
        assert_eq!(rows.iter().map(|row| row.version.as_str()).collect::<Vec<_>>(), ["v1", "v1beta1"]);
        let v1 = &rows[0];
        assert_eq!(
            (v1.schema.as_str(), v1.columns.len(), v1.subresources.len()),
            ("com.example.stable.v1.CronTab", 2, 2)
        );
        assert!(v1.conditional, "a replacement must say what it replaces");
        assert!(v1.namespaced() && v1.custom.as_ref().is_some_and(|custom| custom.several && custom.status));
        assert_eq!(rows[0].prefix(), rows[1].prefix());
        let old = json!({"metadata": {"labels": {"a": "old"}, "finalizers": ["example.com/hold"]}});
        let mut new =
            json!({"metadata": {"labels": {"a": "new"}, "managedFields": [{}]}, "spec": {}, "status": {}});
        v1.prepare_update("status", &mut new, &old);
        let kept = json!({"labels": {"a": "old"}, "finalizers": ["example.com/hold"], "managedFields": [{}]});
        assert_eq!(
            new,
            json!({"metadata": kept, "status": {}}),
            "a change of the status changes nothing else"
        );
    }
}
