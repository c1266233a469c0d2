//! delete and deletecollection.

use super::ResourceRequest;
use super::body::BufferedBody;
use crate::list_body::ListChunks;
use crate::negotiate::Form;
use crate::respond::{self, Body};
use crate::select::Selection;
use crate::{decode, request_body::RequestBody};
use coracle_client::options::{DeleteOptions, ListOptions, WriteOptions};
use coracle_proto::status::ApiError;
use http::{Request, Response};
use serde_json::json;

impl ResourceRequest<'_> {
    pub(super) async fn delete(&self, request: Request<RequestBody>) -> Result<Response<Body>, ApiError> {
        let form = self.form()?;
        let options = self.delete_options(request).await?;
        let write = self.write_options(&options);
        let removed = self.handlers.api.remove(&self.target("", &write), &options).await?;
        if let Some(status) = removed.status(self.kind) {
            let mut response = respond::json(200, &status);
            respond::warn(&mut response, &removed.warnings);
            return Ok(response);
        }
        self.answer(200, &removed.object, form, &removed.warnings)
    }

    pub(super) async fn delete_collection(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        // As a delete of one object, it does not ask whether initializers are pending.
        let list_options =
            ListOptions { include_uninitialized: true, ..ListOptions::parse(&self.context.query)? };
        let selection = Selection::parse(self.kind, &list_options)?.named(&self.context.info.name);
        let options = self.delete_options(request).await?;
        let write = self.write_options(&options);
        let page = self.handlers.api.list(self.kind, self.scope(), &list_options, &selection).await?;
        let (page, converted) = self.converted(page).await?;
        for object in &page.items {
            let mut target = self.target("", &write);
            target.namespace = &object.meta.namespace;
            target.name = &object.meta.name;
            match self.handlers.api.remove(&target, &options).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        // What cannot be read matches no selector.
        if selection.is_everything() {
            self.handlers.api.delete_unreadable(&self.target("", &write), self.scope(), &options).await?;
        }
        ListChunks::of(self.kind, page, Form::Plain, String::new(), converted).into_response("")
    }

    async fn delete_options(&self, request: Request<RequestBody>) -> Result<DeleteOptions, ApiError> {
        let sent = BufferedBody::read(request).await?;
        let body = match &sent.bytes {
            none if none.is_empty() => json!({}),
            bytes => decode::delete_options(&sent.content_type, bytes)?,
        };
        let options: DeleteOptions = serde_json::from_value(body)
            .map_err(|e| ApiError::bad_request(format!("unable to decode delete options: {e}")))?;
        options.with_query(&self.context.query)
    }

    /// What a removal writes with.
    fn write_options(&self, options: &DeleteOptions) -> WriteOptions {
        let (dry_run, audit_annotations) = (options.is_dry_run(), self.context.audit_annotations.clone());
        WriteOptions { dry_run, audit_annotations, trace: self.trace_options(), ..WriteOptions::default() }
    }
}
