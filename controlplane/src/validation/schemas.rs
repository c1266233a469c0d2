//! Schemas of custom resources: structural, so that every value's type is known.

use super::spot::{Spot, walk};
use crate::tree::Tree;
use coracle_proto::status::FieldError;
use serde_json::Value;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

fn schema<'a>(version: &Spot<'a>) -> Spot<'a> {
    version.at("schema.openAPIV3Schema")
}

/// The schemas of a new definition.
pub fn new(definition: &Value, errors: &mut Vec<FieldError>) {
    walk(definition, errors, |root| {
        let versions: Vec<Spot<'_>> = root.each("spec.versions").collect();
        // One schema for all versions is reported where it stood before versions had their own.
        let shared = versions.windows(2).all(|pair| schema(&pair[0]).value == schema(&pair[1]).value);
        for version in versions.iter().take(if shared { 1 } else { usize::MAX }) {
            let own = schema(version);
            let at = if shared { root.at("spec.validation.openAPIV3Schema").with(own.value) } else { own };
            if at.value.is_object() {
                node(&at, "at the root");
            }
        }
    });
}

/// The schemas of a changed definition; what was wrong before may stay.
pub fn changed(new_one: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mut before = Vec::new();
    new(old, &mut before);
    if before.is_empty() {
        new(new_one, errors);
    }
}

fn node(schema: &Spot<'_>, place: &str) {
    let kind = schema.at("type");
    let free = schema.value.flag("x-kubernetes-int-or-string")
        || schema.value.flag("x-kubernetes-preserve-unknown-fields");
    let root = place == "at the root";
    match kind.text() {
        "" if root || !free => kind.required(&format!("must not be empty {place}")),
        "" => {}
        "object" => {}
        text if root && TYPES.contains(&text) => kind.invalid("must be object at the root"),
        _ => kind.one_of(&TYPES),
    }
    if kind.text() == "array" && !schema.at("items").is_set() {
        schema.at("items").required("must be specified");
    }
    let fields = schema.at("properties");
    for (name, field) in fields.entries() {
        // What every object has is described by the server.
        if !(root && matches!(name, "apiVersion" | "kind" | "metadata")) {
            node(&fields.key(name).with(field.value), "for specified object fields");
        }
    }
    if schema.at("items").value.is_object() {
        node(&schema.at("items"), "for specified array items");
    }
    if schema.at("additionalProperties").value.is_object() {
        node(&schema.at("additionalProperties"), "for specified object fields");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, errors};
    use super::*;
    use serde_json::json;

    fn definition(properties: Value) -> Value {
        json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"metadata": {}, "spec": {"type": "object", "properties": properties}}}}}]}})
    }

    #[test]
    fn every_type_is_known() {
        let good = definition(json!({
            "a": {"type": "array", "items": {"type": "string"}}, "b": {"x-kubernetes-int-or-string": true},
            "c": {"x-kubernetes-preserve-unknown-fields": true},
            "d": {"type": "object", "additionalProperties": {"type": "integer"}},
        }));
        assert_eq!(errors(new, &good), [""; 0]);
        let at = "spec.validation.openAPIV3Schema.properties[spec].properties[a]";
        for (field, want) in [
            (
                json!({"type": "foo"}),
                ".type: Unsupported value: \"foo\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ),
            (json!({"type": "array"}), ".items: Required value: must be specified"),
            (json!({}), ".type: Required value: must not be empty for specified object fields"),
            (
                json!({"type": "array", "items": {}}),
                ".items.type: Required value: must not be empty for specified array items",
            ),
        ] {
            let bad = definition(json!({"a": field}));
            assert_eq!(errors(new, &bad), [format!("{at}{want}")]);
            assert_eq!(changes(changed, &bad, &good).len(), 1);
            assert_eq!(changes(changed, &bad, &bad), [""; 0], "what is there already may stay");
        }
    }
}
