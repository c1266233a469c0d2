//! Reading. A missing field and `null` read the same, as in the Go types; so does a value of another JSON type.

use crate::doc::Slot;
use crate::{
    Access, Amount, At, Base64, Bool, Doc, Double, Duration, Field, Int32, Int64, IntOrString, Json, Schema,
    Text, Time, View,
};
use serde_json::Value;

pub(crate) static NULL: Value = Value::Null;

/// A value of a tree or of a document.
#[derive(Clone, Copy)]
pub enum Reader<'a> {
    /// Of a tree.
    Tree(&'a Value),
    /// Of a document, with its position in it.
    Doc(&'a Doc<'a>, u32),
}

impl Doc<'_> {
    /// The object as a type of the table.
    pub fn view<T: Schema>(&self) -> View<'_, T> {
        At::new(Reader::Doc(self, 0))
    }
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn get(self, name: &str) -> Reader<'a> {
        match self {
            Reader::Tree(tree) => Reader::Tree(tree.get(name).unwrap_or(&NULL)),
            Reader::Doc(doc, at) => doc.find(at, name).map_or(Reader::Tree(&NULL), |at| Reader::Doc(doc, at)),
        }
    }

    #[inline]
    fn as_text(self) -> Option<&'a str> {
        match self {
            Reader::Tree(tree) => tree.as_str(),
            Reader::Doc(doc, at) => doc.text(at),
        }
    }

    #[inline]
    fn as_int(self) -> Option<i64> {
        match self {
            Reader::Tree(tree) => tree.as_i64(),
            Reader::Doc(doc, at) => match doc.slot(at) {
                Slot::Int(number) => Some(*number),
                _ => None,
            },
        }
    }

    #[inline]
    fn as_bool(self) -> Option<bool> {
        match self {
            Reader::Tree(tree) => tree.as_bool(),
            Reader::Doc(doc, at) => match doc.slot(at) {
                Slot::Bool(flag) => Some(*flag),
                _ => None,
            },
        }
    }

    #[inline]
    fn is_null(self) -> bool {
        match self {
            Reader::Tree(tree) => tree.is_null(),
            Reader::Doc(doc, at) => matches!(doc.slot(at), Slot::Null),
        }
    }

    /// The value as a tree of its own.
    pub(crate) fn tree(self) -> Value {
        match self {
            Reader::Tree(tree) => tree.clone(),
            Reader::Doc(doc, at) => doc.tree(at),
        }
    }
}

impl Access for Reader<'_> {
    #[inline]
    fn field(&self, field: Field) -> Self {
        self.get(field.name)
    }

    #[inline]
    fn reader<'a>(&self) -> Reader<'a>
    where
        Self: 'a,
    {
        *self
    }
}

/// Methods of every place.
impl<C: Access, T> At<C, T> {
    /// Whether there is a value other than `null`.
    pub fn is_set(&self) -> bool {
        !self.reader().is_null()
    }

    /// The value as a tree of its own, `null` when missing.
    pub fn to_value(&self) -> Value {
        self.reader().tree()
    }

    /// The value as a Rust type, deserialized from `null` when missing.
    pub fn read<X: serde::de::DeserializeOwned>(&self) -> Result<X, serde_json::Error> {
        match self.reader() {
            Reader::Tree(tree) => X::deserialize(tree),
            Reader::Doc(doc, at) => X::deserialize(doc.tree(at)),
        }
    }

    /// The place without its type, such as for lists of places of different types.
    pub fn erased(self) -> At<C, Json> {
        At::new(self.access)
    }
}

macro_rules! texts {
    ($($name:ident)*) => { $(
        impl<C: Access> At<C, $name> {
            /// The text, empty when missing.
            #[inline]
            pub fn text<'a>(&self) -> &'a str where C: 'a {
                self.reader().as_text().unwrap_or_default()
            }

            /// The text, when there is one.
            pub fn get<'a>(&self) -> Option<&'a str> where C: 'a {
                self.reader().as_text()
            }

            /// The text, when there is one that is not empty.
            pub fn filled<'a>(&self) -> Option<&'a str> where C: 'a {
                self.get().filter(|text| !text.is_empty())
            }

            /// The text, or another when there is none.
            pub fn or<'a>(&self, other: &'a str) -> &'a str where C: 'a {
                self.get().unwrap_or(other)
            }
        }

        impl<C: Access> PartialEq<&str> for At<C, $name> {
            #[inline]
            fn eq(&self, other: &&str) -> bool {
                self.reader().as_text().unwrap_or_default() == *other
            }
        }

        impl<C: Access> PartialEq<str> for At<C, $name> {
            #[inline]
            fn eq(&self, other: &str) -> bool {
                self.reader().as_text().unwrap_or_default() == other
            }
        }

        impl<C: Access> PartialEq<String> for At<C, $name> {
            #[inline]
            fn eq(&self, other: &String) -> bool {
                self.reader().as_text().unwrap_or_default() == other
            }
        }
    )* };
}

texts! { Text Time Duration Base64 Amount }

macro_rules! numbers {
    ($($name:ident)*) => { $(
        impl<C: Access> At<C, $name> {
            /// The number, when there is one.
            pub fn int(&self) -> Option<i64> {
                self.reader().as_int()
            }

            /// The number, or another when it is missing.
            pub fn or(&self, other: i64) -> i64 {
                self.int().unwrap_or(other)
            }
        }

        impl<C: Access> PartialEq<i64> for At<C, $name> {
            #[inline]
            fn eq(&self, other: &i64) -> bool {
                self.int() == Some(*other)
            }
        }
    )* };
}

numbers! { Int32 Int64 }

impl<C: Access> At<C, Bool> {
    /// Whether it is true.
    pub fn flag(&self) -> bool {
        self.get().unwrap_or_default()
    }

    /// The value, when there is one.
    pub fn get(&self) -> Option<bool> {
        self.reader().as_bool()
    }
}

impl<C: Access> At<C, IntOrString> {
    /// The number, when it is one.
    pub fn int(&self) -> Option<i64> {
        self.reader().as_int()
    }

    /// The text, empty when it is none.
    pub fn text<'a>(&self) -> &'a str
    where
        C: 'a,
    {
        self.reader().as_text().unwrap_or_default()
    }
}

impl<C: Access> At<C, Double> {
    /// The number, when there is one.
    pub fn float(&self) -> Option<f64> {
        match self.reader() {
            Reader::Tree(tree) => tree.as_f64(),
            document => document.tree().as_f64(),
        }
    }
}

impl<'a> View<'a, Json> {
    /// A field that the table does not describe: of custom resources and raw extensions.
    pub fn at(&self, name: &str) -> View<'a, Json> {
        At::new(self.access.get(name))
    }

    /// The value as a type of the table, such as the template in a ControllerRevision.
    pub fn as_type<T: Schema>(&self) -> View<'a, T> {
        At::new(self.access)
    }
}

/// Places may stand in `json!` literals.
impl<C: Access, T> serde::Serialize for At<C, T> {
    fn serialize<S: serde::Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        match self.reader() {
            Reader::Tree(tree) => tree.serialize(writer),
            Reader::Doc(doc, at) => doc.tree(at).serialize(writer),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::core::v1::Service;
    use crate::{Doc, Schema as _};

    #[test]
    fn missing_null_and_other_types_read_the_same() {
        for json in [
            r#"{}"#,
            r#"{"spec":null,"metadata":null}"#,
            r#"{"spec":{"clusterIPs":null,"type":null,"healthCheckNodePort":null},"metadata":{"labels":null}}"#,
            r#"{"spec":{"clusterIPs":"x","type":1,"healthCheckNodePort":"1"},"metadata":{"labels":["x"]}}"#,
        ] {
            let doc = Doc::read(json.as_bytes()).unwrap();
            let tree: serde_json::Value = serde_json::from_str(json).unwrap();
            for service in [doc.view::<Service>(), Service::of(&tree)] {
                let spec = service.spec();
                assert_eq!((spec.type_().get(), spec.health_check_node_port().int()), (None, None), "{json}");
                assert_eq!((spec.cluster_ips().len(), spec.type_().or("a")), (0, "a"), "{json}");
                assert_eq!(service.metadata().labels().entries().count(), 0, "{json}");
                assert!(!service.metadata().labels().key("a").is_set(), "{json}");
            }
        }
    }
}
