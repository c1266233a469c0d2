//! The types of the Kubernetes API: JSON names, protobuf numbers, list and merge keys.
//!
//! Built-in types come from the table in `proto/schema/`, parsed on first use; custom resources bring their own tree
//! (`Type::from_structural`). Both are the same structs, so that patches, apply, decoding and OpenAPI know one form.

// Reads the table.
mod table;
// Types of custom resources.
mod structural;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

pub use structural::Unstructured;
pub use table::{
    Package, TableInUse, enable_initializers, enum_values, has_initializers, kind_type, packages, type_of,
    types,
};

/// A struct of the API.
#[derive(Debug)]
pub struct Type {
    /// Go name, such as `Pod`; for custom resources the kind or nothing.
    pub name: Cow<'static, str>,
    /// Where a built-in type lives.
    pub package: Option<&'static Package>,
    /// JSON fields with those of inlined structs, sorted by name.
    pub fields: Box<[Field]>,
    /// Structs that are inlined in JSON but nested in protobuf.
    pub inlines: Box<[Inline]>,
    /// Whether objects of it carry `kind` and `apiVersion`.
    pub kind: bool,
    /// Whether apply treats it as one value.
    pub atomic: bool,
    /// Whether fields that it does not declare are kept.
    pub open: bool,
}

/// An inlined struct.
#[derive(Debug)]
pub struct Inline {
    /// Protobuf field number.
    pub number: u16,
    /// The struct.
    pub object: Object,
}

/// A field of a struct.
#[derive(Debug, Clone)]
pub struct Field {
    /// JSON name.
    pub name: Cow<'static, str>,
    /// Protobuf field number; 0 when the field is not in protobuf or belongs to an inlined struct.
    pub number: u16,
    /// What it holds.
    pub shape: Shape,
    /// Whether OpenAPI lists it as required.
    pub required: bool,
    /// A Go pointer: unset and zero differ.
    pub pointer: bool,
    /// Go leaves it out of JSON when it is empty.
    pub omitempty: bool,
    /// Go leaves it out of JSON when it is zero, structs included.
    pub omitzero: bool,
    /// Whether an empty list differs from an unset one: only an unset one gets a default.
    pub keeps_empty: bool,
    /// Whether apply treats the map or struct in it as one value (by the field or by its type).
    pub atomic: bool,
    /// Whether `null` is a value (custom resources only).
    pub nullable: bool,
    /// Chooses the member of a union.
    pub discriminator: bool,
    /// What strategic merge does with it.
    pub patch: Option<Box<Patch>>,
    /// The default in the schema, which apply uses for missing list keys.
    pub default: Option<Box<Value>>,
}

/// How strategic merge treats a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Lists are merged, by `key` or as sets of primitives.
    pub merge: bool,
    /// `$retainKeys` is understood.
    pub retain_keys: bool,
    /// Replaced even where maps would be merged.
    pub replace: bool,
    /// Key of a merged list of objects.
    pub key: Option<Cow<'static, str>>,
}

/// What a field, list item or map value holds.
#[derive(Debug, Clone)]
pub enum Shape {
    /// A value without structure; `named` is its Go type when that is not a plain one.
    Scalar {
        /// The kind of value.
        of: Scalar,
        /// Go type, such as `v1.Protocol`.
        named: Option<Named>,
    },
    /// A struct.
    Object(Object),
    /// A list.
    List(Box<List>),
    /// A map with string keys.
    Map(Box<Shape>),
}

/// A list.
#[derive(Debug, Clone)]
pub struct List {
    /// Its items.
    pub item: Shape,
    /// How apply merges it.
    pub kind: ListKind,
    /// In protobuf a message with the items in field 1.
    pub wrapped: bool,
}

/// How apply merges a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    /// As one value.
    Atomic,
    /// As a set of scalars.
    Set,
    /// As objects with these keys.
    Map(Box<[Cow<'static, str>]>),
}

/// Values without structure of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// A string.
    String,
    /// A 32 bit integer.
    Int32,
    /// A 64 bit integer.
    Int64,
    /// A truth value.
    Bool,
    /// A 32 bit float.
    Float,
    /// A 64 bit float.
    Double,
    /// Bytes, base64 in JSON.
    Bytes,
    /// A `resource.Quantity`.
    Quantity,
    /// A number or a string.
    IntOrString,
    /// RFC 3339 to the second.
    Time,
    /// RFC 3339 to the microsecond.
    MicroTime,
    /// A Go duration, such as `1m30s`.
    Duration,
    /// Any object, by its own kind.
    Raw,
    /// The field set in `managedFields`.
    Fields,
    /// Any JSON.
    Json,
    /// A JSON schema or a list of them.
    SchemaOrArray,
    /// A JSON schema or a truth value.
    SchemaOrBool,
    /// A JSON schema or a list of strings.
    SchemaOrStrings,
}

/// The Go name of a scalar type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// Where it lives; `None` for `k8s.io/apimachinery/pkg/types`.
    pub package: Option<&'static Package>,
    /// Its name, such as `Protocol`.
    pub name: &'static str,
}

/// A struct by its place in the table, or held here.
#[derive(Debug, Clone)]
pub enum Object {
    /// Index in the table.
    Table(u16),
    /// A type of a custom resource.
    Own(Arc<Type>),
}

impl Object {
    /// The struct.
    pub fn get(&self) -> &Type {
        match self {
            Self::Table(index) => &types()[usize::from(*index)],
            Self::Own(own) => own,
        }
    }
}

impl Type {
    /// A JSON field, those of inlined structs included.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|at| &self.fields[at])
    }

    /// Where a JSON field stands in `fields`.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.fields.binary_search_by(|f| f.name.as_ref().cmp(name)).ok()
    }

    /// A field of the struct itself by protobuf number.
    pub fn field_by_number(&self, number: u32) -> Option<&Field> {
        self.fields.iter().find(|f| u32::from(f.number) == number && number != 0)
    }

    /// `io.k8s.api.core.v1.Pod`; the bare name for custom resources.
    pub fn full_name(&self) -> String {
        match self.package {
            Some(package) => format!("{}.{}", package.model, self.name),
            None => self.name.to_string(),
        }
    }

    /// The name that Go's errors use: `v1.Pod`.
    pub fn go_name(&self) -> String {
        match self.package {
            Some(package) => format!("{}.{}", package.version, self.name),
            None => self.name.to_string(),
        }
    }
}

impl Field {
    /// How apply merges the list in it; `None` when it is not a list.
    pub fn list_kind(&self) -> Option<&ListKind> {
        match &self.shape {
            Shape::List(list) => Some(&list.kind),
            _ => None,
        }
    }

    /// The key by which strategic merge pairs items.
    pub fn merge_key(&self) -> Option<&str> {
        self.patch.as_deref().and_then(|p| p.key.as_deref())
    }
}

impl Shape {
    /// A plain scalar.
    pub fn plain(of: Scalar) -> Self {
        Self::Scalar { of, named: None }
    }

    /// The struct, when it is one.
    pub fn object(&self) -> Option<&Type> {
        match self {
            Self::Object(object) => Some(object.get()),
            _ => None,
        }
    }

    /// The kind of scalar, when it is one.
    pub fn scalar(&self) -> Option<Scalar> {
        match self {
            Self::Scalar { of, .. } => Some(*of),
            _ => None,
        }
    }

    /// What the list or map holds.
    pub fn item(&self) -> Option<&Shape> {
        match self {
            Self::List(list) => Some(&list.item),
            Self::Map(value) => Some(value),
            _ => None,
        }
    }

    /// The type as Go's errors print it: `[]v1.Container`, `map[string]string`, `int32`.
    pub fn go_name(&self) -> String {
        match self {
            Self::Scalar { named: Some(named), .. } => named.go_name(),
            Self::Scalar { of, .. } => of.go_name().to_owned(),
            Self::Object(object) => object.get().go_name(),
            Self::List(list) => format!("[]{}", list.item.go_name()),
            Self::Map(value) => format!("map[string]{}", value.go_name()),
        }
    }
}

impl Scalar {
    /// The Go type.
    pub fn go_name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Bool => "bool",
            Self::Float => "float32",
            Self::Double => "float64",
            Self::Bytes => "[]uint8",
            Self::Quantity => "resource.Quantity",
            Self::IntOrString => "intstr.IntOrString",
            Self::Time => "v1.Time",
            Self::MicroTime => "v1.MicroTime",
            Self::Duration => "v1.Duration",
            Self::Raw => "runtime.RawExtension",
            Self::Fields => "v1.FieldsV1",
            Self::Json => "v1.JSON",
            Self::SchemaOrArray => "v1.JSONSchemaPropsOrArray",
            Self::SchemaOrBool => "v1.JSONSchemaPropsOrBool",
            Self::SchemaOrStrings => "v1.JSONSchemaPropsOrStringArray",
        }
    }
}

impl Named {
    /// `v1.Protocol`.
    pub fn go_name(&self) -> String {
        format!("{}.{}", self.package.map_or("types", |p| p.version), self.name)
    }
}
