//! Defaults in the schemas of a definition are values that these schemas allow.

use super::{check, prune, rules};
use coracle_fields::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use coracle_fields::{Schema as _, View};
use coracle_proto::status::FieldError;
use coracle_validation::{definitions, ratchet};
use serde_json::Value;
use std::borrow::Cow;

/// Field rules of a new definition.
pub fn new_definition(object: &Value, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    definitions::new_definition(object, errors);
    // By a schema that is none, no value can be judged.
    if errors.len() == before {
        values(object, errors);
    }
}

/// Field rules of a changed definition; defaults that were wrong before may stay.
pub fn definition_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    definitions::definition_update(new, old, errors);
    if errors.len() == before {
        ratchet::changed(values, new, old, errors);
    }
}

/// A schema or part of one.
type Props<'v> = View<'v, JSONSchemaProps>;

/// A default and the schema that it is for.
struct Given<'v> {
    path: String,
    schema: Props<'v>,
    value: Cow<'v, Value>,
    of_metadata: bool,
}

fn values(definition: &Value, errors: &mut Vec<FieldError>) {
    let versions = CustomResourceDefinition::of(definition).spec().versions().items();
    let schemas: Vec<Props<'_>> = versions.map(|version| version.schema().open_apiv3_schema()).collect();
    // One schema for all versions is reported where it stood before versions had their own.
    let shared = schemas.windows(2).all(|pair| pair[0].as_value() == pair[1].as_value());
    let mut all = Vec::new();
    for (at, schema) in schemas.into_iter().enumerate().take(if shared { 1 } else { usize::MAX }) {
        let path = match shared {
            true => "spec.validation.openAPIV3Schema".to_owned(),
            false => format!("spec.versions[{at}].schema.openAPIV3Schema"),
        };
        collect(schema, path, (true, false), &mut all);
    }
    let (mut ruled, mut places) = (Vec::new(), Vec::new());
    for given in &all {
        let found = given.errors();
        let own = if found.is_empty() { rules::within(given.schema) } else { Vec::new() };
        if !own.is_empty() {
            ruled.push((own, &*given.value));
            places.push(given);
        }
        errors.extend(found);
    }
    for (given, found) in places.into_iter().zip(rules::of_values(&ruled)) {
        errors.extend(found.into_iter().map(|error| given.located(error)));
    }
}

/// The defaults of a schema, except those for values of maps, which are not judged. `place` tells whether it is the root, and
/// whether it is about metadata.
fn collect<'v>(schema: Props<'v>, path: String, place: (bool, bool), all: &mut Vec<Given<'v>>) {
    let (is_root, around) = place;
    let embedded = schema.x_kubernetes_embedded_resource().flag();
    let of_metadata = around && !embedded;
    let items = schema.items();
    if items.is_object() {
        collect(items.as_type(), format!("{path}.items"), (false, of_metadata), all);
    }
    for (name, of) in schema.properties().entries() {
        let is_meta = (is_root || embedded) && prune::KEPT.contains(&name);
        collect(of, format!("{path}.properties[{name}]"), (false, of_metadata || is_meta), all);
    }
    if schema.default_().is_set() {
        let value = schema.default_().as_value();
        all.push(Given { path: format!("{path}.default"), schema, value, of_metadata });
    }
}

impl Given<'_> {
    /// What is wrong with the default, but for the rules of its schema.
    fn errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if self.has_unknown_fields() {
            errors.push(FieldError::invalid("", &self.value, "must not have unknown fields"));
        }
        let mut found = Vec::new();
        check::value(self.schema, &self.value, None, "", &mut found);
        // Whether items are unique is not asked of defaults.
        found.retain(|error| error.reason != "FieldValueDuplicate");
        errors.append(&mut found);
        errors.into_iter().map(|error| self.located(error)).collect()
    }

    fn has_unknown_fields(&self) -> bool {
        let embedded = self.schema.x_kubernetes_embedded_resource().flag();
        let (mut pruned, mut dropped) = (Value::clone(&self.value), Vec::new());
        prune::prune(self.schema, &mut pruned, "", embedded, &mut dropped);
        // Metadata has rules of its own.
        !self.of_metadata && dropped.iter().any(|path| path.split('.').all(|part| part != "metadata"))
    }

    /// An error in the value as one of the definition.
    fn located(&self, mut error: FieldError) -> FieldError {
        error.field = match error.field.as_str() {
            "" => self.path.clone(),
            inside if inside.starts_with('[') => format!("{}{inside}", self.path),
            inside => format!("{}.{inside}", self.path),
        };
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(field: &Value) -> Value {
        let spec = json!({"type": "object", "properties": {"a": field}});
        json!({"spec": {"group": "demo.io", "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
    }

    fn said(field: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        new_definition(&definition(field), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_are_held_to_their_schema() {
        for field in [
            json!({"type": "integer", "default": 1}),
            json!({"type": "string", "enum": ["a"], "default": "a"}),
            json!({"type": "string", "default": null}),
            json!({"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 1}}}),
            json!({"type": "object", "default": {"any": {"x": 1}}, "x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "default": {"k": "v"}, "additionalProperties": {"type": "string"}}),
            json!({"x-kubernetes-int-or-string": true, "default": "10%"}),
            json!({"type": "array", "maxItems": 4, "default": [{"path": "/"}], "items": {"type": "object",
                "properties": {"path": {"type": "string", "maxLength": 9, "default": "/", "x-kubernetes-validations":
                    [{"rule": "self.startsWith('/')"}]}}}}),
            json!({"type": "string", "default": "a", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}),
        ] {
            assert_eq!(said(&field), [""; 0], "{field}");
        }
        let at = "spec.validation.openAPIV3Schema.properties[spec].properties[a].default";
        let text = json!({"type": "string"});
        for (field, want) in [
            (
                json!({"type": "integer", "default": "x"}),
                ": Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ),
            (
                json!({"type": "string", "enum": ["a"], "default": "b"}),
                ": Unsupported value: \"b\": supported values: \"a\"",
            ),
            (
                json!({"type": "string", "pattern": "^a$", "default": "b"}),
                ": Invalid value: \"b\":  in body should match '^a$'",
            ),
            (
                json!({"type": "object", "properties": {"x": text}, "default": {"y": 1}}),
                ": Invalid value: {\"y\":1}: must not have unknown fields",
            ),
            (
                json!({"type": "object", "properties": {"x": text}, "required": ["x"], "default": {}}),
                ".x: Required value",
            ),
            (
                json!({"type": "array", "items": text, "default": [1]}),
                "[0]: Invalid value: \"integer\": [0] in body must be of type string: \"integer\"",
            ),
            (
                json!({"type": "string", "default": "b", "x-kubernetes-validations": [{"rule": "self == 'a'"}]}),
                ": Invalid value: \"b\": failed rule: self == 'a'",
            ),
        ] {
            let want = format!("{at}{want}");
            assert_eq!(said(&field), [want], "{field}");
            let (bad, good) = (definition(&field), definition(&json!({"type": "string"})));
            for (old, count) in [(&good, 1), (&bad, 0)] {
                let mut errors = Vec::new();
                definition_update(&bad, old, &mut errors);
                assert_eq!(errors.len(), count, "{field} {errors:?}");
            }
        }
    }
}
