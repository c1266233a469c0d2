//! JSON values as CEL values.

use super::go_time;
use super::names::{escaped, is_escaped, is_reserved};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_fields::apiextensions::v1::JSONSchemaProps;
use coracle_fields::{Schema as _, View};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// A JSON value as CEL knows it: whole numbers are ints.
pub fn to_cel(value: &Value) -> cel::Value {
    to_cel_typed(&Value::Null, value)
}

/// A JSON value as CEL knows it by a schema: numbers are what the schema calls them, dates, spans of time and bytes are such,
/// and fields whose names are no identifiers have other names.
pub fn to_cel_typed(schema: &Value, value: &Value) -> cel::Value {
    typed(JSONSchemaProps::of(schema), value)
}

fn typed(schema: View<'_, JSONSchemaProps>, value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(is) => cel::Value::Bool(*is),
        Value::Number(number) => match number.as_i64().filter(|_| schema.type_() != "number") {
            Some(whole) => cel::Value::Int(whole),
            None => cel::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => {
            let parsed = match schema.format().get() {
                Some("date-time") => go_time::timestamp_value(text).ok(),
                Some("date") => go_time::timestamp_value(&format!("{text}T00:00:00Z")).ok(),
                Some("duration") => go_time::duration_value(text).ok(),
                Some("byte") => STANDARD.decode(text).ok().map(|bytes| cel::Value::Bytes(bytes.into())),
                _ => None,
            };
            parsed.unwrap_or_else(|| cel::Value::String(Arc::new(text.clone())))
        }
        Value::Array(items) => cel::Value::List(Arc::new(
            items.iter().map(|item| typed(schema.items().as_type(), item)).collect(),
        )),
        Value::Object(fields) => {
            let (known, rest) = (schema.properties(), schema.additional_properties());
            let mut lifted: HashMap<String, cel::Value> = HashMap::new();
            for (name, value) in fields {
                let Some(of) = known.find(name) else {
                    lifted.insert(name.clone(), typed(rest.as_type(), value));
                    continue;
                };
                let value = typed(of, value);
                if is_reserved(name) {
                    lifted.insert(name.clone(), value.clone());
                }
                lifted.insert(escaped(name), value);
            }
            cel::Value::from(lifted)
        }
    }
}

/// A JSON value without a schema, such as the claims of a token, as upstream has it: all numbers are floating-point numbers, and a
/// field whose name is no identifier can be selected by its escaped name. A name that already looks escaped stands for
/// another name, so that nobody can take the place of a field by choosing such a name.
pub fn to_cel_claims(value: &Value) -> cel::Value {
    match value {
        Value::Number(number) => cel::Value::Float(number.as_f64().unwrap_or_default()),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(to_cel_claims).collect())),
        Value::Object(fields) => {
            let mut known = HashMap::new();
            for (name, value) in fields {
                let (value, other) = (to_cel_claims(value), escaped(name));
                if other != *name {
                    known.insert(other, value.clone());
                }
                if !is_escaped(name) {
                    known.insert(name.clone(), value);
                }
            }
            cel::Value::from(known)
        }
        other => to_cel(other),
    }
}

/// How many values there are in a value: what it costs to lift it.
pub fn values_in(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(values_in).sum::<u64>(),
        Value::Object(fields) => 1 + fields.values().map(values_in).sum::<u64>(),
        Value::String(text) => 1 + text.len() as u64 / 64,
        _ => 1,
    }
}

/// The same of a value that an expression made.
pub fn values_made(value: &cel::Value) -> u64 {
    match value {
        cel::Value::List(items) => 1 + items.iter().map(values_made).sum::<u64>(),
        cel::Value::Map(map) => 1 + map.map.values().map(values_made).sum::<u64>(),
        cel::Value::String(text) => 1 + text.len() as u64 / 64,
        cel::Value::Struct(made) => {
            let fields = made.field_values();
            let sizes = fields.values().map(|field| cel::Value::try_from(&**field));
            1 + sizes.map(|field| field.map_or(1, |field| values_made(&field))).sum::<u64>()
        }
        _ => 1,
    }
}
