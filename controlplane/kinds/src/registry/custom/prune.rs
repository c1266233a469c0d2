//! Pruning: what a structural schema does not know is dropped.

use coracle_fields::apiextensions::v1::JSONSchemaProps;
use coracle_fields::{Schema as _, View};
use coracle_proto::schema;
use serde_json::Value;

/// What every object has, whatever its schema says.
pub(super) const KEPT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes a whole object; the paths of what was dropped.
pub fn root(schema: &Value, object: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    prune(JSONSchemaProps::of(schema), object, "", true, &mut dropped);
    dropped
}

/// Prunes a value at a path by a part of a schema. `embedded` tells whether it is an object of its own.
pub(super) fn prune(
    schema: View<'_, JSONSchemaProps>,
    value: &mut Value,
    path: &str,
    embedded: bool,
    dropped: &mut Vec<String>,
) {
    let open = schema.x_kubernetes_preserve_unknown_fields().flag();
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                let inside: View<'_, JSONSchemaProps> = schema.items().as_type();
                if !open || inside.is_set() {
                    prune(
                        inside,
                        item,
                        &format!("{path}[{i}]"),
                        inside.x_kubernetes_embedded_resource().flag(),
                        dropped,
                    );
                }
            }
        }
        Value::Object(fields) => {
            let (known, rest) = (schema.properties(), schema.additional_properties());
            let names: Vec<String> = fields.keys().cloned().collect();
            for name in names {
                let inside = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if embedded && KEPT.contains(&name.as_str()) {
                    if name == "metadata"
                        && let Some(metadata) = fields.get_mut(&name)
                    {
                        prune_metadata(metadata, &inside, dropped);
                    }
                    continue;
                }
                let of = match known.find(&name) {
                    Some(of) => of,
                    None if rest.is_object() => rest.as_type(),
                    None if *rest.as_value() == true || open => continue,
                    None => {
                        fields.remove(&name);
                        dropped.push(inside);
                        continue;
                    }
                };
                if let Some(value) = fields.get_mut(&name) {
                    prune(of, value, &inside, of.x_kubernetes_embedded_resource().flag(), dropped);
                }
            }
        }
        _ => {}
    }
}

/// Metadata is the same for all objects, whatever their schemas say.
fn prune_metadata(metadata: &mut Value, path: &str, dropped: &mut Vec<String>) {
    let Some(known) = schema::type_of("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") else { return };
    let Some(fields) = metadata.as_object_mut() else { return };
    fields.retain(|name, _| {
        let kept = known.field(name).is_some();
        if !kept {
            dropped.push(format!("{path}.{name}"));
        }
        kept
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_fields_go() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {}}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {}}}}}}}});
        let mut object = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"labels": {"l": "1"}, "more": 1},
            "spec": {"a": "1", "b": 2, "free": {"any": 1}, "map": {"k": {"x": 1, "y": 2}}, "list": [{"n": 1, "m": 2}]}, "top": 1});
        let mut dropped = root(&schema, &mut object);
        dropped.sort();
        assert_eq!(dropped, ["metadata.more", "spec.b", "spec.list[0].m", "spec.map.k.y", "top"]);
        assert_eq!(
            object["spec"],
            json!({"a": "1", "free": {"any": 1}, "map": {"k": {"x": 1}}, "list": [{"n": 1}]})
        );
        assert_eq!(object["metadata"]["labels"]["l"], "1");
    }
}
