//! Types of custom resources, from the structural schema of their definition.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::{Field, List, ListKind, Object, Scalar, Shape, Type, type_of};

/// A custom resource without a schema keeps everything below the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unstructured {
    /// Undeclared fields are kept everywhere (`preserveUnknownFields`, no schema).
    Keep,
    /// Undeclared fields are pruned.
    Prune,
}

impl Type {
    /// The type of a custom resource from its `openAPIV3Schema`; `kind`, `apiVersion` and `metadata` are built in.
    pub fn from_structural(kind: &str, schema: &Value, unknown: Unstructured) -> Arc<Type> {
        let mut fields = properties(schema);
        fields.retain(|f| !matches!(f.name.as_ref(), "kind" | "apiVersion" | "metadata"));
        fields.extend(root_fields());
        let open = unknown == Unstructured::Keep || preserves(schema);
        Arc::new(own(kind.to_owned(), fields, true, atomic_map(schema), open))
    }
}

fn own(name: String, mut fields: Vec<Field>, kind: bool, atomic: bool, open: bool) -> Type {
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    Type {
        name: Cow::Owned(name),
        package: None,
        fields: fields.into(),
        inlines: Box::default(),
        kind,
        atomic,
        open,
    }
}

fn root_fields() -> Vec<Field> {
    let metadata = type_of("io.k8s.api.core.v1.Pod").and_then(|pod| pod.field("metadata"));
    let mut fields: Vec<Field> = ["kind", "apiVersion"]
        .into_iter()
        .map(|name| field(name, Shape::plain(Scalar::String), &Value::Null, true))
        .collect();
    fields.extend(metadata.cloned());
    fields
}

fn properties(schema: &Value) -> Vec<Field> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    properties
        .iter()
        .map(|(name, inner)| {
            let mut made = field(name, shape(inner), inner, false);
            made.required = required.contains(&name.as_str());
            made
        })
        .collect()
}

fn field(name: &str, shape: Shape, schema: &Value, omitempty: bool) -> Field {
    Field {
        name: Cow::Owned(name.to_owned()),
        number: 0,
        shape,
        required: false,
        // Custom resources keep what the client wrote: an empty string is not an absent one.
        pointer: true,
        omitempty,
        omitzero: false,
        keeps_empty: false,
        atomic: atomic_map(schema),
        nullable: schema["nullable"] == Value::Bool(true),
        discriminator: false,
        patch: None,
        default: schema.get("default").cloned().map(Box::new),
    }
}

fn preserves(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true)
        || schema["additionalProperties"] == Value::Bool(true)
}

fn atomic_map(schema: &Value) -> bool {
    schema["x-kubernetes-map-type"] == "atomic"
}

fn shape(schema: &Value) -> Shape {
    if schema["x-kubernetes-int-or-string"] == Value::Bool(true) {
        return Shape::plain(Scalar::IntOrString);
    }
    if schema["x-kubernetes-embedded-resource"] == Value::Bool(true) {
        let mut fields = properties(schema);
        fields.retain(|f| !matches!(f.name.as_ref(), "kind" | "apiVersion" | "metadata"));
        fields.extend(root_fields());
        let made = own(String::new(), fields, true, atomic_map(schema), preserves(schema));
        return Shape::Object(Object::Own(Arc::new(made)));
    }
    match schema["type"].as_str() {
        Some("array") => list(schema),
        Some("string") => Shape::plain(Scalar::String),
        Some("boolean") => Shape::plain(Scalar::Bool),
        Some("number") => Shape::plain(Scalar::Double),
        Some("integer") if schema["format"] == "int32" => Shape::plain(Scalar::Int32),
        Some("integer") => Shape::plain(Scalar::Int64),
        Some("object") => object(schema),
        _ if schema["properties"].is_object() => object(schema),
        _ => Shape::plain(Scalar::Json),
    }
}

fn object(schema: &Value) -> Shape {
    if schema["additionalProperties"].is_object() {
        return Shape::Map(Box::new(shape(&schema["additionalProperties"])));
    }
    let made = own(String::new(), properties(schema), false, atomic_map(schema), preserves(schema));
    Shape::Object(Object::Own(Arc::new(made)))
}

fn list(schema: &Value) -> Shape {
    let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
    let kind = match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => {
            ListKind::Map(keys.filter_map(Value::as_str).map(|k| Cow::Owned(k.to_owned())).collect())
        }
        _ => ListKind::Atomic,
    };
    Shape::List(Box::new(List { item: shape(&schema["items"]), kind, wrapped: false }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_structural_schema_becomes_a_type() {
        let schema = json!({"type": "object", "properties": {
            "metadata": {"type": "object"},
            "spec": {"type": "object", "required": ["size"], "properties": {
                "size": {"type": "integer", "default": 3},
                "port": {"x-kubernetes-int-or-string": true},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "rows": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                         "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            }},
        }});
        let root = Type::from_structural("Foo", &schema, Unstructured::Prune);
        assert!(root.field("metadata").unwrap().shape.object().unwrap().field("ownerReferences").is_some());
        assert!(root.field("apiVersion").is_some() && !root.open);
        let spec = root.field("spec").unwrap().shape.object().unwrap();
        let size = spec.field("size").unwrap();
        assert!(size.required && size.default.as_deref() == Some(&json!(3)));
        assert_eq!(spec.field("port").unwrap().shape.scalar(), Some(Scalar::IntOrString));
        assert!(spec.field("free").unwrap().shape.object().unwrap().open);
        assert!(matches!(spec.field("labels").unwrap().shape, Shape::Map(_)));
        let keys: ListKind = ListKind::Map(Box::new(["a".into(), "b".into()]));
        assert_eq!(spec.field("rows").unwrap().list_kind(), Some(&keys));
    }
}
