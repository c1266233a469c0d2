//! Field ownership: the writer of a request, and what it owns after a write that is not an apply.

use super::patch::{apply, types};
use super::{decode, metadata};
use coracle_client::pipeline::Target;
use serde_json::Value;

/// The writer of a request on an object of type `ty`.
pub fn writer<'a>(
    target: &Target<'a>,
    ty: types::Type<'a>,
    version: &'a str,
    now: &'a str,
) -> apply::Writer<'a> {
    apply::Writer {
        ty,
        custom: target.kind.custom.as_deref(),
        api_version: version,
        manager: &target.options.field_manager,
        subresource: target.subresource,
        reset: apply::reset_fields(target.kind, target.subresource),
        now,
    }
}

/// Notes who owns which field after a write that is not an apply: what the client sent and its defaults, in the form that
/// is stored. As upstream this comes before admission and, for a new object, before its strategy: what those add (a Job's
/// selector, a pod's token volume) is nobody's, so that an apply that does not name it leaves it alone. Nor is a binding
/// anybody's.
pub(super) fn track(target: &Target<'_>, old: Option<&Value>, new: &mut Value) {
    if target.applied || target.subresource == "binding" {
        return;
    }
    decode::normalize(target.kind, new);
    let now = metadata::now();
    let version = target.kind.api_version();
    apply::update(old, new, &writer(target, types::named(&target.kind.schema), &version, &now));
}
