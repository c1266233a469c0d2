//! Field ownership for the write path: what a kind and an endpoint mean for [`super::apply`].

use super::apply::{self, Writer};
use super::types::{self, Type};
use crate::registry::kinds::{Kind, Subresource};
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use serde_json::Value;

/// The type of a kind's objects; deduced for kinds that the schema table does not hold.
pub fn type_of(kind: &Kind) -> Type<'_> {
    types::named(&kind.schema)
}

/// Sets the owner of a new object.
pub fn created(kind: &Kind, new: &mut Value, manager: &str, subresource: &str) {
    with(kind, manager, subresource, |writer| apply::update(None, new, writer));
}

/// Moves ownership of what changed between `old` and `new` to the manager.
pub fn changed(kind: &Kind, new: &mut Value, old: &Value, manager: &str, subresource: &str) {
    with(kind, manager, subresource, |writer| apply::update(Some(old), new, writer));
}

/// Applies a config to the live object, or makes one from it; see [`apply::apply`] for failures.
pub fn applied(
    kind: &Kind,
    live: Option<&Value>,
    config: &Value,
    manager: &str,
    subresource: &str,
    force: bool,
) -> Result<Value, ApiError> {
    with(kind, manager, subresource, |writer| apply::apply(live, config, writer, force))
}

fn with<T>(kind: &Kind, manager: &str, subresource: &str, run: impl FnOnce(&Writer) -> T) -> T {
    // To the second and never in the future.
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default().to_string();
    let api_version = kind.api_version();
    run(&Writer {
        ty: type_of(kind),
        api_version: &api_version,
        manager,
        subresource,
        reset: apply::reset_fields(subresource, kind.subresources.contains(&Subresource::Status)),
        now: &now,
    })
}
