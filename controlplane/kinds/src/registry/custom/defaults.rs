//! Defaults of a structural schema.

use serde_json::Value;

/// Fills in an object.
pub fn root(schema: &Value, object: &mut Value) {
    fill(schema, object);
}

/// Whether a schema fills in anything.
pub fn fills(schema: &Value) -> bool {
    let properties = schema["properties"].as_object().into_iter().flatten();
    !schema["default"].is_null()
        || properties.into_iter().any(|(_, of)| fills(of))
        || ["items", "additionalProperties"].iter().any(|one| schema[one].is_object() && fills(&schema[one]))
}

fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, of) in schema["properties"].as_object().into_iter().flatten() {
                let given = fields.get(name);
                // A null that the schema does not allow counts as absent when there is a default.
                let absent = given.is_none() || (given == Some(&Value::Null) && of["nullable"] != true);
                if absent && !of["default"].is_null() {
                    fields.insert(name.clone(), of["default"].clone());
                }
                if let Some(value) = fields.get_mut(name) {
                    fill(of, value);
                }
            }
            if schema["additionalProperties"].is_object() {
                let known = &schema["properties"];
                for (name, value) in fields.iter_mut().filter(|(name, _)| known.get(name.as_str()).is_none())
                {
                    let _ = name;
                    fill(&schema["additionalProperties"], value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(&schema["items"], item)),
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
