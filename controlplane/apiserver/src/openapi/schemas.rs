//! The types of the schema table as JSON schemas, in the dialects of OpenAPI 2 and 3.

use super::descriptions::Descriptions;
use coracle_fields::Schema as _;
use coracle_fields::apiextensions::v1::JSONSchemaProps;
use coracle_proto::schema::{self, Field, ListKind, Scalar, Shape, Type};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Which OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAPI 2, Swagger.
    V2,
    /// OpenAPI 3.
    V3,
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";
/// The body of a patch.
pub const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

impl Dialect {
    /// A reference to a schema.
    pub fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }
}

/// The schema name of a scalar that has one.
fn scalar_name(of: Scalar) -> Option<String> {
    Some(match of {
        Scalar::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity".into(),
        Scalar::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString".into(),
        Scalar::Raw => "io.k8s.apimachinery.pkg.runtime.RawExtension".into(),
        Scalar::Time => format!("{META}.Time"),
        Scalar::MicroTime => format!("{META}.MicroTime"),
        Scalar::Duration => format!("{META}.Duration"),
        Scalar::Fields => format!("{META}.FieldsV1"),
        Scalar::Json => format!("{EXTENSIONS}.JSON"),
        Scalar::SchemaOrArray => format!("{EXTENSIONS}.JSONSchemaPropsOrArray"),
        Scalar::SchemaOrBool => format!("{EXTENSIONS}.JSONSchemaPropsOrBool"),
        Scalar::SchemaOrStrings => format!("{EXTENSIONS}.JSONSchemaPropsOrStringArray"),
        _ => return None,
    })
}

/// The schema of a scalar that has a name.
fn named_scalar(name: &str, dialect: Dialect) -> Option<Value> {
    let v3 = dialect == Dialect::V3;
    Some(match name.rsplit('.').next()? {
        "Quantity" if v3 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        "Quantity" | "Duration" => json!({"type": "string"}),
        "IntOrString" if v3 => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        "IntOrString" => json!({"type": "string", "format": "int-or-string"}),
        "Time" | "MicroTime" => json!({"type": "string", "format": "date-time"}),
        "RawExtension" | "FieldsV1" | "Patch" => json!({"type": "object"}),
        "JSON" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => {
            json!({})
        }
        _ => return None,
    })
}

/// The name and schema of everything reachable from some types.
pub fn reachable(roots: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut open: Vec<String> = roots.into_iter().collect();
    while let Some(name) = open.pop() {
        if !all.insert(name.clone()) {
            continue;
        }
        if name.ends_with(".JSONSchemaPropsOrArray") {
            open.push(format!("{EXTENSIONS}.JSONSchemaProps"));
        }
        let Some(of) = schema::type_of(&name) else { continue };
        open.extend(of.fields.iter().filter_map(|field| referred(&field.shape)));
    }
    all
}

fn referred(shape: &Shape) -> Option<String> {
    match shape {
        Shape::Scalar { of, .. } => scalar_name(*of),
        Shape::Object(object) => Some(object.get().full_name()),
        Shape::List(list) => referred(&list.item),
        Shape::Map(of) => referred(of),
    }
}

/// The schema of a name; `versions` are all groups and versions that are served, for the kinds that exist in each.
pub fn definition(name: &str, dialect: Dialect, docs: &Descriptions, versions: &[(String, String)]) -> Value {
    let mut made = match (named_scalar(name, dialect), schema::type_of(name)) {
        (_, Some(of)) => structure(of, name, dialect, docs, versions),
        (Some(scalar), None) => scalar,
        (None, None) => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    };
    if let Some(text) = docs.get(name, "") {
        JSONSchemaProps::edit(&mut made).description().set(text);
    }
    made
}

fn structure(
    of: &Type,
    name: &str,
    dialect: Dialect,
    docs: &Descriptions,
    versions: &[(String, String)],
) -> Value {
    let mut made = json!({"type": "object"});
    let mut properties = Map::new();
    for field in &of.fields {
        let mut property = property(field, dialect);
        if let Some(text) = docs.get(name, &field.name) {
            JSONSchemaProps::edit(&mut property).description().set(text);
        }
        properties.insert(field.name.to_string(), property);
    }
    if !properties.is_empty() {
        JSONSchemaProps::edit(&mut made).properties().put(Value::Object(properties));
    }
    let required: Vec<&str> = of.fields.iter().filter(|f| f.required).map(|f| f.name.as_ref()).collect();
    if !required.is_empty() {
        JSONSchemaProps::edit(&mut made).required().set(required);
    }
    if of.atomic {
        made["x-kubernetes-map-type"] = json!("atomic");
    }
    if let Some(package) = of.package.filter(|_| of.kind) {
        let everywhere = matches!(of.name.as_ref(), "DeleteOptions" | "Status" | "WatchEvent");
        let kinds: Vec<Value> = match (package.short, everywhere) {
            ("meta", true) => {
                let each = versions.iter();
                each.map(|(group, version)| json!({"group": group, "kind": of.name, "version": version}))
                    .collect()
            }
            ("meta", false) => Vec::new(),
            _ => vec![json!({"group": package.group, "kind": of.name, "version": package.version})],
        };
        if !kinds.is_empty() {
            made["x-kubernetes-group-version-kind"] = Value::Array(kinds);
        }
    }
    made
}

fn property(field: &Field, dialect: Dialect) -> Value {
    let mut made = value(&field.shape, dialect);
    if dialect == Dialect::V3 && made.get("$ref").is_some() {
        // Nothing may stand next to a reference in OpenAPI 3.
        made = json!({"allOf": [made]});
    }
    if let Shape::List(list) = &field.shape {
        match &list.kind {
            ListKind::Atomic => made["x-kubernetes-list-type"] = json!("atomic"),
            ListKind::Set => made["x-kubernetes-list-type"] = json!("set"),
            ListKind::Map(keys) => {
                made["x-kubernetes-list-type"] = json!("map");
                made["x-kubernetes-list-map-keys"] = json!(keys);
            }
        }
    }
    if field.atomic && matches!(field.shape, Shape::Map(_)) {
        made["x-kubernetes-map-type"] = json!("atomic");
    }
    if let Some(patch) = &field.patch {
        let words = [(patch.merge, "merge"), (patch.replace, "replace"), (patch.retain_keys, "retainKeys")];
        let words: Vec<&str> = words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect();
        made["x-kubernetes-patch-strategy"] = json!(words.join(","));
        if let Some(key) = &patch.key {
            made["x-kubernetes-patch-merge-key"] = json!(key);
        }
    }
    if let Some(default) = &field.default {
        JSONSchemaProps::edit(&mut made).default_().put((**default).clone());
    }
    made
}

fn value(shape: &Shape, dialect: Dialect) -> Value {
    match shape {
        Shape::Object(object) => dialect.reference(&object.get().full_name()),
        Shape::List(list) => json!({"type": "array", "items": value(&list.item, dialect)}),
        Shape::Map(of) => json!({"type": "object", "additionalProperties": value(of, dialect)}),
        Shape::Scalar { of, named } => {
            if let Some(name) = scalar_name(*of) {
                return dialect.reference(&name);
            }
            let mut made = match of {
                Scalar::Int32 => json!({"type": "integer", "format": "int32"}),
                Scalar::Int64 => json!({"type": "integer", "format": "int64"}),
                Scalar::Float => json!({"type": "number", "format": "float"}),
                Scalar::Double => json!({"type": "number", "format": "double"}),
                Scalar::Bool => json!({"type": "boolean"}),
                Scalar::Bytes => json!({"type": "string", "format": "byte"}),
                _ => json!({"type": "string"}),
            };
            if let Some(values) = named.as_ref().and_then(schema::enum_values) {
                JSONSchemaProps::edit(&mut made).enum_().put(json!(values));
            }
            made
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_in_both_dialects() {
        let docs = Descriptions::load();
        let spec = definition("io.k8s.api.apps.v1.DeploymentSpec", Dialect::V3, &docs, &[]);
        let template = &spec["properties"]["template"];
        assert_eq!(template["allOf"][0]["$ref"], "#/components/schemas/io.k8s.api.core.v1.PodTemplateSpec");
        assert_eq!(spec["required"], json!(["selector", "template"]));
        assert_eq!(spec["properties"]["replicas"]["format"], "int32");
        let pod = definition("io.k8s.api.core.v1.PodSpec", Dialect::V2, &docs, &[]);
        let containers = &pod["properties"]["containers"];
        assert_eq!(containers["items"]["$ref"], "#/definitions/io.k8s.api.core.v1.Container");
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(pod["properties"]["volumes"]["x-kubernetes-patch-strategy"], "merge,retainKeys");
        assert_eq!(pod["properties"]["restartPolicy"]["enum"], json!(["Always", "Never", "OnFailure"]));
        let kind = definition("io.k8s.api.apps.v1.Deployment", Dialect::V3, &docs, &[]);
        assert_eq!(
            kind["x-kubernetes-group-version-kind"],
            json!([{"group": "apps", "kind": "Deployment", "version": "v1"}])
        );
    }

    #[test]
    fn references_are_closed() {
        let all = reachable(["io.k8s.api.core.v1.Pod".to_owned()]);
        assert!(all.contains("io.k8s.apimachinery.pkg.api.resource.Quantity"));
        let docs = Descriptions::load();
        for name in &all {
            let text = definition(name, Dialect::V2, &docs, &[]).to_string();
            for reference in text.split("#/definitions/").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(all.contains(reference), "{reference} of {name}");
            }
        }
    }
}
