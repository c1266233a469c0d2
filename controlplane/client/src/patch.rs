//! Parsed patches.

use serde_json::Value;

/// A patch.
#[derive(Debug, Clone)]
pub enum Patch {
    /// RFC 6902 operations.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// Strategic merge.
    Strategic(Value),
    /// Server-side apply of a configuration.
    Apply {
        /// What is applied.
        config: Value,
        /// Whether fields of other managers are taken over.
        force: bool,
    },
}

impl Patch {
    /// The body of its request.
    pub fn body(&self) -> &Value {
        match self {
            Self::Json(body)
            | Self::Merge(body)
            | Self::Strategic(body)
            | Self::Apply { config: body, .. } => body,
        }
    }
}
