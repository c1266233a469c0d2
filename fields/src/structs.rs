//! Structs that hold some fields of a type: read from bytes in one pass without a tree, written without what is empty.

use crate::{
    Access, Amount, At, Base64, Bool, Double, Duration, Field, Int32, Int64, List, Map, Reader, Text, Time,
};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The last field that was named, for names and flags of fields.
#[derive(Clone, Copy)]
pub struct Last(pub Field);

impl Access for Last {
    #[inline]
    fn field(&self, field: Field) -> Self {
        Last(field)
    }

    fn reader<'a>(&self) -> Reader<'a>
    where
        Self: 'a,
    {
        Reader::Tree(&crate::read::NULL)
    }
}

impl<T> At<Last, T> {
    /// The place before any field.
    #[inline]
    pub fn root() -> Self {
        At::new(Last(Field::new("", false)))
    }

    /// The field, if a Rust type can hold what is there.
    #[inline]
    pub fn holds<X: FromField<T>>(&self, _: std::marker::PhantomData<X>) -> Field {
        self.0
    }
}

/// A Rust type that can hold what stands in a field of type `T`.
pub trait FromField<T> {}

impl<T, X: FromField<T>> FromField<T> for Option<X> {}
impl<T, X: FromField<T>> FromField<T> for Box<X> {}
impl<T, X: FromField<T>> FromField<List<T>> for Vec<X> {}
impl<T, X: FromField<T>> FromField<Map<T>> for BTreeMap<String, X> {}
impl<T> FromField<T> for Value {}

macro_rules! holds {
    ($($leaf:ty: $($into:ty)*;)*) => { $($(impl FromField<$leaf> for $into {})*)* };
}

holds! {
    Text: String;
    Time: String;
    Duration: String;
    Base64: String;
    Amount: String;
    Int32: i32 i64 u16 u32 u64;
    Int64: i64;
    Bool: bool;
    Double: f64;
}

impl FromField<Text> for Box<str> {}

/// The number of a field by its name, without a copy of the name.
pub struct Position<F>(pub F);

impl<'de, F: Fn(&str) -> usize> DeserializeSeed<'de> for Position<F> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<usize, D::Error> {
        reader.deserialize_identifier(self)
    }
}

impl<F: Fn(&str) -> usize> Visitor<'_> for Position<F> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        Ok((self.0)(name))
    }
}

/// The next value of a map; null is nothing.
pub fn next<'de, M: MapAccess<'de>, X: serde::Deserialize<'de>>(map: &mut M) -> Result<Option<X>, M::Error> {
    map.next_value::<Option<X>>()
}

/// Whether Go would leave a value out.
pub trait IsEmpty {
    /// Whether it is the zero value.
    fn is_empty(&self) -> bool;

    /// Whether it would be `null`, which is never written.
    fn is_null(&self) -> bool {
        false
    }
}

impl IsEmpty for i32 {
    fn is_empty(&self) -> bool {
        *self == 0
    }
}

impl IsEmpty for i64 {
    fn is_empty(&self) -> bool {
        *self == 0
    }
}

impl IsEmpty for bool {
    fn is_empty(&self) -> bool {
        !self
    }
}

impl IsEmpty for String {
    fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }
}

impl<X> IsEmpty for Vec<X> {
    fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}

impl<X> IsEmpty for BTreeMap<String, X> {
    fn is_empty(&self) -> bool {
        BTreeMap::is_empty(self)
    }
}

impl<X> IsEmpty for Option<X> {
    fn is_empty(&self) -> bool {
        self.is_none()
    }

    fn is_null(&self) -> bool {
        self.is_none()
    }
}

impl IsEmpty for Value {
    fn is_empty(&self) -> bool {
        Value::is_null(self)
    }

    fn is_null(&self) -> bool {
        Value::is_null(self)
    }
}

/// A struct with some fields of a type: `fields! { pub struct Spec: DeploymentSpec { pub replicas: i32 = 1, pub paused: bool } }`.
/// Names and types are checked; what is missing or null is the default; unknown fields are skipped. With `, written` after the
/// type it can be written as well: without what the table says is left out when empty, and without `null`.
#[macro_export]
macro_rules! fields {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident : $of:path $(, $written:ident)? {
            $($(#[$doc:meta])* $fvis:vis $field:ident : $ty:ty $(= $default:expr)?),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        $vis struct $name { $($(#[$doc])* $fvis $field: $ty,)* }

        impl $crate::FromField<$of> for $name {}

        $crate::fields!(@write [$($written)?] $name $of; $($field)*);

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::fields!(@default $($default)?),)* }
            }
        }

        impl<'de> $crate::private::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::private::serde::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
                struct Fill;
                impl<'de> $crate::private::serde::de::Visitor<'de> for Fill {
                    type Value = $name;
                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str(stringify!($name))
                    }
                    fn visit_map<M: $crate::private::serde::de::MapAccess<'de>>(self, mut map: M) -> Result<$name, M::Error> {
                        let at = $crate::At::<$crate::Last, $of>::root();
                        let number = |name: &str| {
                            let mut _index = 0usize;
                            $(
                                if name == at.$field().holds(::std::marker::PhantomData::<$ty>).name {
                                    return _index;
                                }
                                _index += 1;
                            )*
                            usize::MAX
                        };
                        let mut made = <$name>::default();
                        while let Some(found) = map.next_key_seed($crate::Position(number))? {
                            let mut _index = 0usize;
                            $(
                                if found == _index {
                                    if let Some(value) = $crate::next::<M, $ty>(&mut map)? {
                                        made.$field = value;
                                    }
                                    continue;
                                }
                                _index += 1;
                            )*
                            map.next_value::<$crate::private::serde::de::IgnoredAny>()?;
                        }
                        Ok(made)
                    }
                }
                reader.deserialize_map(Fill)
            }
        }
    )* };
    (@write [] $name:ident $of:path; $($field:ident)*) => {};
    (@write [written] $name:ident $of:path; $($field:ident)*) => {
        impl $crate::private::serde::Serialize for $name {
            fn serialize<S: $crate::private::serde::Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
                use $crate::private::serde::ser::SerializeMap as _;
                use $crate::IsEmpty as _;
                let at = $crate::At::<$crate::Last, $of>::root();
                let mut map = writer.serialize_map(None)?;
                $(
                    let field = at.$field().0;
                    if !self.$field.is_null() && !(field.omit && self.$field.is_empty()) {
                        map.serialize_entry(field.name, &self.$field)?;
                    }
                )*
                map.end()
            }
        }

        impl $crate::Fits<$of> for $name {
            fn fit(self) -> Option<$crate::private::serde_json::Value> {
                $crate::private::serde_json::to_value(&self).ok()
            }
        }
    };
    (@default $default:expr) => { $default };
    (@default) => { ::std::default::Default::default() };
}
