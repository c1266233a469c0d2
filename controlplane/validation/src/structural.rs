//! Schemas of custom resources are structural: every value has one type, which is told outside of alternatives, and nothing in a
//! schema leads out of it.

use super::field_ref::{Field, FieldRef};
use super::schema_rules;
use super::tree::{is_empty, same};
use coracle_fields::apiextensions::v1::JSONSchemaProps;
use coracle_fields::{Json, View};
use serde_json::{Value, json};
use std::collections::HashSet;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// What a schema may have at its root when the status has a schema of its own, and what errors call it.
const WITH_STATUS: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// A schema or part of one.
type Props<'a> = Field<'a, JSONSchemaProps>;

/// Checks a whole schema; `status` tells whether its status is a subresource.
pub(super) fn check(schema: &Props<'_>, status: bool) {
    let before = schema.errors();
    if status {
        root_with_status(schema);
    }
    if schema.nullable().flag() {
        schema.nullable().forbidden("nullable cannot be true at the root");
    }
    let foreign = is_foreign(schema.view());
    if !foreign {
        typed(schema, Level::Root);
        junctors_complete(schema, schema);
    }
    written(schema, Around { no_defaults: None, in_meta: false }, true);
    if foreign && schema.errors() == before {
        // All else that makes it foreign has been reported.
        schema.invalid_as("", "OpenAPIV3Schema 'schema' is not supported");
    }
}

/// The status is checked by what the schema has in `properties`, so that nothing else may speak of it.
fn root_with_status(schema: &Props<'_>) {
    let kind = schema.type_();
    if !kind.text().is_empty() && kind != "object" {
        return kind.invalid(
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
        );
    }
    let is_other = |(name, value): (&String, &Value)| {
        let is_there = if name == "default" { !value.is_null() } else { !is_empty(value) };
        is_there && !WITH_STATUS.iter().any(|(known, _)| name == known)
    };
    if schema.value.as_object().into_iter().flatten().any(is_other) {
        let names: Vec<&str> = WITH_STATUS.iter().map(|(_, name)| *name).collect();
        // Without the schema, so that a stored one with this error can be changed.
        let why = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        schema.invalid_as("", why);
    }
}

/// Whether a schema has what no structural schema can say. The rest of it is not looked at then.
fn is_foreign(schema: View<'_, JSONSchemaProps>) -> bool {
    let own = !schema.id().text().is_empty()
        || !schema.schema().text().is_empty()
        || !schema.ref_().text().is_empty()
        || schema.pattern_properties().entries().next().is_some()
        || schema.definitions().entries().next().is_some()
        || schema.additional_items().is_set()
        || !is_empty(&schema.dependencies().as_value())
        || schema.items().as_value().as_array().is_some_and(|items| !items.is_empty())
        || schema.x_kubernetes_preserve_unknown_fields().get() == Some(false);
    let either: [View<'_, Json>; 3] =
        [schema.items().erased(), schema.additional_properties().erased(), schema.not().erased()];
    own || schema.properties().entries().any(|(_, below)| is_foreign(below))
        || either.into_iter().any(|below| below.as_value().is_object() && is_foreign(below.as_type()))
        || [schema.all_of(), schema.any_of(), schema.one_of()]
            .into_iter()
            .any(|list| list.items().any(is_foreign))
}

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Every value of a schema and of those below has a type.
fn typed(schema: &Props<'_>, level: Level) {
    let (items, entries, properties) = (schema.items(), schema.additional_properties(), schema.properties());
    let kind = schema.type_();
    if kind == "array" && !items.value.is_object() {
        items.required("must be specified");
    }
    if items.value.is_object() {
        typed(&items.as_type(), Level::Item);
    }
    for (_, field) in properties.entries() {
        typed(&field, Level::Field);
    }
    if entries.is_set() && level == Level::Root {
        entries.forbidden("must not be used at the root");
    }
    if entries.value.is_object() {
        typed(&entries.as_type(), Level::Field);
    }
    let open = schema.x_kubernetes_preserve_unknown_fields();
    let embedded = schema.x_kubernetes_embedded_resource();
    let either = schema.x_kubernetes_int_or_string().flag();
    for other in [&open, &embedded].into_iter().filter(|other| either && other.flag()) {
        other.invalid("must be false if x-kubernetes-int-or-string is true");
    }
    let first_is_either = schema.all_of().items().next().is_some_and(|first| is_either(&first.any_of()));
    junctors(schema, is_either(&schema.any_of()), first_is_either);
    if embedded.flag() && kind != "object" {
        wrong_type(schema, "must be object if x-kubernetes-embedded-resource is true");
    } else if kind.text().is_empty() && !either && !open.flag() {
        kind.required(match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        });
    }
    if embedded.flag() && entries.is_set() {
        entries.forbidden("must not be used if x-kubernetes-embedded-resource is set");
    }
    if level == Level::Root && !kind.text().is_empty() && kind != "object" {
        kind.invalid("must be object at the root");
    }
    let is_resource = level == Level::Root || embedded.flag();
    for (name, field) in properties.entries().filter(|_| is_resource) {
        let kind = field.type_();
        match name {
            "kind" | "apiVersion" if kind != "string" => kind.invalid_as(kind.text(), "must be string"),
            "metadata" if kind != "object" => kind.invalid_as(kind.text(), "must be object"),
            _ => {}
        }
        if name == "metadata" && level == Level::Root && !is_plain_metadata(&field) {
            field.forbidden(
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            );
        }
    }
    if embedded.flag() && !open.flag() && properties.is_empty() {
        properties.required(
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        );
    }
}

fn wrong_type(schema: &Props<'_>, why: &str) {
    let kind = schema.type_();
    if kind.text().is_empty() { kind.required(why) } else { kind.invalid(why) }
}

/// Whether the schema of metadata says nothing of what all objects have, but of their names.
fn is_plain_metadata(metadata: &Props<'_>) -> bool {
    metadata.value.as_object().into_iter().flatten().all(|(name, value)| match name.as_str() {
        "type" | "default" => true,
        "properties" => {
            let mut names = value.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
            names.all(|name| matches!(name, "name" | "generateName"))
        }
        _ => is_empty(value),
    })
}

/// Whether alternatives are those of a number or a string, the only ones that may speak of types.
fn is_either(alternatives: &FieldRef<'_>) -> bool {
    same(alternatives.value, &json!([{"type": "integer"}, {"type": "string"}]))
}

/// Alternatives only restrict values; what they are is told outside.
fn junctors(schema: &Props<'_>, skip_any: bool, skip_first: bool) {
    if !skip_any {
        schema.any_of().items().for_each(|one| restricting(&one, false));
    }
    for (at, one) in schema.all_of().items().enumerate() {
        restricting(&one, skip_first && at == 0);
    }
    schema.one_of().items().for_each(|one| restricting(&one, false));
    if schema.not().value.is_object() {
        restricting(&schema.not(), false);
    }
}

/// One of several alternatives, or a part of one.
fn restricting(part: &Props<'_>, skip_any: bool) {
    junctors(part, skip_any, false);
    let (items, entries) = (part.items(), part.additional_properties());
    if items.value.is_object() {
        restricting(&items.as_type(), false);
    }
    for (name, field) in part.properties().entries() {
        restricting(&field, false);
        if name == "metadata" {
            field.forbidden("must not be specified in a nested context");
        }
    }
    for text in [part.type_(), part.title(), part.description()] {
        if !text.text().is_empty() {
            text.forbidden("must be empty to be structural");
        }
    }
    for list in [part.x_kubernetes_list_map_keys().erased(), part.x_kubernetes_validations().erased()] {
        if !list.is_empty() {
            list.forbidden("must be empty to be structural");
        }
    }
    if entries.value.is_object() || *entries.value == true {
        entries.forbidden("must be undefined to be structural");
    }
    let [list, map] = [part.x_kubernetes_list_type(), part.x_kubernetes_map_type()];
    for value in [part.default_().erased(), list.erased(), map.erased()] {
        if value.is_set() {
            value.forbidden("must be undefined to be structural");
        }
    }
    for flag in [
        part.nullable(),
        part.x_kubernetes_preserve_unknown_fields(),
        part.x_kubernetes_embedded_resource(),
        part.x_kubernetes_int_or_string(),
    ] {
        if flag.flag() {
            flag.forbidden("must be false to be structural");
        }
    }
}

/// What the alternatives at the root restrict is there.
fn junctors_complete(part: &Props<'_>, of: &Props<'_>) {
    for alternatives in [part.all_of(), part.any_of(), part.one_of()] {
        alternatives.items().for_each(|one| complete(&one, of));
    }
    if part.not().value.is_object() {
        complete(&part.not(), of);
    }
}

fn complete(part: &Props<'_>, of: &Props<'_>) {
    if !of.is_set() {
        return FieldRef::required(of, &format!("because it is defined in {}", FieldRef::path(part)));
    }
    junctors_complete(part, of);
    if part.items().value.is_object() {
        complete(&part.items().as_type(), &of.items().as_type());
    }
    for (name, field) in part.properties().entries() {
        complete(&field, &of.properties().key(name));
    }
}

/// What the schemas around a schema say of it.
#[derive(Clone, Copy)]
struct Around<'p> {
    /// Where no defaults may stand.
    no_defaults: Option<&'p str>,
    /// It is about metadata.
    in_meta: bool,
}

/// What may not be written in a schema, structural or not, and in those below.
fn written(schema: &Props<'_>, around: Around<'_>, root: bool) {
    schema_rules::written(schema);
    keywords(schema, around);
    let (items, entries, properties) = (schema.items(), schema.additional_properties(), schema.properties());
    if schema.unique_items().flag() {
        schema
            .unique_items()
            .forbidden("uniqueItems cannot be set to true since the runtime complexity becomes quadratic");
    }
    if entries.is_set() && *entries.value != true && !properties.is_empty() {
        entries.forbidden("additionalProperties and properties are mutual exclusive");
    }
    if entries.value.is_object() {
        let no_defaults = match around.in_meta {
            true => Some("inside additionalProperties applying to object metadata"),
            false => around.no_defaults,
        };
        written(&entries.as_type(), Around { no_defaults, ..around }, false);
    }
    for (name, field) in properties.entries() {
        let is_meta = (root || schema.x_kubernetes_embedded_resource().flag())
            && matches!(name, "metadata" | "kind" | "apiVersion");
        let reason = format!("in top-level {name}");
        let no_defaults = if is_meta && root { Some(reason.as_str()) } else { around.no_defaults };
        written(&field, Around { no_defaults, in_meta: around.in_meta || is_meta }, false);
    }
    if schema.not().value.is_object() {
        written(&schema.not(), around, false);
    }
    for alternatives in [schema.all_of(), schema.any_of(), schema.one_of()] {
        alternatives.items().for_each(|one| written(&one, around, false));
    }
    if items.value.is_object() {
        written(&items.as_type(), around, false);
    }
    let open = schema.x_kubernetes_preserve_unknown_fields();
    if open.get() == Some(false) {
        open.invalid("must be true or undefined");
    }
    let map = schema.x_kubernetes_map_type();
    if map.is_set() {
        if schema.type_() != "object" {
            wrong_type(schema, "must be object if x-kubernetes-map-type is specified");
        }
        if !["atomic", "granular"].contains(&map.text()) {
            map.unsupported(&["atomic", "granular"]);
        }
    }
    list_type(schema);
}

/// Words of JSON Schema that schemas of resources do not have.
fn keywords(schema: &Props<'_>, around: Around<'_>) {
    let kind = schema.type_();
    if !kind.text().is_empty() && !TYPES.contains(&kind.text()) {
        kind.unsupported(&TYPES);
    }
    if let Some(reason) = around.no_defaults.filter(|_| schema.default_().is_set()) {
        schema.default_().forbidden(format!("must not be set {reason}"));
    }
    for (field, name, is_there) in [
        (schema.id().erased(), "id", !schema.id().text().is_empty()),
        (schema.additional_items().erased(), "additionalItems", schema.additional_items().is_set()),
        (schema.pattern_properties().erased(), "patternProperties", !schema.pattern_properties().is_empty()),
        (schema.definitions().erased(), "definitions", !schema.definitions().is_empty()),
        (schema.dependencies().erased(), "dependencies", schema.dependencies().is_set()),
        (schema.ref_().erased(), "$ref", schema.ref_().is_set()),
    ] {
        if is_there {
            field.forbidden(format!("{name} is not supported"));
        }
    }
    if kind == "null" {
        kind.forbidden("type cannot be set to null, use nullable as an alternative");
    }
    if schema.items().value.as_array().is_some_and(|items| !items.is_empty()) {
        schema.items().forbidden("items must be a schema object and not an array");
    }
    if around.in_meta && schema.x_kubernetes_embedded_resource().flag() {
        schema.x_kubernetes_embedded_resource().forbidden("must not be used inside of resource meta");
    }
}

/// What kind of list it is fits its items.
fn list_type(schema: &Props<'_>) {
    let (list, keys, items) =
        (schema.x_kubernetes_list_type(), schema.x_kubernetes_list_map_keys(), schema.items());
    if !keys.is_empty() && list != "map" {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        if list.is_set() { list.invalid(why) } else { list.required(why) }
    }
    if !list.is_set() {
        return;
    }
    let item: Props<'_> = items.as_type();
    let has_item = items.value.is_object();
    if schema.type_() != "array" {
        wrong_type(schema, "must be array if x-kubernetes-list-type is specified");
    } else if list == "set" && has_item {
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let (inner, map) = (item.x_kubernetes_list_type(), item.x_kubernetes_map_type());
        match item.type_().text() {
            "array" if inner.is_set() && inner != "atomic" => inner.invalid(why),
            // The value that upstream shows is that of the other field.
            "object" if map != "atomic" => map.with(inner.value).invalid(why),
            _ => {}
        }
    }
    if !["atomic", "set", "map"].contains(&list.text()) {
        list.unsupported(&["atomic", "set", "map"]);
    }
    if (list == "set" || list == "map") && has_item && item.nullable().flag() {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {}", list.text());
        item.nullable().forbidden(why);
    }
    if list != "map" {
        return;
    }
    if keys.is_empty() {
        keys.required("must not be empty if x-kubernetes-list-type is map");
    }
    if !items.is_set() {
        items.required("must have a schema if x-kubernetes-list-type is map");
    } else if !has_item {
        items.invalid("must only have a single schema if x-kubernetes-list-type is map");
    } else {
        map_keys(schema, &item);
    }
}

/// The keys of a list tell its items apart.
fn map_keys(schema: &Props<'_>, item: &Props<'_>) {
    let (keys, kind) = (schema.x_kubernetes_list_map_keys(), item.type_());
    let is_object = kind == "object";
    if !is_object {
        kind.invalid_as(kind.text(), "must be object if parent array's x-kubernetes-list-type is map");
    }
    let required: HashSet<&str> = item.view().required().texts().collect();
    let names: HashSet<&str> = keys.view().texts().collect();
    // Both errors show all keys, so that each is reported once.
    if is_object && names.iter().any(|key| !item.properties().key(key).is_set()) {
        keys.invalid("entries must all be names of item properties");
    }
    if is_object && names.len() < keys.len() {
        keys.invalid("must not contain duplicate entries");
    }
    for key in keys.view().texts() {
        let field = item.properties().key(key);
        if !field.is_set() {
            continue;
        }
        if is_object && matches!(field.type_().text(), "array" | "object") {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            field.type_().invalid_as("object", why);
        }
        if !required.contains(key) && !field.default_().is_set() {
            field.default_().required(
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            );
        }
        if field.nullable().flag() {
            field
                .nullable()
                .forbidden("this property is in x-kubernetes-list-map-keys, so it cannot be nullable");
        }
    }
}

#[cfg(test)]
mod tests;
