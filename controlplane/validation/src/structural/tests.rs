use super::super::field_ref::walk_as;
use super::*;

fn said(schema: &Value, status: bool) -> Vec<String> {
    let mut errors = Vec::new();
    walk_as::<JSONSchemaProps>(schema, &mut errors, |root| check(&root, status));
    errors.iter().map(ToString::to_string).collect()
}

/// The errors about a field, whose path is left out.
fn about(field: &Value) -> String {
    let root =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": field}}}});
    let at = "properties[spec].properties[a].";
    said(&root, false).iter().map(|error| error.replacen(at, "", 1)).collect::<Vec<_>>().join("|")
}

#[test]
fn schemas_that_are_in_use() {
    let key = json!({"type": "string"});
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": key,
        "protocol": {"type": "string", "default": "TCP"}}});
    for field in [
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^a"}),
        json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]},
            {"pattern": "^a"}]}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "protocol"],
            "items": item}),
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": key}),
        json!({"type": "array", "x-kubernetes-list-type": "set",
            "items": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"b": key}}}),
        json!({"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "object"}}),
        json!({"type": "object", "x-kubernetes-map-type": "granular", "additionalProperties": key}),
        json!({"type": "object", "additionalProperties": true, "properties": {"b": key}}),
        json!({"type": "object", "additionalProperties": false}),
        json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
            "metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
        json!({"type": "object", "properties": {"b": key, "c": key}, "oneOf": [{"required": ["b"]},
            {"required": ["c"], "properties": {"b": {"maxLength": 3}}}], "not": {"required": ["b", "c"]}}),
        // Only what alternatives at the root speak of must be there.
        json!({"type": "object", "anyOf": [{"properties": {"y": {"minLength": 1}}}]}),
        json!({"type": "array", "uniqueItems": false, "items": key, "default": []}),
    ] {
        assert_eq!(about(&field), "", "{field}");
    }
    for root in [
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "description": "d", "required": ["spec"], "properties": {
            "apiVersion": {"type": "string", "description": "v"}, "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}},
            "spec": {"type": "object"}}}),
    ] {
        assert_eq!(said(&root, true), [""; 0], "{root}");
    }
}

#[test]
fn lists_and_maps_have_keys_and_values_that_fit() {
    let list = |more: Value, item: Value| {
        let mut list = json!({"type": "array", "x-kubernetes-list-type": "map", "items": item});
        for (name, value) in more.as_object().into_iter().flatten() {
            list[name] = value.clone();
        }
        list
    };
    let of = |key: Value| json!({"type": "object", "required": ["b"], "properties": {"b": key}});
    let text = json!({"type": "string"});
    let keys = json!({"x-kubernetes-list-map-keys": ["b"]});
    for (field, want) in [
        (
            list(json!({}), of(text.clone())),
            "x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            list(json!({"x-kubernetes-list-map-keys": ["z"]}), of(text.clone())),
            "x-kubernetes-list-map-keys: Invalid value: [\"z\"]: entries must all be names of item properties",
        ),
        (
            list(json!({"x-kubernetes-list-map-keys": ["b", "b"]}), of(text.clone())),
            "x-kubernetes-list-map-keys: Invalid value: [\"b\",\"b\"]: must not contain duplicate entries",
        ),
        (
            list(keys.clone(), json!({"type": "object", "properties": {"b": text}})),
            "items.properties[b].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ),
        (
            list(keys.clone(), of(json!({"type": "object"}))),
            "items.properties[b].type: Invalid value: \"object\": must be a scalar type if parent array's x-kubernetes-list-type is map",
        ),
        (
            list(keys.clone(), of(json!({"type": "string", "nullable": true}))),
            "items.properties[b].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
        ),
        (
            list(keys.clone(), text.clone()),
            "items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is map",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-map-keys": ["b"], "items": of(text.clone())}),
            "x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": ["b"],
                "items": text}),
            "x-kubernetes-list-type: Invalid value: \"set\": must be map if x-kubernetes-list-map-keys is non-empty",
        ),
        (
            json!({"type": "string", "x-kubernetes-list-type": "set"}),
            "type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "bag", "items": text}),
            "x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\"",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": of(text.clone())}),
            "items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "nullable": true}}),
            "items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
        ),
        (
            json!({"type": "array", "x-kubernetes-map-type": "atomic", "items": text}),
            "type: Invalid value: \"array\": must be object if x-kubernetes-map-type is specified",
        ),
        (
            json!({"type": "object", "x-kubernetes-map-type": "bogus"}),
            "x-kubernetes-map-type: Unsupported value: \"bogus\": supported values: \"atomic\", \"granular\"",
        ),
    ] {
        assert_eq!(about(&field), want, "{field}");
    }
}

#[test]
fn words_that_no_structural_schema_has() {
    let text = json!({"type": "string"});
    for (field, want) in [
        (
            json!({"type": "object", "properties": {"b": text}, "additionalProperties": text}),
            "additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            json!({"type": "array", "items": text, "uniqueItems": true}),
            "uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            json!({"type": "object", "definitions": {"x": text}}),
            "definitions: Forbidden: definitions is not supported",
        ),
        (
            json!({"type": "object", "dependencies": {"x": ["y"]}}),
            "dependencies: Forbidden: dependencies is not supported",
        ),
        (
            json!({"type": "object", "patternProperties": {"x": text}}),
            "patternProperties: Forbidden: patternProperties is not supported",
        ),
        (json!({"type": "object", "id": "x"}), "id: Forbidden: id is not supported"),
        (json!({"$ref": "#/x"}), "$ref: Forbidden: $ref is not supported"),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            "x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            "properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ),
        (
            json!({"type": "string", "allOf": [{"type": "string"}]}),
            "allOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "string", "anyOf": [{"description": "x"}]}),
            "anyOf[0].description: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "string", "oneOf": [{"nullable": true}]}),
            "oneOf[0].nullable: Forbidden: must be false to be structural",
        ),
        (
            json!({"type": "string", "not": {"default": "x"}}),
            "not.default: Forbidden: must be undefined to be structural",
        ),
        (
            json!({"type": "string", "not": {"x-kubernetes-validations": [{"rule": "true"}]}}),
            "not.x-kubernetes-validations: Forbidden: must be empty to be structural",
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "string"}, {"type": "integer"}]}),
            "anyOf[0].type: Forbidden: must be empty to be structural|anyOf[1].type: Forbidden: must be empty to be structural",
        ),
    ] {
        assert_eq!(about(&field), want, "{field}");
    }
}

#[test]
fn roots_leave_to_the_server_what_all_objects_have() {
    let root = |properties: Value| json!({"type": "object", "properties": properties});
    for (schema, want) in [
        (
            root(json!({"apiVersion": {"type": "integer"}})),
            "properties[apiVersion].type: Invalid value: \"integer\": must be string",
        ),
        (
            root(json!({"metadata": {"type": "object", "required": ["name"]}})),
            "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ),
        (
            root(json!({"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}})),
            "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ),
        (
            root(
                json!({"metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}}),
            ),
            "properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata",
        ),
        (
            json!({"type": "object", "nullable": true}),
            "nullable: Forbidden: nullable cannot be true at the root",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            "additionalProperties: Forbidden: must not be used at the root",
        ),
        (json!({"type": "string"}), "type: Invalid value: \"string\": must be object at the root"),
        (json!({}), "type: Required value: must not be empty at the root"),
        (
            json!({"type": "object", "anyOf": [{"properties": {"y": {"minLength": 1}}}]}),
            "properties[y]: Required value: because it is defined in anyOf[0].properties[y]",
        ),
        (
            json!({"type": "object", "$schema": "x"}),
            "Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported",
        ),
    ] {
        assert_eq!(said(&schema, false), [want], "{schema}");
    }
    let open = json!({"type": "object", "oneOf": [{"required": ["a"]}]});
    assert_eq!(said(&open, false), [""; 0]);
    let refused = said(&open, true);
    assert!(refused.len() == 1 && refused[0].contains("only [Description Type Format Title "), "{refused:?}");
}
