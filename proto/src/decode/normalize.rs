//! Normalizes an object to the form that Go serializes: non-pointer structs are always present, empty values of
//! `omitempty` fields are omitted, there are no fields that the type does not have. Clients compare and print this form, so
//! the server stores it.

use serde_json::{Map, Value};

use crate::schema::{Field, Scalar, Shape, Type};

/// Normalizes an object of a built-in type in place. Custom resources are unchanged, except for their metadata.
///
/// Returns whether every value has the JSON type of its field. If not, the object is no object of this type as it is:
/// [`read`](super::read) makes one of it, or says what is wrong. Strings are not parsed: quantities, times and the like are
/// checked when a tree is read.
pub fn normalize(kind: &Type, object: &mut Value) -> bool {
    match object {
        Value::Object(fields) => normalize_tree(kind, fields),
        _ => false,
    }
}

/// Normalizes every value, also after one that does not fit.
fn normalize_all<'a>(shape: &Shape, values: impl Iterator<Item = &'a mut Value>) -> bool {
    let mut fits = true;
    for value in values {
        fits &= normalize_value(shape, value);
    }
    fits
}

fn normalize_tree(kind: &Type, object: &mut Map<String, Value>) -> bool {
    if kind.package.is_none() {
        let metadata = kind.field("metadata").and_then(|field| field.shape.object());
        return match metadata.zip(object.get_mut("metadata")) {
            Some((inner_kind, Value::Object(inner))) => normalize_tree(inner_kind, inner),
            _ => true,
        };
    }
    let mut fits = true;
    object.retain(|name, value| match kind.field(name) {
        Some(field) => {
            // Go reads `null` as a missing field.
            fits &= value.is_null() || normalize_value(&field.shape, value);
            keeps(field, value)
        }
        None => kind.open,
    });
    add_zero_values(kind, object);
    fits
}

fn normalize_value(shape: &Shape, value: &mut Value) -> bool {
    match (shape, value) {
        (Shape::Scalar { of, .. }, value) => fits(*of, value),
        (Shape::Object(inner), Value::Object(fields)) => normalize_tree(inner.get(), fields),
        (Shape::List(list), Value::Array(items)) => normalize_all(&list.item, items.iter_mut()),
        (Shape::Map(of), Value::Object(fields)) => normalize_all(of, fields.values_mut()),
        _ => false,
    }
}

/// Whether a value has the JSON type that Go writes for a scalar.
fn fits(of: Scalar, value: &Value) -> bool {
    let int32 = || value.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
    match of {
        Scalar::String
        | Scalar::Bytes
        | Scalar::Quantity
        | Scalar::Time
        | Scalar::MicroTime
        | Scalar::Duration => value.is_string(),
        Scalar::Int32 => int32(),
        Scalar::Int64 => value.is_i64(),
        Scalar::Bool => value.is_boolean(),
        Scalar::Float | Scalar::Double => value.is_number(),
        Scalar::IntOrString => value.is_string() || int32(),
        Scalar::Raw
        | Scalar::Fields
        | Scalar::Json
        | Scalar::SchemaOrArray
        | Scalar::SchemaOrBool
        | Scalar::SchemaOrStrings => true,
    }
}

/// Whether Go would write the field.
pub(crate) fn keeps(field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => field.nullable,
        Value::Array(items) => !field.omitempty || field.keeps_empty || !items.is_empty(),
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
        assert!(normalize(type_of("io.k8s.api.apps.v1.Deployment").unwrap(), &mut object));
        let expected = json!({"metadata": {"name": "a"}, "spec": {
            "replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "strategy": {},
            "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}}}, "status": {}});
        assert_eq!(object, expected);
        let again = object.clone();
        assert!(normalize(type_of("io.k8s.api.apps.v1.Deployment").unwrap(), &mut object));
        assert_eq!(object, again);
    }

    #[test]
    fn policies_without_items_are_not_those_that_nobody_set() {
        let mut object = json!({"spec": {"behavior": {"scaleDown": {"policies": []}}, "metrics": []}});
        assert!(normalize(
            type_of("io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler").unwrap(),
            &mut object
        ));
        assert_eq!(object["spec"]["behavior"], json!({"scaleDown": {"policies": []}}));
        assert!(object["spec"].get("metrics").is_none());
    }

    #[test]
    fn values_of_another_type_are_noticed_and_unknown_fields_dropped() {
        let pod = type_of("io.k8s.api.core.v1.Pod").unwrap();
        let with = |container: Value| json!({"metadata": {"name": "a"}, "spec": {"containers": [container]}});
        for (container, fits) in [
            (json!({"name": "c", "ports": [{"containerPort": 80}]}), true),
            (json!({"name": "c", "stdin": null, "nope": {"a": 1}}), true),
            (json!({"name": "c", "livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 3}}), true),
            (json!({"name": 1}), false),
            (json!({"name": "c", "stdin": "yes"}), false),
            (json!({"name": "c", "ports": {}}), false),
            (json!({"name": "c", "ports": [null, {"containerPort": 80}]}), false),
            (json!({"name": "c", "ports": [{"containerPort": 80.5}]}), false),
            (json!({"name": "c", "ports": [{"containerPort": 5_000_000_000_i64}]}), false),
            (json!({"name": "c", "livenessProbe": {"httpGet": {"port": 1.5}}}), false),
            (json!({"name": "c", "resources": {"limits": {"cpu": 1}}}), false),
            (json!({"name": "c", "resources": []}), false),
        ] {
            let mut object = with(container);
            assert_eq!(normalize(pod, &mut object), fits, "{object}");
            assert_eq!(object["spec"]["containers"][0].get("nope"), None);
        }
        assert!(!normalize(pod, &mut json!([])));
    }
}
