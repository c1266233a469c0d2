//! OpenAPI 2 in the protobuf form that kubectl up to 1.28 insists on (gnostic's `openapi.v2.Document`).

use serde_json::{Map, Value};

/// A message being written.
#[derive(Default)]
pub struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A field of bytes: a string or a message.
    pub fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.varint(u64::from(number) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, number: u32, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u32, value: Option<&Value>) {
        for text in value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn flag(&mut self, number: u32, value: Option<&Value>) {
        if value == Some(&Value::Bool(true)) {
            self.varint(u64::from(number) << 3);
            self.varint(1);
        }
    }

    fn message(&mut self, number: u32, message: &Message) {
        self.bytes(number, &message.0);
    }

    /// `x-…` fields.
    fn extensions(&mut self, number: u32, object: &Value) {
        for (name, value) in
            object.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-"))
        {
            self.message(number, &named(name, &any(value)));
        }
    }

    /// The bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// A name and a message, as all maps are written.
pub fn named(name: &str, value: &Message) -> Message {
    let mut made = Message::default();
    made.bytes(1, name.as_bytes());
    made.message(2, value);
    made
}

/// Any value, as YAML text; JSON is YAML.
fn any(value: &Value) -> Message {
    let mut made = Message::default();
    made.bytes(2, value.to_string().as_bytes());
    made
}

/// The frame of a document around its paths and definitions.
pub fn document(info: &Value, paths: &Message, definitions: &Message) -> Message {
    let mut written = Message::default();
    written.text(1, info.get("title"));
    written.text(2, info.get("version"));
    let mut made = Message::default();
    made.bytes(1, b"2.0");
    made.message(2, &written);
    made.message(8, paths);
    made.message(9, definitions);
    made
}

/// A schema.
pub fn schema(value: &Value) -> Message {
    let mut made = Message::default();
    made.text(1, value.get("$ref"));
    made.text(2, value.get("format"));
    made.text(4, value.get("description"));
    if let Some(default) = value.get("default") {
        made.message(5, &any(default));
    }
    made.texts(19, value.get("required"));
    for item in value.get("enum").and_then(Value::as_array).into_iter().flatten() {
        made.message(20, &any(item));
    }
    match value.get("additionalProperties") {
        Some(Value::Bool(allowed)) => {
            let mut inner = Message::default();
            inner.flag(2, Some(&Value::Bool(*allowed)));
            made.message(21, &inner);
        }
        Some(of) => {
            let mut inner = Message::default();
            inner.message(1, &schema(of));
            made.message(21, &inner);
        }
        None => {}
    }
    if let Some(kind) = value.get("type") {
        let mut inner = Message::default();
        inner.text(1, Some(kind));
        inner.texts(1, Some(kind));
        made.message(22, &inner);
    }
    if let Some(items) = value.get("items") {
        let mut inner = Message::default();
        inner.message(1, &schema(items));
        made.message(23, &inner);
    }
    if let Some(properties) = value.get("properties").and_then(Value::as_object) {
        let mut inner = Message::default();
        for (name, property) in properties {
            inner.message(1, &named(name, &schema(property)));
        }
        made.message(25, &inner);
    }
    made.extensions(31, value);
    made
}

/// A path with its operations.
pub fn path_item(value: &Value) -> Message {
    let mut made = Message::default();
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(of) = value.get(method) {
            made.message(number, &operation(of));
        }
    }
    parameters(&mut made, 9, value);
    made
}

fn operation(value: &Value) -> Message {
    let mut made = Message::default();
    made.texts(1, value.get("tags"));
    made.text(3, value.get("description"));
    made.text(5, value.get("operationId"));
    made.texts(6, value.get("produces"));
    made.texts(7, value.get("consumes"));
    parameters(&mut made, 8, value);
    let mut responses = Message::default();
    for (code, response) in value.get("responses").and_then(Value::as_object).unwrap_or(&Map::new()) {
        let mut inner = Message::default();
        inner.text(1, response.get("description"));
        if let Some(of) = response.get("schema") {
            let mut item = Message::default();
            item.message(1, &schema(of));
            inner.message(2, &item);
        }
        let mut value = Message::default();
        value.message(1, &inner);
        responses.message(1, &named(code, &value));
    }
    made.message(9, &responses);
    made.texts(10, value.get("schemes"));
    made.extensions(13, value);
    made
}

fn parameters(made: &mut Message, number: u32, value: &Value) {
    for parameter in value.get("parameters").and_then(Value::as_array).into_iter().flatten() {
        let mut choice = Message::default();
        if parameter["in"] == "body" {
            let mut body = Message::default();
            body.text(2, parameter.get("name"));
            body.text(3, parameter.get("in"));
            body.flag(4, parameter.get("required"));
            if let Some(of) = parameter.get("schema") {
                body.message(5, &schema(of));
            }
            choice.message(1, &body);
        } else {
            let query = parameter["in"] == "query";
            let mut plain = Message::default();
            plain.flag(1, parameter.get("required"));
            plain.text(2, parameter.get("in"));
            plain.text(3, parameter.get("description"));
            plain.text(4, parameter.get("name"));
            plain.text(if query { 6 } else { 5 }, parameter.get("type"));
            plain.flag(if query { 20 } else { 19 }, parameter.get("uniqueItems"));
            let mut which = Message::default();
            which.message(if query { 3 } else { 4 }, &plain);
            choice.message(2, &which);
        }
        let mut item = Message::default();
        item.message(1, &choice);
        made.message(number, &item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_written_as_gnostic_reads_it() {
        let written = schema(
            &json!({"type": "array", "items": {"$ref": "#/definitions/A"}, "x-kubernetes-list-type": "set"}),
        );
        let expected: &[u8] = b"\xb2\x01\x07\x0a\x05array\xba\x01\x13\x0a\x11\x0a\x0f#/definitions/A\
            \xfa\x01\x21\x0a\x16x-kubernetes-list-type\x12\x07\x12\x05\"set\"";
        assert_eq!(written.finish(), expected);
    }
}
