//! create, update and patch.

use super::ResourceRequest;
use super::body::{BufferedBody, content_type};
use crate::authorize::authorize;
use crate::metadata;
use crate::negotiate::Form;
use crate::offload::offload;
use crate::patch_request::{self, PatchKind};
use crate::pending_initializers::is_pending;
use crate::request_info::RequestInfo;
use crate::respond::Body;
use crate::verb::Verb;
use crate::write::Written;
use crate::{decode, request_body::RequestBody};
use coracle_client::options::{FieldValidation, WriteOptions};
use coracle_client::patch::Patch;
use coracle_client::pipeline::Target;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_proto::status::{ApiError, FieldError};
use coracle_trace::{RequestMark, mark};
use http::{Request, Response};
use serde_json::Value;

impl ResourceRequest<'_> {
    pub(super) async fn create(&self, request: Request<RequestBody>) -> Result<Response<Body>, ApiError> {
        let (form, options) = (self.form()?, self.options()?);
        let sent = BufferedBody::read(request).await?;
        let work = async {
            let (object, warnings) = self.object(&sent, options.field_validation)?;
            let version = PartialObjectMetadata::of(&object).metadata().resource_version().text();
            if !options.dry_run && version.parse::<u64>().is_ok_and(|version| version != 0) {
                let why = "resourceVersion should not be set on objects to be created";
                return Err(ApiError::new(500, "", why));
            }
            let written = self.created(object, &options).await?;
            let code = if is_pending(&written.object) { 202 } else { 201 };
            self.answer(code, &written.object, form, &[warnings, written.warnings].concat())
        };
        offload(sent.bytes.len(), work).await
    }

    async fn created(&self, object: Value, options: &WriteOptions) -> Result<Written, ApiError> {
        let target = Target { name: "", ..self.target("", options) };
        self.handlers.api.create(&target, object).await
    }

    /// Whether the user may create what the request names. An update or an apply of an object that does not exist creates
    /// it: the right to change objects does not include that.
    async fn may_create(&self) -> Result<(), ApiError> {
        let info = RequestInfo { verb: Verb::Create, ..self.context.info.clone() };
        authorize(self.handlers.authz.as_ref(), &self.context.user, &info).await
    }

    pub(super) async fn update(
        &self,
        sub: &str,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        let (form, options) = (self.form()?, self.options()?);
        let sent = BufferedBody::read(request).await?;
        let work = async {
            let (object, warnings) = self.object(&sent, options.field_validation)?;
            // Before it is known whether the object exists: the request was authorized for the name in the URL only.
            metadata::check_body(self.kind, self.namespace(), &self.context.info.name, &object)?;
            let written = match self.replaced(sub, &object, &options).await {
                Err(error) if error.is_not_found() && self.kind.create_on_update && sub.is_empty() => {
                    self.may_create().await?;
                    self.created(object, &options).await?
                }
                other => other?,
            };
            self.answer_written(&written, warnings, form)
        };
        offload(sent.bytes.len(), work).await
    }

    async fn replaced(&self, sub: &str, object: &Value, options: &WriteOptions) -> Result<Written, ApiError> {
        let name = &self.context.info.name;
        let meta = PartialObjectMetadata::of(object).metadata();
        if meta.name().text().is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        }
        let unversioned = meta.resource_version().text().is_empty();
        let replace = |_: &Value| {
            if self.kind.conditional && unversioned {
                let why = "Invalid value: 0: must be specified for an update".to_owned();
                let cause = FieldError::new("FieldValueInvalid", "metadata.resourceVersion", why);
                return Err(ApiError::invalid(&self.kind.group, &self.kind.kind, name, vec![cause]));
            }
            Ok(object.clone())
        };
        self.handlers.api.change(&self.target(sub, options), &replace).await
    }

    pub(super) async fn patch(
        &self,
        sub: &str,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        let (form, options) = (self.form()?, self.options()?);
        let format = PatchKind::of(&content_type(&request))?;
        if format == PatchKind::Apply
            && !self.context.query.iter().any(|(key, v)| key == "fieldManager" && !v.is_empty())
        {
            return Err(patch_request::no_manager());
        }
        if self.kind.custom.is_some() && format == PatchKind::Strategic {
            return Err(ApiError::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        let sent = BufferedBody::read(request).await?;
        let work = async {
            let (patch, warnings) = patch_request::read(self.kind, format, &sent.bytes, &options)?;
            mark(RequestMark::Decoded);
            let written = self.patched(sub, &patch, &options).await?;
            self.answer_written(&written, warnings, form)
        };
        offload(sent.bytes.len(), work).await
    }

    async fn patched(&self, sub: &str, patch: &Patch, options: &WriteOptions) -> Result<Written, ApiError> {
        let target = self.target(sub, options);
        match self.handlers.api.patch_existing(&target, patch).await {
            Err(error) if error.is_not_found() && sub.is_empty() => {
                let Patch::Apply { config, force } = patch else { return Err(error) };
                self.may_create().await?;
                self.handlers.api.apply_new(&target, config, *force).await
            }
            other => other,
        }
    }

    fn answer_written(
        &self,
        written: &Written,
        mut warnings: Vec<String>,
        form: Form,
    ) -> Result<Response<Body>, ApiError> {
        warnings.extend_from_slice(&written.warnings);
        self.answer(if written.created { 201 } else { 200 }, &written.object, form, &warnings)
    }

    /// The body as an object of the kind, with warnings about fields that are dropped.
    fn object(
        &self,
        sent: &BufferedBody,
        validation: FieldValidation,
    ) -> Result<(Value, Vec<String>), ApiError> {
        let expected = decode::Expected::of(self.kind);
        let mut decoded = decode::body(&expected, &sent.content_type, &sent.bytes, validation)?;
        let unknown = decode::unknown(self.kind, &mut decoded.object, validation);
        if validation == FieldValidation::Strict && !unknown.is_empty() {
            return Err(ApiError::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}",
                kind = self.kind.kind,
                version = self.kind.version,
                why = decode::strict_error(&unknown)
            )));
        }
        decoded.warnings.extend(unknown);
        mark(RequestMark::Decoded);
        Ok((decoded.object, decoded.warnings))
    }
}
