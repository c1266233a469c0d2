//! Errors as the spec writes them.

use serde_json::{Value, json};

/// Codes of the spec.
pub mod code {
    /// The configuration's version is not spoken.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// A field asks for something this plugin does not do.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// The container is unknown or does not exist.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A variable of the environment is missing or invalid.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// Reading or writing failed.
    pub const IO: u32 = 5;
    /// Stdin is not what it should be.
    pub const DECODING: u32 = 6;
    /// The configuration makes no sense.
    pub const INVALID_CONFIG: u32 = 7;
    /// Something is in the way for a moment.
    pub const TRY_AGAIN: u32 = 11;
    /// The plugin cannot serve ADD now.
    pub const NOT_AVAILABLE: u32 = 50;
    /// Everything else.
    pub const INTERNAL: u32 = 999;
}

/// An answer that is not a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// One of `code`, or of a delegated plugin.
    pub code: u32,
    /// For people.
    pub message: String,
    /// More for people.
    pub details: String,
}

/// Outcome of a verb.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of a code.
    pub fn new(code: u32, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), details: String::new() }
    }

    /// The configuration makes no sense.
    pub fn config(message: impl Into<String>) -> Self {
        Error::new(code::INVALID_CONFIG, message)
    }

    /// Something failed that the spec has no code for.
    pub fn internal(message: impl Into<String>) -> Self {
        Error::new(code::INTERNAL, message)
    }

    /// A file could not be read or written.
    pub fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |e| Error::new(code::IO, format!("{}: {e}", path.display()))
    }

    /// As printed on stdout.
    pub fn to_json(&self, version: &str) -> Value {
        let mut value = json!({ "cniVersion": version, "code": self.code, "msg": self.message });
        if !self.details.is_empty() {
            value["details"] = Value::String(self.details.clone());
        }
        value
    }
}

impl From<crate::netlink::Error> for Error {
    fn from(error: crate::netlink::Error) -> Self {
        Error::internal(error.to_string())
    }
}
