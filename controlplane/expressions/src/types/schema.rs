//! Types from the schemas of kinds: the table of built-in types, and the schemas of custom resources.

use super::Type;
use crate::names::{identifier, of_root};
use coracle_fields::apiextensions::v1::JSONSchemaProps;
use coracle_fields::{Schema as _, View};
use coracle_proto::schema::{self, Scalar, Shape};
use serde_json::Value;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The type of objects of a kind: by the name of its built-in type, or by the schema of a custom resource.
pub fn of_kind(built_in: &str, kind: &str, custom: Option<&Value>) -> Option<Type> {
    match custom {
        None => Some(structure(schema::type_of(built_in)?, kind, &mut Vec::new())),
        Some(schema) => {
            let Type::Object(own) = of_schema(JSONSchemaProps::of(schema), kind)? else {
                return Some(Type::Dyn);
            };
            let mut fields = own.fields.clone();
            fields.insert("apiVersion".to_owned(), Type::String);
            fields.insert("kind".to_owned(), Type::String);
            if let Some(meta) = schema::type_of(OBJECT_META) {
                fields.insert(
                    "metadata".to_owned(),
                    structure(meta, &format!("{kind}.metadata"), &mut Vec::new()),
                );
            }
            Some(Type::object(kind, fields))
        }
    }
}

/// A struct of the table. One that contains itself has no fields there.
fn structure(of: &schema::Type, name: &str, above: &mut Vec<String>) -> Type {
    let own = of.full_name();
    if above.contains(&own) {
        return Type::object(name, []);
    }
    above.push(own);
    let mut fields = Vec::new();
    for field in &of.fields {
        if let Some(found) = shape(&field.shape, &format!("{name}.{}", field.name), above) {
            fields.extend(identifier(&field.name).map(|name| (name, found)));
        }
    }
    above.pop();
    Type::object(name, fields)
}

/// Nothing for values that expressions cannot see: those without one type.
fn shape(of: &Shape, name: &str, above: &mut Vec<String>) -> Option<Type> {
    Some(match of {
        Shape::Object(object) => structure(object.get(), name, above),
        Shape::List(list) => Type::list(shape(&list.item, &format!("{name}.@idx"), above)?),
        Shape::Map(value) => Type::map(shape(value, &format!("{name}.@elem"), above)?),
        Shape::Scalar { of, .. } => match of {
            Scalar::String | Scalar::Duration => Type::String,
            Scalar::Int32 | Scalar::Int64 => Type::Int,
            Scalar::Bool => Type::Bool,
            Scalar::Float | Scalar::Double => Type::Double,
            Scalar::Bytes => Type::Bytes,
            Scalar::IntOrString => Type::Dyn,
            Scalar::Time | Scalar::MicroTime => Type::Timestamp,
            Scalar::Raw | Scalar::Fields => Type::object(name, []),
            Scalar::Quantity
            | Scalar::Json
            | Scalar::SchemaOrArray
            | Scalar::SchemaOrBool
            | Scalar::SchemaOrStrings => return None,
        },
    })
}

/// The type of the values of a part of a schema that rules are about. Nothing if expressions cannot see them: of what may have
/// fields that the schema does not name, they see those that it names.
pub fn of_rules(schema: View<'_, JSONSchemaProps>, name: &str) -> Option<Type> {
    if schema.x_kubernetes_int_or_string().flag() {
        return Some(Type::Dyn);
    }
    let inside = |part: View<'_, coracle_fields::Json>, suffix: &str| match part.is_object() {
        true => of_part(part.as_type(), &format!("{name}.{suffix}")),
        false => None,
    };
    match schema.type_().get()? {
        "array" => inside(schema.items(), "@idx").map(Type::list),
        "object" if schema.additional_properties().is_object() => {
            inside(schema.additional_properties(), "@elem").map(Type::map)
        }
        "object" => {
            let fields = schema.properties().entries().filter_map(|(field, part)| {
                Some((identifier(field)?, of_part(part, &format!("{name}.{field}"))?))
            });
            Some(Type::object(name, fields.collect::<Vec<_>>()))
        }
        _ => of_schema(schema, name),
    }
}

/// The same of a part, which may be an object with a kind of its own.
fn of_part(schema: View<'_, JSONSchemaProps>, name: &str) -> Option<Type> {
    match schema.x_kubernetes_embedded_resource().flag() {
        true => of_rules(JSONSchemaProps::of(&of_root(&schema.to_value())), name),
        false => of_rules(schema, name),
    }
}

/// The same of a JSON schema.
fn of_schema(of: View<'_, JSONSchemaProps>, name: &str) -> Option<Type> {
    if of.x_kubernetes_int_or_string().flag() {
        return Some(Type::Dyn);
    }
    let inside = |part: View<'_, coracle_fields::Json>, suffix: &str| {
        part.is_object().then(|| of_schema(part.as_type(), &format!("{name}.{suffix}")))
    };
    Some(match (of.type_().get()?, of.format().text()) {
        ("boolean", _) => Type::Bool,
        ("integer", _) => Type::Int,
        ("number", _) => Type::Double,
        ("string", "byte") => Type::Bytes,
        ("string", "duration") => Type::Duration,
        ("string", "date" | "date-time") => Type::Timestamp,
        ("string", _) => Type::String,
        ("array", _) => Type::list(inside(of.items(), "@idx")??),
        ("object", _) => match inside(of.additional_properties(), "@elem") {
            Some(values) => Type::map(values?),
            None => {
                let fields = of.properties().entries().filter_map(|(field, schema)| {
                    Some((identifier(field)?, of_schema(schema, &format!("{name}.{field}"))?))
                });
                Type::object(name, fields.collect::<Vec<_>>())
            }
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn field<'t>(of: &'t Type, name: &str) -> Option<&'t Type> {
        let Type::Object(object) = of else { panic!("{of} has no fields") };
        object.fields.get(name)
    }

    #[test]
    fn types_of_built_in_kinds() {
        let pod = of_kind("io.k8s.api.core.v1.Pod", "Pod", None).unwrap();
        let spec = field(&pod, "spec").unwrap();
        assert_eq!(field(spec, "hostNetwork"), Some(&Type::Bool));
        assert_eq!(field(spec, "nodeSelector").unwrap().to_string(), "map(string, string)");
        assert_eq!(field(spec, "containers").unwrap().to_string(), "list(Pod.spec.containers.@idx)");
        assert_eq!(field(spec, "overhead"), None, "quantities have no one type");
        let definition = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";
        assert!(of_kind(definition, "CustomResourceDefinition", None).is_some(), "schemas contain schemas");
        assert_eq!(of_kind("io.k8s.api.core.v1.Nothing", "Nothing", None), None);
    }

    #[test]
    fn types_of_custom_kinds() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"a-b": {"type": "integer"}, "at": {"type": "string", "format": "date-time"},
                "any": {"x-kubernetes-preserve-unknown-fields": true}, "port": {"x-kubernetes-int-or-string": true},
                "tags": {"type": "array", "items": {"type": "string"}}}}}});
        let boat = of_kind("", "Boat", Some(&schema)).unwrap();
        let spec = field(&boat, "spec").unwrap();
        assert_eq!(field(spec, "a__dash__b"), Some(&Type::Int));
        assert_eq!(field(spec, "at"), Some(&Type::Timestamp));
        assert_eq!((field(spec, "any"), field(spec, "port")), (None, Some(&Type::Dyn)));
        assert_eq!(field(spec, "tags"), Some(&Type::list(Type::String)));
        let labels = field(field(&boat, "metadata").unwrap(), "labels");
        assert_eq!(labels, Some(&Type::map(Type::String)));
    }

    #[test]
    fn rules_see_what_has_a_schema() {
        let open = json!({"x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "text": {"type": "string"}, "open": open, "a b": {"type": "string"}, "namespace": {"type": "string"},
            "either": {"x-kubernetes-int-or-string": true},
            "lists": {"type": "array", "items": {"type": "array", "items": open}},
            "map": {"type": "object", "additionalProperties": {"type": "number"}},
            "maps": {"type": "object", "additionalProperties": open},
            "any": {"type": "object", "additionalProperties": true},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}});
        let of = of_rules(JSONSchemaProps::of(&schema), "self").unwrap();
        let Type::Object(object) = &of else { panic!("{of}") };
        let names: Vec<&str> = object.fields.keys().map(String::as_str).collect();
        assert_eq!(names, ["__namespace__", "any", "either", "map", "pod", "text"]);
        assert_eq!(field(&of, "either"), Some(&Type::Dyn));
        assert_eq!(field(&of, "map"), Some(&Type::map(Type::Double)));
        assert_eq!(field(&of, "any"), Some(&Type::object("self.any", [])));
        let name = field(field(field(&of, "pod").unwrap(), "metadata").unwrap(), "generateName");
        assert_eq!(name, Some(&Type::String));
        assert_eq!(of_rules(JSONSchemaProps::of(&open), "self"), None);
    }
}
