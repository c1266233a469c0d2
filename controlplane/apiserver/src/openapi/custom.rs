//! Schemas of custom resources as published in OpenAPI documents: in OpenAPI 2 without the keywords that it lacks, or
//! that kubectl would use to reject unknown fields.

use super::descriptions::Descriptions;
use super::schemas::Dialect;
use serde_json::{Map, Value, json};

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const OPEN: &str = "x-kubernetes-preserve-unknown-fields";
/// A type whose own fields are described as those of every object.
const EXAMPLE: &str = "io.k8s.api.core.v1.ConfigMap";

/// The schema of a custom resource.
pub fn definition(schema: &Value, dialect: Dialect, docs: &Descriptions) -> Value {
    // Properties, even those that every object has, would tell kubectl that there are no others.
    if dialect == Dialect::V2 && schema[OPEN] == true {
        return json!({"type": "object"});
    }
    let mut made = schema.clone();
    if dialect == Dialect::V2 {
        simplify(&mut made);
    }
    embed(&mut made, dialect, docs);
    add_own(&mut made["properties"], dialect, docs);
    made
}

/// The fields that every object has.
fn add_own(properties: &mut Value, dialect: Dialect, docs: &Descriptions) {
    for (name, of) in [
        ("apiVersion", json!({"type": "string"})),
        ("kind", json!({"type": "string"})),
        ("metadata", dialect.reference(OBJECT_META)),
    ] {
        // What stands beside a reference counts in neither version; in the third there is a way around.
        properties[name] = match of.get("$ref").is_some() && dialect == Dialect::V3 {
            true => json!({"allOf": [of]}),
            false => of,
        };
        if let Some(text) = docs.get(EXAMPLE, name) {
            properties[name]["description"] = Value::from(text);
        }
    }
}

/// Every schema right inside one.
fn inside(schema: &mut Map<String, Value>, mut each: impl FnMut(&mut Value)) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(&mut each);
    }
    for one in ["items", "additionalProperties"] {
        if let Some(of) = schema.get_mut(one).filter(|of| of.is_object()) {
            each(of);
        }
    }
}

fn simplify(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    for junctor in ["allOf", "oneOf", "anyOf", "not"] {
        map.remove(junctor);
    }
    let nullable = map.remove("nullable") == Some(Value::Bool(true));
    let open = map.get(OPEN) == Some(&Value::Bool(true));
    if nullable || open {
        map.remove("items");
        map.remove("properties");
    }
    let bare_list = map.get("type").is_some_and(|of| of == "array") && !map.contains_key("items");
    let open_object = open && map.get("type").is_some_and(|of| of == "object");
    if nullable || bare_list || open_object {
        map.remove("type");
    }
    require_no_null(map);
    inside(map, simplify);
}

/// What may be null need not be there.
fn require_no_null(map: &mut Map<String, Value>) {
    let nullable = |of: Option<&Value>| of.is_some_and(|of| of["nullable"] == true);
    let values = nullable(map.get("additionalProperties"));
    let properties = map.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let Some(required) = map.get_mut("required").and_then(Value::as_array_mut) else { return };
    required.retain(|name| !values && !nullable(name.as_str().and_then(|name| properties.get(name))));
    if required.is_empty() {
        map.remove("required");
    }
}

/// Objects inside objects have the fields of all objects, too.
fn embed(schema: &mut Value, dialect: Dialect, docs: &Descriptions) {
    let Some(map) = schema.as_object_mut() else { return };
    inside(map, |of| embed(of, dialect, docs));
    let silent = dialect == Dialect::V2 && schema[OPEN] == true;
    if silent || schema["x-kubernetes-embedded-resource"] != true {
        return;
    }
    add_own(&mut schema["properties"], dialect, docs);
    let mut required = schema["required"].as_array().cloned().unwrap_or_default();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known == name) {
            required.push(Value::from(name));
        }
    }
    schema["required"] = Value::Array(required);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(schema: &Value) -> Value {
        let mut made = definition(schema, Dialect::V2, &Descriptions::load());
        for name in ["apiVersion", "kind", "metadata"] {
            made["properties"].as_object_mut().map(|properties| properties.remove(name));
        }
        made
    }

    #[test]
    fn version_two_has_the_schema_but_what_it_cannot_say() {
        let plain = json!({"type": "object", "description": "d", "required": ["a"], "properties": {
            "a": {"type": "array", "items": {"type": "string", "minLength": 1}}}});
        assert_eq!(shown(&plain), plain);
        let rich = json!({"type": "object", "required": ["n", "m"], "anyOf": [{"required": ["m"]}], "properties": {
            "n": {"type": "object", "nullable": true, "properties": {"x": {"type": "string"}}},
            "m": {"type": "object", OPEN: true, "properties": {"x": {"type": "string"}}},
            "l": {"type": "array"}}});
        let said =
            json!({"type": "object", "required": ["m"], "properties": {"n": {}, "m": {OPEN: true}, "l": {}}});
        assert_eq!(shown(&rich), said);
        let docs = Descriptions::load();
        assert_eq!(
            definition(&json!({"type": "object", OPEN: true}), Dialect::V2, &docs),
            json!({"type": "object"})
        );
    }

    #[test]
    fn embedded_objects_are_objects() {
        let schema = json!({"type": "object", "properties": {
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "required": ["spec", "kind"]}}});
        let made = definition(&schema, Dialect::V3, &Descriptions::load());
        assert!(
            made["properties"]["kind"]["description"]
                .as_str()
                .is_some_and(|text| text.starts_with("Kind is"))
        );
        let text = made["properties"]["metadata"]["description"].as_str();
        assert!(text.is_some_and(|text| text.starts_with("Standard object's metadata")));
        assert!(made["properties"]["metadata"]["allOf"][0]["$ref"].is_string(), "{made}");
        let pod = &made["properties"]["pod"];
        assert_eq!(pod["required"], json!(["spec", "kind", "apiVersion"]));
        assert!(pod["properties"]["metadata"].is_object());
    }
}
