//! Types of expressions, which are checked when an expression is written. Objects have no type then, but the schemas of custom
//! resources do. Admission policies are checked against the schemas of the kinds that they are about, too: what is found there is a
//! warning in the status and nothing more, values decide when the expression is evaluated.

// Types from schemas.
pub mod schema;
// Types of variables that do not depend on a schema.
pub mod variables;
// The functions and their signatures.
mod functions;
// Which types fit where, and what type variables stand for.
mod unify;
// Texts in an expression that a function cannot read, and lists of mixed types.
mod literals;
// Texts in an expression that are formats.
mod formats;
// The types of all parts of an expression.
mod check;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use check::{CheckError, check, check_outcome, check_patch};

/// A type of CEL.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Known when the expression is evaluated.
    Dyn,
    /// The same of values that are neither lists nor maps to loop over: attributes of devices.
    Any,
    /// Of what has a type error already: nothing more is said about it.
    Error,
    /// `null`.
    Null,
    /// Truth values.
    Bool,
    /// Signed integers.
    Int,
    /// Unsigned integers.
    Uint,
    /// Floating-point numbers.
    Double,
    /// Text.
    String,
    /// Bytes.
    Bytes,
    /// Points in time.
    Timestamp,
    /// Spans of time.
    Duration,
    /// Types themselves.
    Type(Box<Type>),
    /// Lists.
    List(Box<Type>),
    /// Maps, by key and value.
    Map(Box<Type>, Box<Type>),
    /// Values that may be missing.
    Optional(Box<Type>),
    /// Values that only functions can look into, such as `net.IP`.
    Opaque(Arc<str>),
    /// Objects.
    Object(Arc<Object>),
    /// A type that follows from its uses.
    Variable(usize),
}

/// An object with declared fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The name in messages.
    pub name: String,
    /// Types by the names that expressions use.
    pub fields: BTreeMap<String, Type>,
}

impl Type {
    /// A list.
    pub fn list(of: Type) -> Self {
        Self::List(Box::new(of))
    }

    /// The type of a type.
    pub fn type_of(of: Type) -> Self {
        Self::Type(Box::new(of))
    }

    /// A map with text as keys.
    pub fn map(of: Type) -> Self {
        Self::Map(Box::new(Self::String), Box::new(of))
    }

    /// An object.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (String, Type)>) -> Self {
        Self::Object(Arc::new(Object { name: name.to_owned(), fields: fields.into_iter().collect() }))
    }
}

/// As messages name it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Self::Dyn | Self::Variable(_) => "dyn",
            Self::Any => "any",
            Self::Error => "!error!",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "timestamp",
            Self::Duration => "duration",
            Self::Type(of) => return write!(f, "type({of})"),
            Self::List(of) => return write!(f, "list({of})"),
            Self::Map(key, value) => return write!(f, "map({key}, {value})"),
            Self::Optional(of) => return write!(f, "optional_type({of})"),
            Self::Opaque(name) => name,
            Self::Object(object) => &object.name,
        };
        f.write_str(word)
    }
}
