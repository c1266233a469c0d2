//! Server-side apply: who manages which field, kept in `metadata.managedFields`.

// A set of field paths and its `fieldsV1` form.
pub mod set;
// Which fields an object has, and how items of lists are named.
pub mod fields;
// Which fields differ between two objects.
pub mod compare;
// Whether an applied object fits its type.
pub mod check;
// The live object with an applied one laid over it.
pub mod overlay;
// An object without some of its fields.
pub mod prune;
// Entries of managedFields.
pub mod entry;
// Ownership after a write that is not an apply.
pub mod track;
// An apply: merge, prune, conflicts, ownership.
pub mod run;
#[cfg(test)]
mod tests;

pub use entry::keep_readable;
pub use run::apply;
pub use track::update;

use super::types::Type;
use coracle_kinds::registry::custom::Custom;

/// Who writes, and through which endpoint.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// The type of the object.
    pub ty: Type<'a>,
    /// What a custom resource is held to.
    pub custom: Option<&'a Custom>,
    /// `v1`, `apps/v1`.
    pub api_version: &'a str,
    /// The field manager: `fieldManager` of the request or the product of its user agent.
    pub manager: &'a str,
    /// Empty for the main resource.
    pub subresource: &'a str,
    /// Top-level fields that this endpoint does not write, such as `status`.
    pub reset: &'a [&'a str],
    /// The time of the write, RFC 3339 with seconds.
    pub now: &'a str,
}

/// The manager of a request without `fieldManager`: its user agent up to the first slash.
pub fn manager_of_agent(agent: &str) -> &str {
    agent.split('/').next().unwrap_or_default()
}

/// What a write through an endpoint cannot change: the status of the main resource, the spec of `/status`.
pub fn reset_fields(subresource: &str, has_status: bool) -> &'static [&'static str] {
    match subresource {
        "" if has_status => &["status"],
        "status" => &["spec"],
        _ => &[],
    }
}
