//! The writer of a request, for field ownership.

use super::patch::{apply, types};
use coracle_client::pipeline::Target;
use coracle_kinds::registry::kinds::Subresource;

/// The writer of a request on an object of type `ty`.
pub fn writer<'a>(
    target: &Target<'a>,
    ty: types::Type<'a>,
    version: &'a str,
    now: &'a str,
) -> apply::Writer<'a> {
    let has_status = target.kind.subresources.contains(&Subresource::Status);
    apply::Writer {
        ty,
        custom: target.kind.custom.as_deref(),
        api_version: version,
        manager: &target.options.field_manager,
        subresource: target.subresource,
        reset: apply::reset_fields(target.subresource, has_status),
        now,
    }
}
