//! Kubernetes protobuf bodies: the `k8s\0` envelope around a message of the schema table.
//!
//! The result is the JSON form of the object, in the form in which Go writes it.

// Why a body is not a message of its type.
mod error;

pub use error::ProtobufError;

use base64::Engine;
use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use crate::decode::{JsonError, Meta, add_zero_values, from_json_within, keeps, plain};
use crate::limits::{MAX_BODY_DEPTH, MAX_NODES, height};
use crate::quantity::Quantity;
use crate::schema::{Field, List, Scalar, Shape, Type, type_of};
use crate::time;
use std::cell::Cell;

/// What every body begins with.
pub const PREFIX: &[u8] = b"k8s\0";

/// How deep in the object a value is, and how many more values may come: two bytes of protobuf may be an object.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// Arrays and objects around the value.
    depth: usize,
    left: &'a Cell<usize>,
}

impl Place<'_> {
    /// One level further down, in an array or object.
    fn inside(self) -> Result<Self, ProtobufError> {
        if self.depth == MAX_BODY_DEPTH {
            return Err(ProtobufError::Depth);
        }
        Ok(Self { depth: self.depth + 1, left: self.left })
    }

    /// Counts one value.
    fn count(self) -> Result<(), ProtobufError> {
        let left = self.left.get().checked_sub(1).ok_or(ProtobufError::TooManyValues)?;
        self.left.set(left);
        Ok(())
    }

    /// JSON that is a value here.
    fn json(self, text: &[u8]) -> Result<Value, ProtobufError> {
        let value = plain(from_json_within(text, self.left.get()).map_err(ProtobufError::Json)?);
        let mut left = self.left.get();
        let levels = height(&value, &mut left).ok_or(ProtobufError::TooManyValues)?;
        if self.depth + levels > MAX_BODY_DEPTH {
            return Err(ProtobufError::Json(JsonError::Depth));
        }
        self.left.set(left);
        Ok(value)
    }
}

/// A body without its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Kind and version of the message.
    pub meta: Meta,
    /// The message.
    pub raw: &'a [u8],
}

/// Takes the envelope off.
pub fn open(body: &[u8]) -> Result<Envelope<'_>, ProtobufError> {
    if body.is_empty() {
        return Err(ProtobufError::Empty);
    }
    let Some(data) = body.strip_prefix(PREFIX) else {
        return Err(ProtobufError::Prefix);
    };
    if data.is_empty() {
        return Err(ProtobufError::EmptyBody);
    }
    let mut envelope = Envelope { meta: Meta::default(), raw: &[] };
    for field in Fields(data) {
        match field? {
            (1, Wire::Bytes(inner)) => {
                for field in Fields(inner) {
                    match field? {
                        (1, Wire::Bytes(text)) => envelope.meta.api_version = string(text)?,
                        (2, Wire::Bytes(text)) => envelope.meta.kind = string(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(raw)) => envelope.raw = raw,
            _ => {}
        }
    }
    Ok(envelope)
}

/// Reads a message as an object of a type. Unknown fields are skipped, as every protobuf reader does.
pub fn read(kind: &Type, raw: &[u8]) -> Result<Value, ProtobufError> {
    let mut object = Map::new();
    let left = Cell::new(MAX_NODES);
    message(kind, raw, &mut object, Place { depth: 0, left: &left })?;
    finish(kind, &mut object);
    Ok(Value::Object(object))
}

/// A field value as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// The fields of a message, in the order of the bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(ProtobufError::UnexpectedEof)?;
            self.0 = rest;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtobufError::IntegerOverflow)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], ProtobufError> {
        let length = usize::try_from(length).map_err(|_| ProtobufError::NegativeLength)?;
        if length > self.0.len() {
            return Err(ProtobufError::UnexpectedEof);
        }
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u32, Wire<'a>), ProtobufError> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| ProtobufError::Tag)?;
        if number == 0 {
            return Err(ProtobufError::ZeroTag(tag));
        }
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            other => return Err(ProtobufError::WireType(other)),
        };
        Ok((number, wire))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        let taken = self.take(N as u64)?;
        taken.try_into().map_err(|_| ProtobufError::UnexpectedEof)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Wire<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

fn string(bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Utf8)
}

/// Reads the fields of a message, which is an object at `place`, inlined structs into the same object.
fn message(
    kind: &Type,
    raw: &[u8],
    object: &mut Map<String, Value>,
    place: Place<'_>,
) -> Result<(), ProtobufError> {
    let inside = place.inside()?;
    for field in Fields(raw) {
        let (number, wire) = field?;
        if let Some(field) = kind.field_by_number(number) {
            read_field(kind, field, wire, object, inside)?;
        } else if let Some(inline) = kind.inlines.iter().find(|i| u32::from(i.number) == number) {
            // No deeper in the object, but one call further down.
            message(inline.object.get(), bytes(kind, "inline", wire)?, object, inside)?;
        }
    }
    Ok(())
}

/// Leaves out what Go leaves out, adds what it adds.
fn finish(kind: &Type, object: &mut Map<String, Value>) {
    object.retain(|name, value| kind.field(name).is_none_or(|field| kept(field, value)));
    add_zero_values(kind, object);
}

fn kept(field: &Field, value: &Value) -> bool {
    // Go writes the zero of a struct that is no pointer; for a port it means that nobody chose one.
    let unset = field.shape.scalar() == Some(Scalar::IntOrString)
        && field.omitempty
        && !field.pointer
        && (value.as_i64() == Some(0) || value.as_str() == Some(""));
    keeps(field, value) && !unset
}

fn bytes<'a>(kind: &Type, name: &str, wire: Wire<'a>) -> Result<&'a [u8], ProtobufError> {
    match wire {
        Wire::Bytes(bytes) => Ok(bytes),
        _ => Err(ProtobufError::FieldWireType { kind: kind.name.to_string(), field: name.to_owned() }),
    }
}

fn read_field(
    kind: &Type,
    field: &Field,
    wire: Wire<'_>,
    object: &mut Map<String, Value>,
    place: Place<'_>,
) -> Result<(), ProtobufError> {
    let name = field.name.as_ref();
    match &field.shape {
        Shape::List(list) => {
            let items = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            let Value::Array(items) = items else { return Ok(()) };
            read_list(kind, name, list, wire, items, place)
        }
        Shape::Map(of) => {
            let (key, value) = entry(kind, name, of, bytes(kind, name, wire)?, place)?;
            let map = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(map) = map {
                map.insert(key, value);
            }
            Ok(())
        }
        Shape::Object(inner) => {
            // A message may come in parts; they are merged.
            let mut fields = match object.remove(name) {
                Some(Value::Object(fields)) => fields,
                _ => Map::new(),
            };
            place.count()?;
            message(inner.get(), bytes(kind, name, wire)?, &mut fields, place)?;
            finish(inner.get(), &mut fields);
            object.insert(name.to_owned(), Value::Object(fields));
            Ok(())
        }
        shape => {
            let value = read_value(kind, name, shape, wire, place)?;
            object.insert(name.to_owned(), value);
            Ok(())
        }
    }
}

fn read_list(
    kind: &Type,
    name: &str,
    list: &List,
    wire: Wire<'_>,
    items: &mut Vec<Value>,
    place: Place<'_>,
) -> Result<(), ProtobufError> {
    let place = place.inside()?;
    if list.wrapped {
        for field in Fields(bytes(kind, name, wire)?) {
            if let (1, wire) = field? {
                items.push(read_value(kind, name, &list.item, wire, place)?);
            }
        }
        return Ok(());
    }
    let packable = matches!(
        list.item.scalar(),
        Some(Scalar::Int32 | Scalar::Int64 | Scalar::Bool | Scalar::Double | Scalar::Float)
    );
    if let (true, Wire::Bytes(packed)) = (packable, wire) {
        let mut rest = Fields(packed);
        while !rest.0.is_empty() {
            let wire = match list.item.scalar() {
                Some(Scalar::Double) => Wire::Fixed64(u64::from_le_bytes(rest.array()?)),
                Some(Scalar::Float) => Wire::Fixed32(u32::from_le_bytes(rest.array()?)),
                _ => Wire::Varint(rest.varint()?),
            };
            items.push(read_value(kind, name, &list.item, wire, place)?);
        }
        return Ok(());
    }
    items.push(read_value(kind, name, &list.item, wire, place)?);
    Ok(())
}

fn entry(
    kind: &Type,
    name: &str,
    of: &Shape,
    raw: &[u8],
    place: Place<'_>,
) -> Result<(String, Value), ProtobufError> {
    let (mut key, mut found) = (String::new(), None);
    for field in Fields(raw) {
        match field? {
            (1, Wire::Bytes(text)) => key = string(text)?,
            (2, wire) => found = Some(wire),
            _ => {}
        }
    }
    let wire = found.unwrap_or(match of.scalar() {
        Some(Scalar::Int32 | Scalar::Int64 | Scalar::Bool) => Wire::Varint(0),
        Some(Scalar::Double) => Wire::Fixed64(0),
        Some(Scalar::Float) => Wire::Fixed32(0),
        _ => Wire::Bytes(&[]),
    });
    Ok((key, read_value(kind, name, of, wire, place.inside()?)?))
}

fn read_value(
    kind: &Type,
    name: &str,
    shape: &Shape,
    wire: Wire<'_>,
    place: Place<'_>,
) -> Result<Value, ProtobufError> {
    place.count()?;
    match shape {
        Shape::Object(inner) => {
            let mut fields = Map::new();
            message(inner.get(), bytes(kind, name, wire)?, &mut fields, place)?;
            finish(inner.get(), &mut fields);
            Ok(Value::Object(fields))
        }
        Shape::List(list) => {
            let mut items = Vec::new();
            read_list(kind, name, list, wire, &mut items, place)?;
            Ok(Value::Array(items))
        }
        Shape::Map(of) => {
            let (key, value) = entry(kind, name, of, bytes(kind, name, wire)?, place)?;
            Ok(Value::Object(Map::from_iter([(key, value)])))
        }
        Shape::Scalar { of, .. } => match (of, wire) {
            (Scalar::Int32, Wire::Varint(n)) => Ok(Value::from(n as i32)),
            (Scalar::Int64, Wire::Varint(n)) => Ok(Value::from(n as i64)),
            (Scalar::Bool, Wire::Varint(n)) => Ok(Value::from(n != 0)),
            (Scalar::Double, Wire::Fixed64(bits)) => Ok(float(f64::from_bits(bits))),
            (Scalar::Float, Wire::Fixed32(bits)) => Ok(float(f64::from(f32::from_bits(bits)))),
            (_, wire) => structured(*of, bytes(kind, name, wire)?, place),
        },
    }
}

fn float(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Scalars that are messages in protobuf.
fn structured(of: Scalar, raw: &[u8], place: Place<'_>) -> Result<Value, ProtobufError> {
    match of {
        Scalar::Bytes => Ok(Value::String(base64::engine::general_purpose::STANDARD.encode(raw))),
        Scalar::Quantity => {
            let text = part(raw, 1)?.map_or(Ok(String::new()), string)?;
            let text = if text.is_empty() { "0" } else { &text };
            Ok(text.parse::<Quantity>().map(|q| Value::String(q.to_string()))?)
        }
        Scalar::IntOrString => {
            let (mut is_string, mut number, mut text) = (false, 0i32, String::new());
            for field in Fields(raw) {
                match field? {
                    (1, Wire::Varint(n)) => is_string = n == 1,
                    (2, Wire::Varint(n)) => number = n as i32,
                    (3, Wire::Bytes(bytes)) => text = string(bytes)?,
                    _ => {}
                }
            }
            Ok(if is_string { Value::String(text) } else { Value::from(number) })
        }
        Scalar::Time | Scalar::MicroTime => read_time(of, raw),
        Scalar::Duration => {
            let mut nanos = 0;
            for field in Fields(raw) {
                if let (1, Wire::Varint(n)) = field? {
                    nanos = n as i64;
                }
            }
            Ok(Value::String(time::format_duration(nanos)))
        }
        Scalar::Raw | Scalar::Fields | Scalar::Json => match part(raw, 1)? {
            None | Some([]) => Ok(Value::Null),
            Some(json) => place.json(json),
        },
        Scalar::SchemaOrArray | Scalar::SchemaOrBool | Scalar::SchemaOrStrings => schema_or(of, raw, place),
        _ => string(raw).map(Value::String),
    }
}

fn part(raw: &[u8], wanted: u32) -> Result<Option<&[u8]>, ProtobufError> {
    let mut found = None;
    for field in Fields(raw) {
        match field? {
            (number, Wire::Bytes(bytes)) if number == wanted => found = Some(bytes),
            _ => {}
        }
    }
    Ok(found)
}

fn read_time(of: Scalar, raw: &[u8]) -> Result<Value, ProtobufError> {
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0i64, 0i32);
    for field in Fields(raw) {
        match field? {
            (1, Wire::Varint(n)) => seconds = n as i64,
            (2, Wire::Varint(n)) => nanos = n as i32,
            _ => {}
        }
    }
    let nanos = if of == Scalar::Time { 0 } else { nanos };
    let stamp = Timestamp::new(seconds, nanos).map_err(|e| ProtobufError::Time(e.to_string()))?;
    Ok(Value::String(match of {
        Scalar::Time => time::format_time(stamp),
        _ => time::format_micro_time(stamp),
    }))
}

fn schema_or(of: Scalar, raw: &[u8], place: Place<'_>) -> Result<Value, ProtobufError> {
    let kind = type_of("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    let kind = kind.expect("the table has the schema type");
    let schema = |raw: &[u8], place: Place<'_>| {
        let mut fields = Map::new();
        place.count()?;
        message(kind, raw, &mut fields, place)?;
        finish(kind, &mut fields);
        Ok::<_, ProtobufError>(Value::Object(fields))
    };
    let (mut one, mut many, mut allows) = (None, Vec::new(), false);
    for field in Fields(raw) {
        match (of, field?) {
            (Scalar::SchemaOrBool, (1, Wire::Varint(n))) => allows = n != 0,
            (Scalar::SchemaOrBool, (2, Wire::Bytes(raw))) => one = Some(schema(raw, place)?),
            (Scalar::SchemaOrArray, (2, Wire::Bytes(raw))) => many.push(schema(raw, place.inside()?)?),
            (Scalar::SchemaOrStrings, (2, Wire::Bytes(raw))) => {
                place.count()?;
                many.push(Value::String(string(raw)?));
            }
            (_, (1, Wire::Bytes(raw))) => one = Some(schema(raw, place)?),
            _ => {}
        }
    }
    Ok(match (of, one) {
        (_, Some(schema)) => schema,
        (Scalar::SchemaOrBool, None) => Value::Bool(allows),
        (_, None) => Value::Array(many),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A length-delimited field.
    fn field(number: u16, content: &[u8]) -> Vec<u8> {
        let varint = |mut n: usize| {
            let mut bytes = Vec::new();
            while n > 127 {
                bytes.push((n & 127) as u8 | 128);
                n >>= 7;
            }
            bytes.push(n as u8);
            bytes
        };
        [varint(usize::from(number) << 3 | 2), varint(content.len()), content.to_vec()].concat()
    }

    fn number(kind: &str, name: &str) -> u16 {
        type_of(kind).unwrap().field(name).unwrap().number
    }

    const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

    /// Metadata with one set of owned fields.
    fn owned(json: &str) -> Vec<u8> {
        let entry = "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry";
        let set = field(number(entry, "fieldsV1"), &field(1, json.as_bytes()));
        field(number(META, "managedFields"), &set)
    }

    #[test]
    fn json_in_messages_counts_from_where_it_stands() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let read_meta = |raw: &[u8]| read(type_of(META).unwrap(), raw);
        // The metadata, the list and the entry are three levels.
        let fits = read_meta(&owned(&nested(MAX_BODY_DEPTH - 3))).unwrap();
        assert_eq!(height(&fits, &mut { MAX_NODES }), Some(MAX_BODY_DEPTH));
        let why = read_meta(&owned(&nested(MAX_BODY_DEPTH - 2))).unwrap_err().to_string();
        assert_eq!(why, "invalid JSON in bytes: exceeded max depth");
        let reserved = format!(r#"{{"{}":"x"}}"#, crate::limits::RESERVED);
        assert!(read_meta(&owned(&reserved)).unwrap_err().to_string().contains("is reserved"));
    }

    #[test]
    fn messages_are_as_deep_as_the_object_they_become() {
        let not = number(SCHEMA, "not");
        let nested = |depth: usize| (1..depth).fold(Vec::new(), |inner, _| field(not, &inner));
        let kind = type_of(SCHEMA).unwrap();
        let fits = read(kind, &nested(MAX_BODY_DEPTH)).unwrap();
        assert_eq!(height(&fits, &mut { MAX_NODES }), Some(MAX_BODY_DEPTH));
        let why = read(kind, &nested(MAX_BODY_DEPTH + 1)).unwrap_err().to_string();
        assert_eq!(why, "proto: message is nested too deep");
    }

    #[test]
    fn empty_messages_are_counted() {
        let one = field(number(META, "ownerReferences"), &[]);
        let why = read(type_of(META).unwrap(), &one.repeat(MAX_NODES + 1)).unwrap_err().to_string();
        assert_eq!(why, "proto: too many values");
    }
}
