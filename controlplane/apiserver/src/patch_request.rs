//! Decodes a patch request and applies it to an object.

use super::api::Api;
use super::decode;
use super::field_writer::writer;
use super::metadata;
use super::patch::{apply, json, merge, strategic, types};
use super::write::Written;
use coracle_client::options::{FieldValidation, WriteOptions};
use coracle_client::patch::Patch;
use coracle_client::pipeline::Target;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::{ApiError, FieldError};
use serde_json::Value;

/// The type of Scales.
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// The format of a patch, by its content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchKind {
    /// By content type; 415 for any other.
    pub fn of(content_type: &str) -> Result<Self, ApiError> {
        match content_type.split(';').next().unwrap_or("").trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(ApiError::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }
}

/// Reads the body of a patch request. Returns it with warnings about fields that are dropped.
pub fn read(
    kind: &Kind,
    format: PatchKind,
    body: &[u8],
    options: &WriteOptions,
) -> Result<(Patch, Vec<String>), ApiError> {
    if format != PatchKind::Apply {
        if options.force.is_some() {
            let cause = FieldError::forbidden("force", "may not be specified for non-apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
        }
        let decoded = decode::patch(body, options.field_validation)?;
        let is_object = decoded.object.is_object();
        let patch = match format {
            PatchKind::Merge if !is_object => return Err(ApiError::bad_request("Invalid JSON Patch")),
            PatchKind::Strategic if !is_object => {
                let why = "json: cannot unmarshal array into Go value of type map[string]interface {}";
                return Err(ApiError::bad_request(format!("error decoding patch: {why}")));
            }
            PatchKind::Json => Patch::Json(decoded.object),
            PatchKind::Merge => Patch::Merge(decoded.object),
            _ => Patch::Strategic(decoded.object),
        };
        return Ok((patch, decoded.warnings));
    }
    let decoded = decode::applied(body, options.field_validation)?;
    check_applied_kind(&decoded.object, &kind.kind)?;
    Ok((Patch::Apply { config: decoded.object, force: options.force.unwrap_or(false) }, decoded.warnings))
}

/// An apply is of an object of the kind.
fn check_applied_kind(config: &Value, kind: &str) -> Result<(), ApiError> {
    let given = PartialObjectMetadata::of(config);
    if given.kind() == kind {
        return Ok(());
    }
    let version = match given.api_version().text() {
        core if !core.contains('/') => format!("/{core}"),
        other => other.to_owned(),
    };
    let why = format!("invalid object type: {version}, Kind={}", given.kind().text());
    Err(ApiError::bad_request(why))
}

/// An apply must say who applies; the name of the program is not enough.
pub fn no_manager() -> ApiError {
    let cause = FieldError::required("fieldManager", "is required for apply patch");
    ApiError::invalid("meta.k8s.io", "PatchOptions", "", vec![cause])
}

/// The body of a patch as a tree.
pub fn raw(format: PatchKind, body: &[u8]) -> Result<Value, ApiError> {
    if format == PatchKind::Apply {
        return decode::yaml(body);
    }
    Ok(decode::patch(body, FieldValidation::Ignore)?.object)
}

/// Applies a patch to a Scale; the result is a Scale again. It has a resource version only if the patch names another than the
/// current one: the current one is no wish of the client, and the patch is applied again when somebody else was faster.
pub fn apply_to_scale(format: PatchKind, current: &Value, patch: &Value) -> Result<Value, ApiError> {
    let patched = match format {
        PatchKind::Json => json::apply(current, patch)?,
        PatchKind::Strategic => strategic::apply(current, patch, types::named(SCALE))?,
        PatchKind::Merge | PatchKind::Apply => merge::apply(current, patch),
    };
    changed_scale(current, patched)
}

/// Applies a Scale to the current one, which has the owners of its fields.
pub fn apply_config_to_scale(
    target: &Target<'_>,
    current: &Value,
    config: &Value,
) -> Result<Value, ApiError> {
    if target.options.field_manager.is_empty() {
        return Err(no_manager());
    }
    check_applied_kind(config, "Scale")?;
    let now = metadata::now();
    let writer = apply::Writer {
        ty: types::named(SCALE),
        custom: None,
        api_version: "autoscaling/v1",
        manager: &target.options.field_manager,
        subresource: target.subresource,
        reset: &[],
        now: &now,
    };
    let applied = apply::apply(Some(current), config, &writer, target.options.force.unwrap_or(false))?;
    changed_scale(current, applied)
}

fn changed_scale(current: &Value, mut patched: Value) -> Result<Value, ApiError> {
    let version =
        |scale: &Value| PartialObjectMetadata::of(scale).metadata().resource_version().text().to_owned();
    if version(&patched) == version(current) {
        PartialObjectMetadata::edit(&mut patched).metadata().resource_version().clear();
    }
    decode::patched(SCALE, patched)
}

impl Api {
    /// Patches an object; an apply creates the object if there is none. Nobody is asked whether the user may do that.
    pub async fn patch(&self, target: &Target<'_>, patch: &Patch) -> Result<Written, ApiError> {
        match self.patch_existing(target, patch).await {
            Err(error) if error.is_not_found() && target.subresource.is_empty() => {
                let Patch::Apply { config, force } = patch else { return Err(error) };
                self.apply_new(target, config, *force).await
            }
            other => other,
        }
    }

    /// Patches an object that exists.
    pub async fn patch_existing(&self, target: &Target<'_>, patch: &Patch) -> Result<Written, ApiError> {
        let kind = target.kind;
        let ty = types::named(&kind.schema);
        let version = kind.api_version();
        let tidy = |mut object: Value| {
            // Patches come without a resource version unless they insist on one; the current one is no wish of the client.
            decode::prune(kind, &mut object, target.options.field_validation)
                .map(|warnings| (object, warnings))
        };
        let warnings = parking_lot::Mutex::new(Vec::new());
        let keep_version = |patch: &Value, mut object: Value| {
            if PartialObjectMetadata::of(patch).metadata().resource_version().text().is_empty() {
                PartialObjectMetadata::edit(&mut object).metadata().resource_version().clear();
            }
            object
        };
        let change = |current: &Value| -> Result<Value, ApiError> {
            let patched = match patch {
                Patch::Json(operations) => keep_version(&Value::Null, json::apply(current, operations)?),
                Patch::Merge(partial) => keep_version(partial, merge::apply(current, partial)),
                Patch::Strategic(partial) => keep_version(partial, strategic::apply(current, partial, ty)?),
                Patch::Apply { config, force } => {
                    let now = metadata::now();
                    let writer = writer(target, ty, &version, &now);
                    return Ok(keep_version(config, apply::apply(Some(current), config, &writer, *force)?));
                }
            };
            if !patched.is_object() {
                return Err(ApiError::bad_request("the patch does not leave an object"));
            }
            // A strategic merge knows the type it works on and does not look.
            if !matches!(patch, Patch::Strategic(_)) {
                decode::same_kind(kind, &patched)?;
            }
            let (patched, dropped) = tidy(patched)?;
            *warnings.lock() = dropped;
            Ok(patched)
        };
        let is_apply = matches!(patch, Patch::Apply { .. });
        if is_apply && target.options.field_manager.is_empty() {
            return Err(no_manager());
        }
        let target = Target { applied: is_apply, ..*target };
        let mut written = self.change_by_patch(&target, &change).await?;
        written.warnings.splice(0..0, warnings.into_inner());
        Ok(written)
    }

    /// Creates the object that an apply describes, when there is none. The caller has checked that the user may create it.
    pub async fn apply_new(
        &self,
        target: &Target<'_>,
        config: &Value,
        force: bool,
    ) -> Result<Written, ApiError> {
        if let Some(uid) = PartialObjectMetadata::of(config).metadata().uid().get() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(ApiError::conflict(&target.kind.group, &target.kind.plural, target.name, why));
        }
        let (ty, version, now) =
            (types::named(&target.kind.schema), target.kind.api_version(), metadata::now());
        metadata::check_body(target.kind, target.namespace, target.name, config)?;
        let mut object = apply::apply(None, config, &writer(target, ty, &version, &now), force)?;
        PartialObjectMetadata::edit(&mut object).metadata().name().set(target.name);
        self.create(&Target { name: "", applied: true, ..*target }, object).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patched_scale_has_the_version_that_the_patch_names() {
        let current = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "web", "namespace": "default", "resourceVersion": "7"}, "spec": {"replicas": 1}});
        for (format, patch, version) in [
            (PatchKind::Merge, json!({"spec": {"replicas": 3}}), ""),
            (PatchKind::Strategic, json!({"spec": {"replicas": 3}}), ""),
            (PatchKind::Json, json!([{"op": "replace", "path": "/spec/replicas", "value": 3}]), ""),
            (PatchKind::Merge, json!({"metadata": {"resourceVersion": "6"}, "spec": {"replicas": 3}}), "6"),
            (PatchKind::Merge, json!({"metadata": {"resourceVersion": "7"}, "spec": {"replicas": 3}}), ""),
        ] {
            let scale = apply_to_scale(format, &current, &patch).unwrap();
            let found = PartialObjectMetadata::of(&scale).metadata().resource_version().text().to_owned();
            assert_eq!((found.as_str(), &scale["spec"]["replicas"]), (version, &json!(3)), "{patch}");
        }
    }
}
