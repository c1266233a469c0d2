//! Values that a structural schema does not allow, in upstream's words.

use super::list_items::{Followed, map_keys, sorted};
use coracle_expressions::patterns;
use coracle_fields::apiextensions::v1::JSONSchemaProps;
use coracle_fields::{Int64, Schema as _, View};
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::collections::HashSet;

/// Checks a whole object; its metadata is checked elsewhere. What nobody changed since `old` was accepted before and may
/// stay, whatever the schema says now.
pub fn root(schema: &Value, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut inner = schema.clone();
    JSONSchemaProps::edit(&mut inner).properties().remove("metadata");
    value(JSONSchemaProps::of(&inner), object, old, "", errors);
}

/// A schema or part of one.
type Props<'a> = View<'a, JSONSchemaProps>;

/// A bound that is set; a negative one is none.
fn bound(place: View<'_, Int64>) -> Option<u64> {
    place.int().and_then(|number| u64::try_from(number).ok())
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn invalid(path: &str, value: &Value, rest: &str) -> FieldError {
    FieldError::invalid(path, value, &format!("{path} in body {rest}"))
}

/// Checks a value at a path by a part of a schema.
pub(super) fn value(
    schema: Props<'_>,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(value) {
        return;
    }
    if value.is_null() {
        if let Some(wanted) = schema.type_().get().filter(|_| !schema.nullable().flag()) {
            let text = format!("{path} in body must be of type {wanted}: \"null\"");
            errors.push(FieldError::invalid(path, &json!("null"), &text));
        }
        return;
    }
    let is = kind_of(value);
    let fits = match schema.type_().get() {
        None => !schema.x_kubernetes_int_or_string().flag() || matches!(is, "integer" | "string"),
        Some("number") => matches!(is, "number" | "integer"),
        Some("integer") => is == "integer" || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        Some(wanted) => wanted == is,
    };
    if !fits {
        let wanted = schema.type_().or("integer or string");
        let text = format!("{path} in body must be of type {wanted}: \"{is}\"");
        errors.push(FieldError::invalid(path, &json!(is), &text));
        return;
    }
    if let Some(allowed) = schema.enum_().as_value().as_array()
        && !allowed.contains(value)
    {
        let texts: Vec<String> =
            allowed.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        errors.push(FieldError::unsupported(path, value, &texts));
    }
    match value {
        Value::Number(_) => number(schema, value, path, errors),
        Value::String(text) => string(schema, text, path, errors),
        Value::Array(items) => array(schema, items, old, path, errors),
        Value::Object(fields) => object(schema, fields, old, path, errors),
        _ => {}
    }
    combined(schema, value, path, errors);
}

fn number(schema: Props<'_>, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(is) = value.as_f64() else { return };
    if let Some(least) = schema.minimum().float() {
        let open = schema.exclusive_minimum().flag();
        if is < least || (open && is == least) {
            let words = if open { "greater than" } else { "greater than or equal to" };
            errors.push(invalid(path, value, &format!("should be {words} {}", schema.minimum().as_value())));
        }
    }
    if let Some(most) = schema.maximum().float() {
        let open = schema.exclusive_maximum().flag();
        if is > most || (open && is == most) {
            let words = if open { "less than" } else { "less than or equal to" };
            errors.push(invalid(path, value, &format!("should be {words} {}", schema.maximum().as_value())));
        }
    }
    if let Some(step) = schema.multiple_of().float()
        && step > 0.0
        && (is / step).fract() != 0.0
    {
        let step = schema.multiple_of().as_value();
        errors.push(invalid(path, value, &format!("should be a multiple of {step}")));
    }
}

fn string(schema: Props<'_>, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let length = text.chars().count() as u64;
    if let Some(most) = bound(schema.max_length())
        && length > most
    {
        errors.push(FieldError::too_long(path, most as usize));
    }
    if let Some(least) = bound(schema.min_length())
        && length < least
    {
        errors.push(invalid(path, &json!(text), &format!("should be at least {least} chars long")));
    }
    if let Some(pattern) = schema.pattern().get() {
        match patterns::bounded(pattern) {
            Ok(compiled) if compiled.regex.is_match(text) => {}
            Ok(_) => errors.push(invalid(path, &json!(text), &format!("should match '{pattern}'"))),
            // Of a definition that was stored by a server that took the pattern.
            Err(why) => {
                let why = format!("should match '{pattern}', which is no regular expression: {why}");
                errors.push(invalid(path, &json!(text), &why));
            }
        }
    }
    let format = schema.format().text();
    let bad = match format {
        "date-time" => text.parse::<jiff::Timestamp>().is_err(),
        "date" => text.parse::<jiff::civil::Date>().is_err(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_err(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_err(),
        "uuid" => uuid::Uuid::parse_str(text).is_err(),
        _ => false,
    };
    if bad {
        errors.push(invalid(path, &json!(text), &format!("must be of type {format}: \"{text}\"")));
    }
}

fn array(schema: Props<'_>, items: &[Value], old: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    let count = items.len() as u64;
    if let Some(most) = bound(schema.max_items())
        && count > most
    {
        errors.push(FieldError::new(
            "FieldValueTooMany",
            path,
            format!("Too many: {count}: must have at most {most} items"),
        ));
    }
    if let Some(least) = bound(schema.min_items())
        && count < least
    {
        errors.push(invalid(path, &json!(count), &format!("should have at least {least} items")));
    }
    let keys = map_keys(schema);
    let by_key = schema.x_kubernetes_list_type() == "map";
    let unique = by_key || schema.x_kubernetes_list_type() == "set" || schema.unique_items().flag();
    let mut seen = HashSet::new();
    let followed = Followed::of(&keys, old);
    for (i, item) in items.iter().enumerate() {
        value(schema.items().as_type(), item, followed.item(item), &format!("{path}[{i}]"), errors);
        if !unique {
            continue;
        }
        let same: Value = if by_key {
            keys.iter().map(|key| (key.clone(), item[key].clone())).collect()
        } else {
            item.clone()
        };
        if !seen.insert(sorted(&same)) {
            errors.push(FieldError::duplicate(format!("{path}[{i}]"), &same));
        }
    }
}

fn object(
    schema: Props<'_>,
    fields: &serde_json::Map<String, Value>,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for name in schema.required().items().filter_map(|name| name.get()) {
        if !fields.contains_key(name) {
            errors.push(FieldError::required(child(path, name), ""));
        }
    }
    let count = fields.len() as u64;
    if let Some(most) = bound(schema.max_properties())
        && count > most
    {
        errors.push(FieldError::new(
            "FieldValueTooMany",
            path,
            format!("Too many: {count}: must have at most {most} items"),
        ));
    }
    if let Some(least) = bound(schema.min_properties())
        && count < least
    {
        errors.push(invalid(path, &json!(count), &format!("should have at least {least} properties")));
    }
    let (known, rest) = (schema.properties(), schema.additional_properties());
    for (name, inside) in fields {
        let before = old.and_then(|old| old.get(name));
        match known.find(name) {
            Some(of) => value(of, inside, before, &child(path, name), errors),
            None if rest.is_object() => value(rest.as_type(), inside, before, &child(path, name), errors),
            None => {}
        }
    }
}

fn combined(schema: Props<'_>, it: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let valid = |schema: Props<'_>| {
        let mut errors = Vec::new();
        value(schema, it, None, path, &mut errors);
        errors.is_empty()
    };
    for of in schema.all_of().items() {
        value(of, it, None, path, errors);
    }
    if schema.any_of().is_set() && !schema.any_of().items().any(valid) {
        errors.push(invalid(path, it, "must validate at least one schema (anyOf)"));
    }
    if schema.one_of().is_set() && schema.one_of().items().filter(|of| valid(*of)).count() != 1 {
        errors.push(invalid(path, it, "must validate one and only one schema (oneOf)"));
    }
    if schema.not().is_object() && valid(schema.not()) {
        errors.push(invalid(path, it, "must not validate the schema (not)"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(schema: Value, spec: Value) -> String {
        let schema = json!({"type": "object", "properties": {"spec": schema}});
        let mut errors = Vec::new();
        root(&schema, &json!({"metadata": {"name": "n"}, "spec": spec}), None, &mut errors);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn values_are_held_to_the_schema() {
        let of = |field: Value| json!({"type": "object", "properties": {"f": field}});
        let cases = [
            (
                of(json!({"type": "integer"})),
                json!({"f": "x"}),
                "spec.f: Invalid value: \"string\": spec.f in body must be of type integer: \"string\"",
            ),
            (
                of(json!({"type": "integer", "minimum": 1})),
                json!({"f": 0}),
                "spec.f: Invalid value: 0: spec.f in body should be greater than or equal to 1",
            ),
            (
                of(json!({"type": "integer", "maximum": 3})),
                json!({"f": 4}),
                "spec.f: Invalid value: 4: spec.f in body should be less than or equal to 3",
            ),
            (
                of(json!({"type": "string", "pattern": "^a$"})),
                json!({"f": "b"}),
                "spec.f: Invalid value: \"b\": spec.f in body should match '^a$'",
            ),
            (
                of(json!({"type": "string", "pattern": "a**"})),
                json!({"f": "a"}),
                "spec.f: Invalid value: \"a\": spec.f in body should match 'a**', which is no regular expression: * repeats a repetition",
            ),
            (
                of(json!({"type": "string", "enum": ["a", "b"]})),
                json!({"f": "c"}),
                "spec.f: Unsupported value: \"c\": supported values: \"a\", \"b\"",
            ),
            (
                of(json!({"type": "string", "maxLength": 2})),
                json!({"f": "abc"}),
                "spec.f: Too long: may not be more than 2 bytes",
            ),
            (
                of(json!({"type": "array", "maxItems": 1})),
                json!({"f": [1, 2]}),
                "spec.f: Too many: 2: must have at most 1 items",
            ),
            (
                of(json!({"type": "array", "x-kubernetes-list-type": "set"})),
                json!({"f": [1, 1]}),
                "spec.f[1]: Duplicate value: 1",
            ),
            (of(json!({"x-kubernetes-int-or-string": true})), json!({"f": "5%"}), ""),
            (of(json!({"type": "string", "nullable": true})), json!({"f": null}), ""),
            (of(json!({"type": "number"})), json!({"f": 1}), ""),
            (json!({"type": "object", "required": ["f"]}), json!({}), "spec.f: Required value"),
            (
                of(json!({"anyOf": [{"type": "string"}, {"type": "integer"}]})),
                json!({"f": true}),
                "spec.f: Invalid value: true: spec.f in body must validate at least one schema (anyOf)",
            ),
        ];
        for (schema, spec, expected) in cases {
            assert_eq!(said(schema.clone(), spec), expected, "{schema}");
        }
    }

    #[test]
    fn what_nobody_changed_stays() {
        let schema = json!({"properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"}, "b": {"type": "integer"},
            "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                "items": {"properties": {"n": {"type": "string"}, "v": {"type": "integer"}}}}}}}});
        let old = json!({"spec": {"a": 1, "b": 1, "l": [{"n": "x", "v": "bad"}]}});
        let new = json!({"spec": {"a": 1, "b": "x", "l": [{"n": "y", "v": 1}, {"n": "x", "v": "bad"}]}});
        let mut errors = Vec::new();
        root(&schema, &new, Some(&old), &mut errors);
        let texts: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(texts, ["spec.b"]);
    }
}
