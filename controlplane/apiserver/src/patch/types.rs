//! What patches need to know of a type. A [`Type`] is a cheap handle on the schema; shapes are looked up while
//! walking an object.

use coracle_proto::schema;
use serde_json::Value;
use std::sync::LazyLock;

/// A type in the schema.
#[derive(Clone, Copy)]
pub enum Type<'s> {
    /// A struct, and whether its field makes it atomic.
    Struct(&'s schema::Type, bool),
    /// Anything else, and whether its field makes it atomic.
    Shape(&'s schema::Shape, bool),
    /// Nothing is known: maps merge key by key, lists are one value.
    Deduced,
    /// Anything, as one value.
    Opaque,
}

/// What a walker sees of a type.
#[derive(Clone, Copy)]
pub enum Shape<'s> {
    /// One value.
    Scalar(Scalar),
    /// Nothing is known.
    Deduced,
    /// Anything as one value.
    Opaque,
    /// Named fields.
    Struct {
        /// One value to server-side apply.
        atomic: bool,
        /// Undeclared fields are kept.
        open: bool,
    },
    /// String keys.
    Map {
        /// Type of values.
        of: Type<'s>,
        /// One value to server-side apply.
        atomic: bool,
    },
    /// Items.
    List {
        /// Type of items.
        of: Type<'s>,
        /// How they are told apart.
        rule: &'s schema::ListKind,
    },
}

/// What a scalar may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// A string.
    String,
    /// An integer or float.
    Number,
    /// A boolean.
    Boolean,
    /// Any of them.
    Any,
}

/// The type of a built-in kind by its name in the schema, such as `io.k8s.api.core.v1.Pod`; deduced when unknown.
pub fn named(name: &str) -> Type<'static> {
    schema::type_of(name).map_or(Type::Deduced, |of| Type::Struct(of, false))
}

impl<'s> Type<'s> {
    /// The shape.
    pub fn shape(self) -> Shape<'s> {
        match self {
            Self::Deduced => Shape::Deduced,
            Self::Opaque => Shape::Opaque,
            Self::Struct(of, atomic) => Shape::Struct { atomic: atomic || of.atomic, open: of.open },
            Self::Shape(schema::Shape::Object(object), atomic) => Self::Struct(object.get(), atomic).shape(),
            Self::Shape(schema::Shape::Map(of), atomic) => Shape::Map { of: Self::Shape(of, false), atomic },
            Self::Shape(schema::Shape::List(list), _) => {
                Shape::List { of: Self::Shape(&list.item, false), rule: &list.kind }
            }
            Self::Shape(schema::Shape::Scalar { of, .. }, _) => scalar(*of),
        }
    }

    /// The declared field of a struct.
    pub fn field(self, name: &str) -> Option<&'s schema::Field> {
        match self {
            Self::Struct(of, _) => of.field(name),
            Self::Shape(shape, _) => shape.object().and_then(|of| of.field(name)),
            _ => None,
        }
    }

    /// The type of the value under a key, for structs, maps and deduced values.
    pub fn child(self, key: &str) -> Type<'s> {
        match self {
            Self::Opaque => Self::Opaque,
            Self::Shape(schema::Shape::Map(of), _) => Self::Shape(of, false),
            _ => self.field(key).map_or(Self::Deduced, |f| Self::Shape(&f.shape, f.atomic)),
        }
    }

    /// The type of a list's items.
    pub fn item(self) -> Type<'s> {
        match self.shape() {
            Shape::List { of, .. } => of,
            _ => Self::Opaque,
        }
    }

    /// Whether a field is present in an empty object: a struct by value, or a field that is never left out.
    pub fn always_has(self, name: &str) -> bool {
        self.field(name).is_some_and(|f| {
            let by_value = matches!(f.shape, schema::Shape::Object(_)) && !f.omitzero;
            !f.pointer && (by_value || !f.omitempty)
        })
    }

    /// What an omitted key field of a list item stands for: its default, or the empty value of a field that Go always writes.
    pub fn default_of(self, name: &str) -> Option<&'s Value> {
        let field = self.field(name)?;
        let empty = || if field.pointer || field.omitempty { None } else { empty(&field.shape) };
        field.default.as_deref().or_else(empty)
    }
}

static NO_TEXT: Value = Value::String(String::new());
static ZERO: LazyLock<Value> = LazyLock::new(|| Value::from(0));

/// The value of a key that nobody gave, where it is a default of the schema.
fn empty(shape: &schema::Shape) -> Option<&'static Value> {
    use schema::Scalar as S;
    match shape {
        schema::Shape::Scalar { of: S::String, .. } => Some(&NO_TEXT),
        schema::Shape::Scalar { of: S::Int32 | S::Int64, .. } => Some(LazyLock::force(&ZERO)),
        _ => None,
    }
}

fn scalar(of: schema::Scalar) -> Shape<'static> {
    use schema::Scalar as S;
    Shape::Scalar(match of {
        S::String | S::Bytes | S::Time | S::MicroTime | S::Duration => Scalar::String,
        S::Int32 | S::Int64 | S::Float | S::Double => Scalar::Number,
        S::Bool => Scalar::Boolean,
        S::Quantity | S::IntOrString => Scalar::Any,
        S::Fields => return Shape::Opaque,
        S::Raw | S::Json | S::SchemaOrArray | S::SchemaOrBool | S::SchemaOrStrings => return Shape::Deduced,
    })
}
