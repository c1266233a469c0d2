//! OpenAPI 2 in the protobuf form that kubectl up to 1.28 insists on (gnostic's `openapi.v2.Document`).

use coracle_fields::Schema as _;
use coracle_fields::apiextensions::v1::JSONSchemaProps;
use coracle_validation::tree::Tree as _;
use serde_json::Value;

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

    fn text(&mut self, number: u32, text: Option<&str>) {
        if let Some(text) = text {
            self.bytes(number, text.as_bytes());
        }
    }

    fn flag(&mut self, number: u32, flag: bool) {
        if flag {
            self.varint(u64::from(number) << 3);
            self.varint(1);
        }
    }

    /// Fields of an object that are texts or lists of texts, by number and name.
    fn texts(&mut self, object: &Value, fields: &[(u32, &str)]) {
        for (number, name) in fields {
            self.text(*number, object.at(name).as_str());
            for text in object.items(name) {
                self.text(*number, text.as_str());
            }
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
    written.texts(info, &[(1, "title"), (2, "version")]);
    let mut made = Message::default();
    made.bytes(1, b"2.0");
    made.message(2, &written);
    made.message(8, paths);
    made.message(9, definitions);
    made
}

/// A schema.
pub fn schema(value: &Value) -> Message {
    let of = JSONSchemaProps::of(value);
    let mut made = Message::default();
    made.text(1, of.ref_().get());
    made.text(2, of.format().get());
    made.text(4, of.description().get());
    if of.default_().is_set() {
        made.message(5, &any(&of.default_().as_value()));
    }
    for name in of.required().items() {
        made.text(19, name.get());
    }
    for item in of.enum_().items() {
        made.message(20, &any(&item.as_value()));
    }
    match &*of.additional_properties().as_value() {
        Value::Null => {}
        Value::Bool(allowed) => {
            let mut inner = Message::default();
            inner.flag(2, *allowed);
            made.message(21, &inner);
        }
        of => {
            let mut inner = Message::default();
            inner.message(1, &schema(of));
            made.message(21, &inner);
        }
    }
    if of.type_().is_set() {
        let mut inner = Message::default();
        inner.text(1, of.type_().get());
        made.message(22, &inner);
    }
    if of.items().is_set() {
        let mut inner = Message::default();
        inner.message(1, &schema(&of.items().as_value()));
        made.message(23, &inner);
    }
    if of.properties().is_set() {
        let mut inner = Message::default();
        for (name, property) in of.properties().entries() {
            inner.message(1, &named(name, &schema(&property.as_value())));
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
        if value.has(method) {
            made.message(number, &operation(value.at(method)));
        }
    }
    parameters(&mut made, 9, value);
    made
}

fn operation(value: &Value) -> Message {
    let mut made = Message::default();
    made.texts(
        value,
        &[(1, "tags"), (3, "description"), (5, "operationId"), (6, "produces"), (7, "consumes")],
    );
    parameters(&mut made, 8, value);
    let mut responses = Message::default();
    for (code, response) in value.entries("responses") {
        let mut inner = Message::default();
        inner.texts(response, &[(1, "description")]);
        if response.has("schema") {
            let mut item = Message::default();
            item.message(1, &schema(response.at("schema")));
            inner.message(2, &item);
        }
        let mut value = Message::default();
        value.message(1, &inner);
        responses.message(1, &named(code, &value));
    }
    made.message(9, &responses);
    made.texts(value, &[(10, "schemes")]);
    made.extensions(13, value);
    made
}

fn parameters(made: &mut Message, number: u32, value: &Value) {
    for parameter in value.items("parameters") {
        let mut choice = Message::default();
        if parameter.text("in") == "body" {
            let mut body = Message::default();
            body.texts(parameter, &[(2, "name"), (3, "in")]);
            body.flag(4, parameter.flag("required"));
            if parameter.has("schema") {
                body.message(5, &schema(parameter.at("schema")));
            }
            choice.message(1, &body);
        } else {
            let query = parameter.text("in") == "query";
            let mut plain = Message::default();
            plain.flag(1, parameter.flag("required"));
            plain.texts(
                parameter,
                &[(2, "in"), (3, "description"), (4, "name"), (if query { 6 } else { 5 }, "type")],
            );
            plain.flag(if query { 20 } else { 19 }, parameter.flag("uniqueItems"));
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
