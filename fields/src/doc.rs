//! An object as a flat list of its values, which borrow from the bytes: one pass, one allocation, no tree.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// A value. Lists and objects are followed by what is in them, objects by key and value in turn.
#[derive(Debug)]
pub(crate) enum Slot<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Large(u64),
    Float(f64),
    Text(&'a str),
    /// A text with escapes.
    Own(Box<str>),
    /// Where what follows the list begins.
    List(u32),
    /// Where what follows the object begins.
    Object(u32),
}

/// An object that was read.
#[derive(Debug)]
pub struct Doc<'a> {
    slots: Vec<Slot<'a>>,
}

impl<'a> Doc<'a> {
    /// Reads the bytes of an object.
    pub fn read(json: &'a [u8]) -> Result<Self, serde_json::Error> {
        // Keys and values take about seven bytes of JSON each; one growth more or less is all that depends on it.
        let mut slots = Vec::with_capacity(json.len() / 6 + 4);
        let mut reader = serde_json::Deserializer::from_slice(json);
        Fill(&mut slots).deserialize(&mut reader)?;
        reader.end()?;
        Ok(Self { slots })
    }

    #[inline]
    pub(crate) fn slot(&self, at: u32) -> &Slot<'a> {
        &self.slots[at as usize]
    }

    #[inline]
    pub(crate) fn after(&self, at: u32) -> u32 {
        match self.slot(at) {
            Slot::List(end) | Slot::Object(end) => *end,
            _ => at + 1,
        }
    }

    #[inline]
    pub(crate) fn text(&self, at: u32) -> Option<&str> {
        match self.slot(at) {
            Slot::Text(text) => Some(text),
            Slot::Own(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn find(&self, at: u32, name: &str) -> Option<u32> {
        let Slot::Object(end) = self.slot(at) else { return None };
        let mut key = at + 1;
        while key < *end {
            if self.text(key) == Some(name) {
                return Some(key + 1);
            }
            key = self.after(key + 1);
        }
        None
    }

    pub(crate) fn tree(&self, at: u32) -> Value {
        match self.slot(at) {
            Slot::Null => Value::Null,
            Slot::Bool(flag) => Value::Bool(*flag),
            Slot::Int(number) => (*number).into(),
            Slot::Large(number) => (*number).into(),
            Slot::Float(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
            Slot::Text(text) => (*text).into(),
            Slot::Own(text) => (&**text).into(),
            Slot::List(end) => {
                let (mut items, mut item) = (Vec::new(), at + 1);
                while item < *end {
                    items.push(self.tree(item));
                    item = self.after(item);
                }
                Value::Array(items)
            }
            Slot::Object(end) => {
                let (mut entries, mut key) = (Map::new(), at + 1);
                while key < *end {
                    entries.insert(self.text(key).unwrap_or_default().to_owned(), self.tree(key + 1));
                    key = self.after(key + 1);
                }
                Value::Object(entries)
            }
        }
    }
}

struct Fill<'s, 'a>(&'s mut Vec<Slot<'a>>);

fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl<'a> DeserializeSeed<'a> for Fill<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Fill<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.push(Slot::Null);
        Ok(())
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<(), E> {
        self.0.push(Slot::Bool(flag));
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.0.push(Slot::Int(number));
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.0.push(i64::try_from(number).map_or(Slot::Large(number), Slot::Int));
        Ok(())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.0.push(Slot::Float(number));
        Ok(())
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<(), E> {
        self.0.push(Slot::Text(text));
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.push(Slot::Own(text.into()));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<(), A::Error> {
        let begin = self.0.len();
        self.0.push(Slot::Null);
        while items.next_element_seed(Fill(self.0))?.is_some() {}
        self.0[begin] = Slot::List(number(self.0.len()));
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut entries: A) -> Result<(), A::Error> {
        let begin = self.0.len();
        self.0.push(Slot::Null);
        while entries.next_key_seed(Fill(self.0))?.is_some() {
            entries.next_value_seed(Fill(self.0))?;
        }
        self.0[begin] = Slot::Object(number(self.0.len()));
        Ok(())
    }
}
