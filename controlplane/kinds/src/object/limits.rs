//! Limits of stored objects: depth, number of values and size are checked while the object is serialized to JSON, for every
//! write path.

use bytes::Bytes;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_proto::limits::{MAX_BYTES, MAX_DEPTH, MAX_NODES, MAX_OWNERS_DEPTH, RESERVED, height};
use coracle_proto::status::{ApiError, FieldError};
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;
use std::cell::{Cell, RefCell};

/// How much of a path or key an error shows.
const SHOWN: usize = 256;

/// What one object may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    depth: usize,
    owners_depth: usize,
    nodes: usize,
    bytes: usize,
}

impl Limits {
    /// What new objects may be.
    pub const USUAL: Self =
        Self { depth: MAX_DEPTH, owners_depth: MAX_OWNERS_DEPTH, nodes: MAX_NODES, bytes: MAX_BYTES };

    /// For what only renders an object that is stored already.
    const NONE: Self =
        Self { depth: usize::MAX, owners_depth: usize::MAX, nodes: usize::MAX, bytes: usize::MAX };

    /// What an object may be that is stored already, perhaps since before there were limits: no deeper than it is and
    /// hardly larger, so that it can still be changed, be marked as deleted and lose its finalizers.
    pub fn over(stored: &Value, bytes: usize) -> Self {
        let mut left = usize::MAX;
        let depth = height(stored, &mut left).unwrap_or_default();
        let usual = Self::USUAL;
        Self {
            depth: usual.depth.max(depth),
            owners_depth: usual.owners_depth.max(depth),
            nodes: usual.nodes.max(usize::MAX - left + 64),
            bytes: usual.bytes.max(bytes + 4096),
        }
    }
}

/// Why an object cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Arrays and objects inside each other.
    #[error("{path}: nested more than {limit} levels deep")]
    Deep {
        /// The beginning of the path to the value that is too deep.
        path: String,
        /// Levels that are allowed.
        limit: usize,
    },
    /// Too many values in all.
    #[error("{path}: more than {limit} values")]
    Many {
        /// The first value that is too many.
        path: String,
        /// Values that are allowed.
        limit: usize,
    },
    /// A field name that cannot be read back.
    #[error("{path}: the field name {RESERVED:?} is reserved")]
    Reserved {
        /// Where it is.
        path: String,
    },
    /// Too many bytes.
    #[error("{bytes} bytes, more than {limit}")]
    Large {
        /// Bytes it takes.
        bytes: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
}

impl ShapeError {
    /// The API error for the client.
    pub fn refusal(self, group: &str, kind: &str, name: &str) -> ApiError {
        let cause = match self {
            Self::Deep { path, limit } => {
                FieldError::forbidden(path, &format!("may not be nested more than {limit} levels deep"))
            }
            Self::Many { path, limit } => {
                let text = format!("Too many: an object must have at most {limit} values");
                FieldError::new("FieldValueTooMany", path, text)
            }
            Self::Reserved { path } => {
                FieldError::forbidden(path, &format!("the field name {RESERVED:?} is reserved"))
            }
            Self::Large { bytes, limit } => {
                let text = format!(
                    "Request entity too large: {kind} {name:?} takes {bytes} bytes, limit is {limit}"
                );
                return ApiError::too_large(text).about(group, kind, name);
            }
        };
        ApiError::invalid(group, kind, name, vec![cause])
    }
}

/// The bytes to store, if they keep to the limits: kind, version and metadata first, without the resource version, which
/// only the store knows.
pub fn stored_bytes(object: &Value, limits: &Limits) -> Result<Bytes, ShapeError> {
    let walk = Walk { limits, left: Cell::new(limits.nodes), fault: RefCell::new(None) };
    let Ok(bytes) = serde_json::to_vec(&Stored { object, walk: &walk }) else {
        let fault = walk.fault.take().map_or(ShapeError::Reserved { path: String::new() }, Fault::told);
        return Err(named_by_cause(object, limits, fault));
    };
    if bytes.len() > limits.bytes {
        return Err(ShapeError::Large { bytes: bytes.len(), limit: limits.bytes });
    }
    Ok(bytes.into())
}

/// The server makes the sets of owned fields from the rest of the object, and they are written first: when both are too deep,
/// whoever sent the object is told of the part that they sent.
fn named_by_cause(object: &Value, limits: &Limits, fault: ShapeError) -> ShapeError {
    if limits.owners_depth == usize::MAX || !matches!(fault, ShapeError::Deep { .. }) {
        return fault;
    }
    let without_owners = Limits { owners_depth: usize::MAX, ..*limits };
    stored_bytes(object, &without_owners).err().unwrap_or(fault)
}

/// The same for an object that is not going to be stored, or that was stored already.
pub fn rendered_bytes(object: &Value) -> Bytes {
    // Only the reserved name is refused then, and no object that was read has it.
    stored_bytes(object, &Limits::NONE).unwrap_or_default()
}

/// What is known while one object is written.
struct Walk<'a> {
    limits: &'a Limits,
    left: Cell<usize>,
    fault: RefCell<Option<Fault>>,
}

/// The first limit that was exceeded, and the way there from the inside out.
struct Fault {
    path: Vec<String>,
    error: ShapeError,
}

impl Fault {
    fn told(self) -> ShapeError {
        let mut whole = String::new();
        for part in self.path.iter().rev() {
            if !whole.is_empty() && !part.starts_with('[') {
                whole.push('.');
            }
            whole.push_str(part);
        }
        let whole = shortened(&whole);
        let mut error = self.error;
        if let ShapeError::Deep { path, .. } | ShapeError::Many { path, .. } | ShapeError::Reserved { path } =
            &mut error
        {
            *path = whole;
        }
        error
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl Walk<'_> {
    #[cold]
    fn fail<E: serde::ser::Error>(&self, error: ShapeError) -> E {
        *self.fault.borrow_mut() = Some(Fault { path: Vec::new(), error });
        E::custom("the shape of the object is refused")
    }

    #[cold]
    fn under<E>(&self, part: impl FnOnce() -> String, error: E) -> E {
        if let Some(fault) = self.fault.borrow_mut().as_mut() {
            fault.path.push(part());
        }
        error
    }

    fn field<M: SerializeMap, V: Serialize + ?Sized>(
        &self,
        map: &mut M,
        name: &str,
        value: &V,
    ) -> Result<(), M::Error> {
        if name == RESERVED {
            return Err(self.fail(ShapeError::Reserved { path: String::new() }));
        }
        map.serialize_entry(name, value).map_err(|error| self.under(|| shortened(name), error))
    }
}

/// A value with `depth` arrays and objects around it.
struct Checked<'a> {
    value: &'a Value,
    depth: usize,
    limit: usize,
    walk: &'a Walk<'a>,
}

impl<'a> Checked<'a> {
    fn inside(&self, value: &'a Value) -> Checked<'a> {
        Checked { value, depth: self.depth + 1, limit: self.limit, walk: self.walk }
    }
}

impl Serialize for Checked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let walk = self.walk;
        let Some(left) = walk.left.get().checked_sub(1) else {
            return Err(walk.fail(ShapeError::Many { path: String::new(), limit: walk.limits.nodes }));
        };
        walk.left.set(left);
        let deep = self.depth >= self.limit;
        match self.value {
            Value::Array(_) | Value::Object(_) if deep => {
                Err(walk.fail(ShapeError::Deep { path: String::new(), limit: self.limit }))
            }
            Value::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for (i, item) in items.iter().enumerate() {
                    let written = list.serialize_element(&self.inside(item));
                    written.map_err(|error| walk.under(|| format!("[{i}]"), error))?;
                }
                list.end()
            }
            Value::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    walk.field(&mut map, name, &self.inside(value))?;
                }
                map.end()
            }
            scalar => scalar.serialize(serializer),
        }
    }
}

/// An object.
struct Stored<'a> {
    object: &'a Value,
    walk: &'a Walk<'a>,
}

impl Serialize for Stored<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let walk = self.walk;
        let mut map = serializer.serialize_map(None)?;
        let object = PartialObjectMetadata::of(self.object);
        map.serialize_entry("kind", &object.kind())?;
        map.serialize_entry("apiVersion", &object.api_version())?;
        let metadata = object.metadata().as_value();
        walk.field(&mut map, "metadata", &StoredMeta { metadata: &metadata, walk })?;
        for (name, value) in self.object.as_object().into_iter().flatten() {
            if !matches!(name.as_str(), "kind" | "apiVersion" | "metadata") {
                walk.field(&mut map, name, &Checked { value, depth: 1, limit: walk.limits.depth, walk })?;
            }
        }
        map.end()
    }
}

/// Its metadata.
struct StoredMeta<'a> {
    metadata: &'a Value,
    walk: &'a Walk<'a>,
}

impl Serialize for StoredMeta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (walk, limits) = (self.walk, self.walk.limits);
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.metadata.as_object().into_iter().flatten() {
            if name != "resourceVersion" {
                let limit = if name == "managedFields" { limits.owners_depth } else { limits.depth };
                walk.field(&mut map, name, &Checked { value, depth: 2, limit, walk })?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, i| if i % 2 == 0 { json!([inner]) } else { json!({"f:a": inner}) })
    }

    fn with(spec: Value, owners: Value) -> Value {
        let meta = json!({"name": "x", "resourceVersion": "7", "managedFields": [{"fieldsV1": owners}]});
        json!({"spec": spec, "metadata": meta, "apiVersion": "v1", "kind": "Thing"})
    }

    fn refused(object: &Value) -> String {
        let error = stored_bytes(object, &Limits::USUAL).unwrap_err();
        error.refusal("x.io", "Thing", "x").message
    }

    #[test]
    fn what_is_stored_is_the_object_without_its_version() {
        let object = with(json!({"a": [1, {"b": null}], "c": "\u{0}\u{202e}"}), json!({}));
        let bytes = stored_bytes(&object, &Limits::USUAL).unwrap();
        assert!(
            bytes.starts_with(br#"{"kind":"Thing","apiVersion":"v1","metadata":{"name":"x","#),
            "{bytes:?}"
        );
        let mut back: Value = serde_json::from_slice(&bytes).unwrap();
        back["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(back, object);
        assert_eq!(rendered_bytes(&object), bytes);
        // What has no metadata is still written as an object.
        assert_eq!(
            stored_bytes(&json!({}), &Limits::USUAL).unwrap(),
            r#"{"kind":null,"apiVersion":null,"metadata":{}}"#
        );
    }

    #[test]
    fn limits_are_exact_and_say_where() {
        assert!(stored_bytes(&with(nested(MAX_DEPTH - 1), json!(1)), &Limits::USUAL).is_ok());
        let why = refused(&with(nested(MAX_DEPTH), json!(1)));
        let start = r#"Thing.x.io "x" is invalid: spec.f:a[0].f:a[0]"#;
        assert!(why.starts_with(start) && why.ends_with("more than 100 levels deep"), "{why}");
        // The object, its metadata, the list and the entry are four levels.
        assert!(stored_bytes(&with(json!(1), nested(MAX_OWNERS_DEPTH - 4)), &Limits::USUAL).is_ok());
        let why = refused(&with(json!(1), nested(MAX_OWNERS_DEPTH - 3)));
        assert!(why.contains("metadata.managedFields[0].fieldsV1[0].f:a[0]"), "{why}");
        // Of two that are too deep, the one that the client sent is named.
        let why = refused(&with(nested(MAX_DEPTH), nested(MAX_OWNERS_DEPTH)));
        assert!(why.starts_with(start), "{why}");
        let many = |n: usize| json!({"kind": "Thing", "metadata": {}, "list": vec![json!({}); n]});
        assert!(stored_bytes(&many(MAX_NODES - 1), &Limits::USUAL).is_ok());
        let why = refused(&many(MAX_NODES));
        assert!(why.contains("list[199999]: Too many"), "{why}");
        let large = |n: usize| json!({"kind": "Thing", "metadata": {}, "text": "x".repeat(n)});
        assert!(stored_bytes(&large(MAX_BYTES - 100), &Limits::USUAL).is_ok());
        let error = stored_bytes(&large(MAX_BYTES), &Limits::USUAL).unwrap_err().refusal("", "Thing", "x");
        assert_eq!((error.code, error.reason), (413, "RequestEntityTooLarge"));
        assert!(error.message.contains("Thing \"x\" takes"), "{}", error.message);
    }

    #[test]
    fn names_that_cannot_be_read_back_are_refused() {
        for object in [
            json!({"metadata": {}, "spec": {"a": [{RESERVED: "[]"}]}}),
            json!({"metadata": {"labels": {RESERVED: "x"}}}),
            json!({"metadata": {}, RESERVED: "x"}),
        ] {
            assert!(refused(&object).contains("is reserved"), "{object}");
        }
        let long = json!({"metadata": {}, "k".repeat(100_000): {RESERVED: 1}});
        assert!(refused(&long).len() < 1000);
    }

    #[test]
    fn stored_objects_may_stay_what_they_are() {
        let stored = with(nested(120), json!(1));
        let limits = Limits::over(&stored, 5);
        assert!(stored_bytes(&stored, &limits).is_ok());
        assert!(stored_bytes(&with(nested(121), json!(1)), &limits).is_err());
        assert_eq!(Limits::over(&json!({}), 5), Limits::USUAL);
    }
}
