//! From a CustomResourceDefinition to rows: one per version that is served.

use super::conversion::Webhook;
use super::{Custom, Scale, Version, at, defaults, rules};
use crate::registry::columns;
use crate::registry::kinds::{ALL_VERBS, Cell, Column, Field, Kind, Scope};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

type Schemas = Arc<HashMap<String, Arc<Value>>>;

/// What is left of the verbs when the definition is going.
const ENDING_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The rows of a definition, the stored version first.
pub fn of(definition: &Value) -> Vec<Kind> {
    let versions = definition["spec"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
    let stored = versions.iter().find(|version| version["storage"] == true);
    let stored = stored.and_then(|version| version["name"].as_str()).unwrap_or_default();
    let schemas: Schemas = Arc::new(
        versions.iter().map(|version| (text(&version["name"]), schema(definition, version))).collect(),
    );
    let all = Arc::new(versions.iter().map(offered).collect::<Vec<_>>());
    let mut served: Vec<&Value> = versions.iter().filter(|version| version["served"] == true).collect();
    served.sort_by_key(|version| version["name"] != stored);
    served.into_iter().map(|version| row(definition, version, stored, &schemas, &all)).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn offered(version: &Value) -> Version {
    let subresources = ["status", "scale"].into_iter().filter(|sub| version["subresources"][sub].is_object());
    Version { name: text(&version["name"]), subresources: subresources.collect() }
}

fn schema(definition: &Value, version: &Value) -> Arc<Value> {
    let mut schema = version["schema"]["openAPIV3Schema"].clone();
    if definition["spec"]["preserveUnknownFields"] == true || schema.is_null() {
        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
    }
    Arc::new(schema)
}

fn row(
    definition: &Value,
    version: &Value,
    stored: &str,
    schemas: &Schemas,
    versions: &Arc<Vec<Version>>,
) -> Kind {
    let (spec, names) = (&definition["spec"], &definition["spec"]["names"]);
    let list = |value: &Value| -> Vec<String> { value.as_array().into_iter().flatten().map(text).collect() };
    let (group, name) = (text(&spec["group"]), text(&version["name"]));
    let mut kind = Kind::new(&group, &name, &text(&names["kind"]), &text(&names["plural"]));
    kind.singular = text(&names["singular"]);
    kind.short_names = list(&names["shortNames"]);
    kind.categories = list(&names["categories"]);
    kind.schema = schema_name(&group, &name, &kind.kind);
    kind.generation = true;
    kind.conditional = true;
    kind.verbs = if definition["metadata"]["deletionTimestamp"].is_null() { ALL_VERBS } else { ENDING_VERBS };
    if spec["scope"] == "Cluster" {
        kind.scope = Scope::Cluster;
    }
    let subresources = &version["subresources"];
    let status = subresources["status"].is_object();
    if status {
        kind = kind.status_only();
    }
    let scale = subresources["scale"].as_object().map(|paths| {
        let path = |name: &str| paths.get(name).map(text).unwrap_or_default();
        Scale {
            spec: path("specReplicasPath"),
            status: path("statusReplicasPath"),
            selector: path("labelSelectorPath"),
        }
    });
    if scale.is_some() {
        kind = kind.scale();
    }
    kind.columns = printed(version);
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    for path in selectable.filter_map(|field| field["jsonPath"].as_str()) {
        let owned = path.to_owned();
        let read = move |object: &Value| match at(object, &owned) {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        kind.fields.push(Field::new(path.trim_start_matches('.'), read));
    }
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
        webhook: Webhook::of(&spec["conversion"]).filter(|_| several),
        memo: Default::default(),
        fills,
        status,
        scale,
        rules,
    }));
    kind
}

/// The name of the schema in OpenAPI documents: `io.example.stable.v1.CronTab`.
fn schema_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}

fn printed(version: &Value) -> Vec<Column> {
    let own = version["additionalPrinterColumns"].as_array().map_or(&[][..], Vec::as_slice);
    let mut all = vec![columns::name()];
    if own.is_empty() {
        all.push(columns::age());
        return all;
    }
    for column in own {
        let kind = match column["type"].as_str() {
            Some("integer") => "integer",
            Some("number") => "number",
            Some("boolean") => "boolean",
            Some("date") => "date",
            _ => "string",
        };
        all.push(Column {
            name: column["name"].as_str().unwrap_or_default().to_owned(),
            kind,
            format: "",
            priority: column["priority"].as_i64().unwrap_or(0) as i32,
            cell: Cell::Path(column["jsonPath"].as_str().unwrap_or_default().to_owned()),
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

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
