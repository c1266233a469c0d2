//! CNI errors.

use serde::Serialize;
use serde_json::{Value, json};

/// Error codes of the CNI specification.
pub mod code {
    /// The configuration's version is not supported.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// A field asks for something this plugin does not do.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// The container is unknown or does not exist.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A variable of the environment is missing or invalid.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// Reading or writing failed.
    pub const IO: u32 = 5;
    /// Stdin cannot be decoded.
    pub const DECODING: u32 = 6;
    /// The configuration is invalid.
    pub const INVALID_CONFIG: u32 = 7;
    /// Temporary failure; try again later.
    pub const TRY_AGAIN: u32 = 11;
    /// The plugin cannot serve ADD now.
    pub const NOT_AVAILABLE: u32 = 50;
    /// Everything else.
    pub const INTERNAL: u32 = 999;
}

/// An error result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// One of `code`, or of a delegated plugin.
    pub code: u32,
    /// Human-readable message.
    pub message: String,
    /// Human-readable details.
    pub details: String,
}

/// An error result in JSON.
#[derive(Serialize)]
struct ErrorResult<'a> {
    #[serde(rename = "cniVersion")]
    version: &'a str,
    code: u32,
    #[serde(rename = "msg")]
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a str>,
}

/// Outcome of a verb.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of a code.
    pub fn new(code: u32, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), details: String::new() }
    }

    /// An error of a plugin, with its causes.
    pub fn of(code: u32, error: &dyn std::error::Error) -> Self {
        let causes = std::iter::successors(error.source(), |&cause| cause.source());
        Error::new(code, causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")))
    }

    /// As printed on stdout.
    pub fn to_json(&self, version: &str) -> Value {
        let details = Some(self.details.as_str()).filter(|details| !details.is_empty());
        json!(ErrorResult { version, code: self.code, message: &self.message, details })
    }
}

impl From<crate::netlink::Error> for Error {
    fn from(error: crate::netlink::Error) -> Self {
        Error::of(code::INTERNAL, &error)
    }
}
