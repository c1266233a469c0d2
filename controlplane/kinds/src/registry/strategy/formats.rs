//! Warnings about formats in schemas of custom resources that mean nothing to the server.

use coracle_fields::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use coracle_fields::{Json, Schema, View};
use serde_json::Value;

/// Formats of texts, without their dashes.
const TEXTS: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// A CustomResourceDefinition: formats that are unknown, and that it did not have before.
pub fn definition(object: &Value, old: Option<&Value>) -> Vec<String> {
    let before = old.map(unknown).unwrap_or_default();
    let new = unknown(object).into_iter().filter(|format| !before.contains(format));
    new.map(|format| format!("unrecognized format {format:?}")).collect()
}

fn unknown(definition: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    for version in CustomResourceDefinition::of(definition).spec().versions().items() {
        collect(version.schema().open_apiv3_schema(), &mut found);
    }
    found
}

/// The unknown formats of a schema and of all below it.
fn collect<'a>(schema: View<'a, JSONSchemaProps>, found: &mut Vec<&'a str>) {
    let format = schema.format().text();
    if !format.is_empty() && !is_known(schema.type_().text(), format) {
        found.push(format);
    }
    let either: [View<'a, Json>; 4] = [
        schema.items().erased(),
        schema.not().erased(),
        schema.additional_properties().erased(),
        schema.additional_items().erased(),
    ];
    for below in either.into_iter().filter(View::is_object) {
        collect(below.as_type(), found);
    }
    for alternatives in [schema.all_of(), schema.any_of(), schema.one_of()] {
        alternatives.items().for_each(|below| collect(below, found));
    }
    for named in [schema.properties(), schema.pattern_properties(), schema.definitions()] {
        named.entries().for_each(|(_, below)| collect(below, found));
    }
}

fn is_known(kind: &str, format: &str) -> bool {
    match kind {
        "" | "string" => TEXTS.contains(&format.replace('-', "").as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn formats_that_mean_nothing() {
        let of = |properties: Value| {
            let schema = json!({"type": "object", "properties": properties});
            json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}})
        };
        let known = of(
            json!({"a": {"type": "string", "format": "date-time"}, "b": {"type": "integer", "format": "int32"},
            "c": {"type": "string", "format": "k8s-short-name"}, "d": {"type": "number", "format": "double"}}),
        );
        assert_eq!(definition(&known, None), [""; 0]);
        let old = of(json!({"a": {"type": "integer", "format": "uint8"}}));
        assert_eq!(definition(&old, None), ["unrecognized format \"uint8\""]);
        let new = of(
            json!({"a": {"type": "integer", "format": "uint8"}, "b": {"type": "array", "items": {"type": "string",
            "format": "semver"}}, "c": {"type": "boolean", "format": "byte"}}),
        );
        let expected = ["unrecognized format \"semver\"", "unrecognized format \"byte\""];
        assert_eq!(definition(&new, Some(&old)), expected);
    }
}
