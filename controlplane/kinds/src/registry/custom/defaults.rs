//! Defaults of a structural schema.

use coracle_fields::apiextensions::v1::JSONSchemaProps;
use coracle_fields::{Schema as _, View};
use serde_json::Value;

/// Fills in an object.
pub fn root(schema: &Value, object: &mut Value) {
    fill(JSONSchemaProps::of(schema), object);
}

/// Whether a schema fills in anything.
pub fn fills(schema: &Value) -> bool {
    has_default(JSONSchemaProps::of(schema))
}

fn has_default(schema: View<'_, JSONSchemaProps>) -> bool {
    let mut inside = [schema.items(), schema.additional_properties()].into_iter();
    schema.default_().is_set()
        || schema.properties().entries().any(|(_, of)| has_default(of))
        || inside.any(|of| of.is_object() && has_default(of.as_type()))
}

fn fill(schema: View<'_, JSONSchemaProps>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, of) in schema.properties().entries() {
                let given = fields.get(name);
                // A null that the schema does not allow counts as absent when there is a default.
                let absent = given.is_none() || (given == Some(&Value::Null) && !of.nullable().flag());
                if absent && of.default_().is_set() {
                    fields.insert(name.to_owned(), of.default_().to_value());
                }
                if let Some(value) = fields.get_mut(name) {
                    fill(of, value);
                }
            }
            let (known, rest) = (schema.properties(), schema.additional_properties());
            if rest.is_object() {
                for (_, value) in fields.iter_mut().filter(|(name, _)| !known.has_key(name.as_str())) {
                    fill(rest.as_type(), value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(schema.items().as_type(), item)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_reach_inside() {
        let schema = json!({"properties": {"spec": {"default": {}, "properties": {
            "replicas": {"type": "integer", "default": 1},
            "ports": {"type": "array", "items": {"properties": {"protocol": {"default": "TCP"}}}}}}}});
        assert!(fills(&schema) && fills(&schema["properties"]["spec"]["properties"]["ports"]));
        assert!(!fills(&json!({"properties": {"a": {"type": "string"}}})));
        let mut object = json!({});
        root(&schema, &mut object);
        assert_eq!(object, json!({"spec": {"replicas": 1}}));
        let mut object = json!({"spec": {"replicas": null, "ports": [{}, {"protocol": "UDP"}]}});
        root(&schema, &mut object);
        assert_eq!(
            object,
            json!({"spec": {"replicas": 1, "ports": [{"protocol": "TCP"}, {"protocol": "UDP"}]}})
        );
    }
}
