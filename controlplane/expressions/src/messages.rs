//! Messages of Protocol Buffers that every expression can construct, such as `google.protobuf.Timestamp{seconds: 1}`. Their values
//! are those of CEL: an `Int32Value` is an int.

use super::go_time;
use super::types::Type;
use cel::objects::Key;
use cel::{ExecutionError, Value};
use chrono::{DateTime, TimeDelta};
use std::collections::HashMap;
use std::sync::Arc;

const PACKAGE: &str = "google.protobuf.";

/// Fields of a message, with their types.
type Fields = Vec<(String, Type)>;

/// The type of a message's values, and the message as it is constructed.
pub(super) struct Message {
    pub of: Type,
    pub constructed: Type,
}

/// The message of this name, if there is one.
pub(super) fn find(name: &str) -> Option<Message> {
    let short = name.strip_prefix(PACKAGE)?;
    let fields = |fields: &[(&str, Type)]| -> Fields {
        fields.iter().map(|(field, of)| ((*field).to_owned(), of.clone())).collect()
    };
    let any = || Type::map(Type::Dyn);
    let (of, fields) = match short {
        "Timestamp" => (Type::Timestamp, fields(&[("seconds", Type::Int), ("nanos", Type::Int)])),
        "Duration" => (Type::Duration, fields(&[("seconds", Type::Int), ("nanos", Type::Int)])),
        "Struct" => (any(), fields(&[("fields", any())])),
        "ListValue" => (Type::list(Type::Dyn), fields(&[("values", Type::list(Type::Dyn))])),
        "Value" => {
            let values = [
                ("null_value", Type::Int),
                ("number_value", Type::Double),
                ("string_value", Type::String),
                ("bool_value", Type::Bool),
                ("struct_value", any()),
                ("list_value", Type::list(Type::Dyn)),
            ];
            (Type::Dyn, fields(&values))
        }
        wrapper => {
            let of = wrapped(wrapper)?;
            (of.clone(), fields(&[("value", of)]))
        }
    };
    Some(Message { of, constructed: Type::object(name, fields) })
}

/// The type of the value of a wrapper.
fn wrapped(short: &str) -> Option<Type> {
    Some(match short {
        "BoolValue" => Type::Bool,
        "BytesValue" => Type::Bytes,
        "DoubleValue" | "FloatValue" => Type::Double,
        "Int32Value" | "Int64Value" => Type::Int,
        "StringValue" => Type::String,
        "UInt32Value" | "UInt64Value" => Type::Uint,
        _ => return None,
    })
}

/// Why a message has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum MessageError {
    #[error("a field of the message has a value of another type")]
    Field,
    #[error("a number in the message is too large for its field")]
    Range,
    #[error("the message has several values where it can have one")]
    Several,
}

/// The value of a message with these fields.
pub(super) fn constructed(name: &str, fields: &HashMap<Key, Value>) -> Result<Value, ExecutionError> {
    value(name.strip_prefix(PACKAGE).unwrap_or(name), fields)
        .map_err(|why| ExecutionError::function_error(name, why))
}

fn value(short: &str, fields: &HashMap<Key, Value>) -> Result<Value, MessageError> {
    let field = |name: &str| fields.get(&Key::from(name)).cloned();
    let number = |name: &str| match field(name) {
        Some(Value::Int(number)) => Ok(number),
        None => Ok(0),
        Some(_) => Err(MessageError::Field),
    };
    match short {
        "Timestamp" => {
            let nanos = u32::try_from(number("nanos")?).ok().filter(|nanos| *nanos < 1_000_000_000);
            let nanos = nanos.ok_or(MessageError::Range)?;
            let time = DateTime::from_timestamp(number("seconds")?, nanos).and_then(go_time::in_range);
            let time = time.ok_or(MessageError::Range)?;
            Ok(Value::Timestamp(time.fixed_offset()))
        }
        "Duration" => {
            let seconds = number("seconds")?.checked_mul(1_000_000_000).ok_or(MessageError::Range)?;
            let length = seconds.checked_add(number("nanos")?).ok_or(MessageError::Range)?;
            Ok(Value::Duration(TimeDelta::nanoseconds(length)))
        }
        "Struct" => Ok(field("fields").unwrap_or_else(|| Value::from(HashMap::<String, Value>::new()))),
        "ListValue" => Ok(field("values").unwrap_or_else(|| Value::List(Arc::default()))),
        "Value" if fields.len() > 1 => Err(MessageError::Several),
        "Value" => {
            let set = fields.iter().find(|(name, _)| **name != Key::from("null_value"));
            Ok(set.map_or(Value::Null, |(_, value)| value.clone()))
        }
        wrapper => match (wrapper, field("value")) {
            ("Int32Value", Some(Value::Int(number))) if i32::try_from(number).is_err() => {
                Err(MessageError::Range)
            }
            ("UInt32Value", Some(Value::UInt(number))) if u32::try_from(number).is_err() => {
                Err(MessageError::Range)
            }
            ("FloatValue", Some(Value::Float(number))) => Ok(Value::Float(f64::from(number as f32))),
            (_, Some(value)) => Ok(value),
            (_, None) => Ok(match wrapped(wrapper) {
                Some(Type::Bool) => Value::Bool(false),
                Some(Type::Bytes) => Value::Bytes(Arc::default()),
                Some(Type::Double) => Value::Float(0.0),
                Some(Type::Int) => Value::Int(0),
                Some(Type::Uint) => Value::UInt(0),
                _ => Value::from(""),
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::types::check;
    use crate::{Budget, compile, context};

    #[test]
    fn messages_are_values() {
        for text in [
            "google.protobuf.Timestamp{seconds: 1, nanos: 5} == timestamp('1970-01-01T00:00:01.000000005Z')",
            "google.protobuf.Duration{seconds: 60} == duration('1m') && google.protobuf.Duration{} == duration('0')",
            "google.protobuf.Int32Value{value: 1} + google.protobuf.Int64Value{value: 2} == 3",
            "google.protobuf.UInt32Value{value: 1u} == 1u && google.protobuf.UInt64Value{} == 0u",
            "google.protobuf.FloatValue{value: 0.5} == google.protobuf.DoubleValue{value: 0.5}",
            "google.protobuf.StringValue{value: 'a'} == 'a' && google.protobuf.BytesValue{} == b''",
            "google.protobuf.BoolValue{value: true} && !google.protobuf.BoolValue{?value: optional.none()}",
            "google.protobuf.Struct{fields: {'a': 1}}.a == 1 && google.protobuf.ListValue{values: [1]}[0] == 1",
            "google.protobuf.Value{string_value: 'a'} == 'a' && google.protobuf.Value{} == null",
        ] {
            let program = compile(text).unwrap();
            assert_eq!(check(&program, &[]).map(|of| of.to_string()).unwrap(), "bool", "{text}");
            let value = program.evaluate(&context(), &mut Budget::of(10_000));
            assert!(matches!(value, Ok(cel::Value::Bool(true))), "{text}: {value:?}");
        }
        for (text, why) in [
            ("google.protobuf.Int32Value{value: 'a'}", "expected type of field 'value' is 'int'"),
            ("google.protobuf.Int32Value{number: 1}", "undefined field 'number'"),
            ("google.protobuf.Any{}", "undeclared reference to 'google.protobuf.Any'"),
            ("Timestamp{}", "undeclared reference to 'Timestamp'"),
        ] {
            let said = check(&compile(text).unwrap(), &[]).unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
        for text in [
            "google.protobuf.Int32Value{value: 5000000000} == 1",
            "google.protobuf.Timestamp{nanos: -1} == timestamp(0)",
            "google.protobuf.Timestamp{nanos: 1000000000} == timestamp(0)",
            "google.protobuf.Timestamp{seconds: 253402300800} == timestamp(0)",
            "google.protobuf.Value{bool_value: true, string_value: 'a'} == 'a'",
        ] {
            assert!(compile(text).unwrap().evaluate(&context(), &mut Budget::of(10_000)).is_err(), "{text}");
        }
    }
}
