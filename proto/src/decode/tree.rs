//! Parses JSON into a tree that keeps duplicate keys.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::{DecodeError, JsonError};
use crate::limits::{MAX_NODES, RESERVED};

/// A body before its type is looked at.
#[derive(Debug, Clone, PartialEq)]
pub enum Tree {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(String),
    /// A list.
    Array(Vec<Tree>),
    /// Fields in the order of the text, repeated ones included.
    Object(Vec<(String, Tree)>),
}

impl Tree {
    /// What Go's errors call it.
    pub fn found(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }
}

impl From<serde_json::Value> for Tree {
    fn from(value: serde_json::Value) -> Self {
        use serde_json::Value;
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(number) => Self::Number(number),
            Value::String(text) => Self::String(text),
            Value::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            Value::Object(fields) => {
                Self::Object(fields.into_iter().map(|(key, value)| (key, Self::from(value))).collect())
            }
        }
    }
}

/// Reads JSON of at most [`MAX_NODES`] values. Nesting is limited to [`crate::limits::MAX_BODY_DEPTH`] levels.
pub fn from_json(body: &[u8]) -> Result<Tree, DecodeError> {
    Ok(from_json_within(body, MAX_NODES)?)
}

/// The same with another limit on the number of values, for texts that hold many objects.
pub fn from_json_within(body: &[u8], nodes: usize) -> Result<Tree, JsonError> {
    let left = Cell::new(nodes);
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = TreeVisitor(&left).deserialize(&mut reader);
    let read = read.and_then(|tree| reader.end().map(|()| tree));
    read.map_err(|error| JsonError::of(body, &error))
}

/// Reads a value and takes it off the number of values that may still come.
#[derive(Clone, Copy)]
struct TreeVisitor<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for TreeVisitor<'_> {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        let Some(left) = self.0.get().checked_sub(1) else {
            return Err(de::Error::custom("too many values"));
        };
        self.0.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeVisitor<'_> {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Tree, E> {
        Number::from_f64(value).map(Tree::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Tree, E> {
        Ok(Tree::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Tree::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = access.next_key::<String>()? {
            if name == RESERVED {
                return Err(de::Error::custom(format_args!("the field name {RESERVED:?} is reserved")));
            }
            fields.push((name, access.next_value_seed(self)?));
        }
        Ok(Tree::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn repeated_keys_are_kept() {
        let Tree::Object(fields) = from_json(br#"{"a":1,"b":null,"a":2}"#).unwrap() else {
            panic!("no object")
        };
        assert_eq!(fields.iter().map(|f| f.0.as_str()).collect::<Vec<_>>(), ["a", "b", "a"]);
    }

    #[test]
    fn errors_read_like_gos() {
        for (body, why) in [
            ("", "unexpected end of JSON input"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of value"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("nonsense", "invalid character 'o' in literal null (expecting 'u')"),
            ("[true, fals]", "invalid character ']' in literal false (expecting 'e')"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        ] {
            assert_eq!(from_json(body.as_bytes()).unwrap_err().to_string(), why, "{body}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(from_json(deep.as_bytes()).unwrap_err().to_string(), "exceeded max depth");
    }

    #[test]
    fn shapes_are_bounded() {
        use crate::limits::MAX_BODY_DEPTH;
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(from_json(nested(MAX_BODY_DEPTH).as_bytes()).is_ok());
        assert!(from_json(nested(MAX_BODY_DEPTH + 1).as_bytes()).is_err());
        let wide = |values: usize| format!("[{}]", vec!["{}"; values - 1].join(","));
        assert!(from_json(wide(MAX_NODES).as_bytes()).is_ok());
        let why = from_json(wide(MAX_NODES + 1).as_bytes()).unwrap_err().to_string();
        assert!(why.starts_with("too many values"), "{why}");
        let reserved = format!(r#"{{"a":[{{"b":1,"{RESERVED}":"x"}}]}}"#);
        let why = from_json(reserved.as_bytes()).unwrap_err().to_string();
        assert!(why.contains("is reserved"), "{why}");
    }

    proptest::proptest! {
        /// Whatever the text is: what is read has no more values and levels than allowed, and nothing panics.
        #[test]
        fn no_text_goes_over_the_limits(parts in proptest::collection::vec("[\\[{\\]},:]|\"a\"|1|1e999|\"\\\\ud800\"", 0..60)) {
            let text: String = parts.concat();
            if let Ok(tree) = from_json_within(text.as_bytes(), 20) {
                let value = crate::decode::plain(tree);
                proptest::prop_assert!(crate::limits::height(&value, &mut 20).is_some());
            }
        }
    }
}
