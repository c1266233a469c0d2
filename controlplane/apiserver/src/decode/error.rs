//! Why a body is not accepted.

use coracle_proto::status::{ApiError, FieldError};
use serde_json::Value;

/// Why the kind of an object is not the expected one.
#[derive(Debug, thiserror::Error)]
pub(super) enum KindMismatch {
    #[error(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    )]
    Unknown { kind: String, api_version: String },
    #[error("converting ({found}) to ({expected}): unknown conversion")]
    Other { found: String, expected: String },
}

/// What a strict reader has against a body.
#[derive(Debug, Default)]
pub(super) struct StrictErrors {
    /// Repeated keys of YAML, which are one error together.
    pub(super) yaml: Option<String>,
    /// The same, a sentence for each.
    pub(super) repeated: Vec<String>,
    /// Unknown and repeated fields.
    pub(super) fields: Vec<String>,
}

impl StrictErrors {
    pub(super) fn is_empty(&self) -> bool {
        self.yaml.is_none() && self.fields.is_empty()
    }

    pub(super) fn error(&self) -> String {
        let all: Vec<String> = self.yaml.iter().chain(&self.fields).cloned().collect();
        strict_error(&all)
    }

    /// A sentence for each, for the `Warning` header.
    pub(super) fn warnings(self) -> Vec<String> {
        self.repeated.into_iter().chain(self.fields).collect()
    }
}

/// What a strict reader refuses.
pub fn strict_error(strict: &[String]) -> String {
    format!("strict decoding error: {}", strict.join(", "))
}

/// 422 for a patch whose result is no object of its kind.
pub(super) fn bad_patch(object: &Value, why: &str) -> ApiError {
    let cause = FieldError::invalid("patch", &Value::from(object.to_string()), why);
    ApiError::invalid("", "", "", vec![cause])
}
