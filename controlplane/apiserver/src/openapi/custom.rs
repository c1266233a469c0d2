//! Schemas of custom resources as published in OpenAPI documents: in OpenAPI 2 without the keywords that it lacks, or
//! that kubectl would use to reject unknown fields.

use super::descriptions::Descriptions;
use super::schemas::Dialect;
use coracle_fields::apiextensions::v1::JSONSchemaProps;
use coracle_fields::{Made, Schema as _};
use serde_json::{Value, json};

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
/// A type whose own fields are described as those of every object.
const EXAMPLE: &str = "io.k8s.api.core.v1.ConfigMap";

/// The schema of a custom resource.
pub fn definition(schema: &Value, dialect: Dialect, docs: &Descriptions) -> Value {
    // Properties, even those that every object has, would tell kubectl that there are no others.
    if dialect == Dialect::V2 && is_open(schema) {
        return json!({"type": "object"});
    }
    let mut made = schema.clone();
    if dialect == Dialect::V2 {
        simplify(&mut made);
    }
    embed(&mut made, dialect, docs);
    add_own(&mut made, dialect, docs);
    made
}

fn is_open(schema: &Value) -> bool {
    JSONSchemaProps::of(schema).x_kubernetes_preserve_unknown_fields().flag()
}

/// The fields that every object has.
fn add_own(schema: &mut Value, dialect: Dialect, docs: &Descriptions) {
    for (name, of) in [
        ("apiVersion", json!({"type": "string"})),
        ("kind", json!({"type": "string"})),
        ("metadata", dialect.reference(OBJECT_META)),
    ] {
        // What stands beside a reference counts in neither version; in the third there is a way around.
        let of = match of.get("$ref").is_some() && dialect == Dialect::V3 {
            true => json!({"allOf": [of]}),
            false => of,
        };
        let mut of = Made::<JSONSchemaProps>::new(of);
        if let Some(text) = docs.get(EXAMPLE, name) {
            of.edit().description().set(text);
        }
        JSONSchemaProps::edit(schema).properties().insert(name, of);
    }
}

/// Every schema right inside one.
fn inside(schema: &mut Value, mut each: impl FnMut(&mut Value)) {
    let mut schema = JSONSchemaProps::edit(schema);
    if let Some(properties) = schema.properties().map_mut() {
        properties.values_mut().for_each(&mut each);
    }
    if let Some(of) = schema.items().tree().filter(|of| of.is_object()) {
        each(of);
    }
    if let Some(of) = schema.additional_properties().tree().filter(|of| of.is_object()) {
        each(of);
    }
}

fn simplify(schema: &mut Value) {
    let (open, nullable) = (is_open(schema), JSONSchemaProps::of(schema).nullable().flag());
    let mut props = JSONSchemaProps::edit(schema);
    props.all_of().clear();
    props.one_of().clear();
    props.any_of().clear();
    props.not().clear();
    props.nullable().clear();
    if nullable || open {
        props.items().clear();
        props.properties().clear();
    }
    let bare_list = props.view().type_() == "array" && !props.view().items().is_set();
    let open_object = open && props.view().type_() == "object";
    if nullable || bare_list || open_object {
        props.type_().clear();
    }
    require_no_null(schema);
    inside(schema, simplify);
}

/// What may be null need not be there.
fn require_no_null(schema: &mut Value) {
    let props = JSONSchemaProps::of(schema);
    if !props.required().is_set() {
        return;
    }
    let values = props.additional_properties().as_type::<JSONSchemaProps>().nullable().flag();
    let nullable = |name: &str| props.properties().key(name).nullable().flag();
    let kept = props.required().items().filter(|name| !values && !nullable(name.text()));
    let kept: Vec<Value> = kept.map(|name| name.to_value()).collect();
    let mut props = JSONSchemaProps::edit(schema);
    match kept.is_empty() {
        true => props.required().clear(),
        false => props.required().put(Value::Array(kept)),
    }
}

/// Objects inside objects have the fields of all objects, too.
fn embed(schema: &mut Value, dialect: Dialect, docs: &Descriptions) {
    inside(schema, |of| embed(of, dialect, docs));
    let silent = dialect == Dialect::V2 && is_open(schema);
    if silent || !JSONSchemaProps::of(schema).x_kubernetes_embedded_resource().flag() {
        return;
    }
    add_own(schema, dialect, docs);
    let mut required = JSONSchemaProps::of(schema).required().to_values();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known == name) {
            required.push(Value::from(name));
        }
    }
    JSONSchemaProps::edit(schema).required().put(Value::Array(required));
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: &str = "x-kubernetes-preserve-unknown-fields";

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
