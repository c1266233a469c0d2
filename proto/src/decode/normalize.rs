//! Normalizes an object to the form that Go serializes: non-pointer structs are always present, empty values of
//! `omitempty` fields are omitted. Clients compare and print this form, so the server stores it.

use serde_json::{Map, Value};

use crate::schema::{Field, Scalar, Shape, Type};

/// Normalizes an object of a built-in type in place. Custom resources are unchanged, except for their metadata.
pub fn normalize(kind: &Type, object: &mut Value) {
    if let Value::Object(fields) = object {
        normalize_tree(kind, fields);
    }
}

fn normalize_tree(kind: &Type, object: &mut Map<String, Value>) {
    if kind.package.is_none() {
        let metadata = kind.field("metadata").and_then(|field| field.shape.object());
        if let Some((inner_kind, Value::Object(inner))) = metadata.zip(object.get_mut("metadata")) {
            normalize_tree(inner_kind, inner);
        }
        return;
    }
    object.retain(|name, value| match kind.field(name) {
        Some(field) => {
            normalize_value(&field.shape, value);
            keeps(field, value)
        }
        None => true,
    });
    add_zero_values(kind, object);
}

fn normalize_value(shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Object(inner), Value::Object(fields)) => normalize_tree(inner.get(), fields),
        (Shape::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| normalize_value(&list.item, item));
        }
        (Shape::Map(of), Value::Object(fields)) => {
            fields.values_mut().for_each(|value| normalize_value(of, value));
        }
        _ => {}
    }
}

/// Whether Go would write the field.
pub(crate) fn keeps(field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => field.nullable,
        Value::Array(items) => !field.omitempty || !items.is_empty(),
        Value::Object(fields) => match field.shape {
            Shape::Map(_) => !field.omitempty || !fields.is_empty(),
            _ => !field.omitzero || field.pointer || !fields.is_empty(),
        },
        _ if field.pointer || !field.omitempty => true,
        // A zero quantity is a struct for Go and written; the others are values.
        Value::String(text) => !text.is_empty(),
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
    }
}

/// Adds the zero values that Go serializes: structs, and scalars without `omitempty`.
pub(crate) fn add_zero_values(kind: &Type, object: &mut Map<String, Value>) {
    if kind.package.is_none() {
        return;
    }
    for field in kind.fields.iter().filter(|f| !f.pointer && !f.omitzero) {
        if object.contains_key(field.name.as_ref()) {
            continue;
        }
        let value = match &field.shape {
            Shape::Object(inner) => {
                let mut made = Map::new();
                add_zero_values(inner.get(), &mut made);
                Value::Object(made)
            }
            Shape::Scalar { of: Scalar::Quantity, .. } => Value::from("0"),
            Shape::Scalar { of: Scalar::String, .. } if !field.omitempty => Value::from(""),
            Shape::Scalar { of: Scalar::Int32 | Scalar::Int64, .. } if !field.omitempty => Value::from(0),
            Shape::Scalar { of: Scalar::Bool, .. } if !field.omitempty => Value::from(false),
            _ => continue,
        };
        object.insert(field.name.to_string(), value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::schema::type_of;
    use serde_json::json;

    #[test]
    fn a_deployment_gets_its_empty_structs_and_loses_empty_values() {
        let mut object = json!({"metadata": {"name": "a", "labels": {}, "creationTimestamp": null}, "spec": {
            "replicas": 0, "paused": false, "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [{"name": "c", "image": "", "ports": []}]}}}});
        normalize(type_of("io.k8s.api.apps.v1.Deployment").unwrap(), &mut object);
        let expected = json!({"metadata": {"name": "a"}, "spec": {
            "replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "strategy": {},
            "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}}}, "status": {}});
        assert_eq!(object, expected);
        let again = object.clone();
        normalize(type_of("io.k8s.api.apps.v1.Deployment").unwrap(), &mut object);
        assert_eq!(object, again);
    }
}
