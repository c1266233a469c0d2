//! The four patch formats as pure functions on object trees, and field ownership.

// Type information for patches: shapes, list types, merge keys.
pub mod types;
// RFC 6902: a list of operations.
pub mod json;
// RFC 7386: a partial object.
pub mod merge;
// A partial object that merges lists by key and carries directives.
pub mod strategic;
// Server-side apply and managedFields.
pub mod apply;
#[cfg(test)]
pub(crate) mod test_values;

use coracle_proto::status::{ApiError, FieldError};

/// A patch that is well formed but does not fit the object: 422, with the detail as its cause.
pub(crate) fn rejected(why: impl std::fmt::Display) -> ApiError {
    let text = "the server rejected our request due to an error in our request";
    let mut error = ApiError::new(422, "Invalid", format!("{text}: {why}"));
    error.details.causes.push(FieldError::new("UnexpectedServerResponse", "patch", why.to_string()));
    error
}
