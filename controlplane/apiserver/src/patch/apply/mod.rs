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
use coracle_kinds::registry::kinds::{Kind, Subresource};

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
    /// Fields that this endpoint does not write, such as `status` or `metadata.labels`.
    pub reset: &'a [&'a str],
    /// The time of the write, RFC 3339 with seconds.
    pub now: &'a str,
}

/// The manager of a request without `fieldManager`: its user agent up to the first slash.
pub fn manager_of_agent(agent: &str) -> &str {
    agent.split('/').next().unwrap_or_default()
}

/// What a write through an endpoint cannot change: the status of the main resource, the spec of `/status`, and what `/status` of a
/// kind keeps of the metadata.
pub fn reset_fields(kind: &Kind, subresource: &str) -> &'static [&'static str] {
    let has_status = || kind.subresources.contains(&Subresource::Status);
    match subresource {
        "" if has_status() => &["status"],
        "status" => match (kind.group.as_str(), kind.plural.as_str()) {
            ("", "pods") => &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
            ("apps", "deployments") => &["spec", "metadata.labels"],
            _ => &["spec"],
        },
        _ => &[],
    }
}
