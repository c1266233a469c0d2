//! get, list and watch: cached bytes in the requested format.

use super::ResourceRequest;
use crate::conversion::calls_webhook;
use crate::list_body::ListChunks;
use crate::negotiate::Form;
use crate::offload::offload;
use crate::respond::{self, Body, JSON};
use crate::select::Selection;
use crate::{list, table};
use bytes::Bytes;
use coracle_client::options::ListOptions;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use futures::StreamExt;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use std::sync::Arc;

impl ResourceRequest<'_> {
    pub(super) async fn get(&self) -> Result<Response<Body>, ApiError> {
        let form = self.form()?;
        let options = ListOptions::parse(&self.context.query)?;
        let (objects, name) = (&self.handlers.api.objects, &self.context.info.name);
        let object = match list::parse_version(&options.resource_version)? {
            // Any version: what the cache has, also when the store does not answer.
            Some(0) => objects.cached(self.kind, self.namespace(), name)?,
            Some(at) => {
                self.handlers.api.wait_for_version(at).await?;
                objects.get(self.kind, self.namespace(), name).await?
            }
            None => objects.get(self.kind, self.namespace(), name).await?,
        };
        self.show(200, &self.handlers.api.converter.to_version(self.kind, &object).await?, form)
    }

    /// One object in the form that was asked for.
    pub(super) fn show(
        &self,
        code: u16,
        object: &Arc<Object>,
        form: Form,
    ) -> Result<Response<Body>, ApiError> {
        let encoding = self.context.header("accept-encoding");
        Ok(match form {
            Form::Plain => respond::compressible(code, JSON, object.json.clone(), encoding),
            Form::Partial(version) => respond::json(code, &table::partial(&object.value(), version)),
            Form::Table(version) => {
                let options = ListOptions::parse(&self.context.query)?;
                let table = table::of_object(self.kind, &object.value(), version, &options.include_object);
                respond::json(code, &table)
            }
        })
    }

    pub(super) async fn list(&self) -> Result<Response<Body>, ApiError> {
        let form = self.form()?;
        let options = ListOptions::parse(&self.context.query)?;
        let selection = Selection::parse(self.kind, &options)?.named(&self.context.info.name);
        let page = self.handlers.api.list(self.kind, self.scope(), &options, &selection).await?;
        let encoding = self.context.header("accept-encoding");
        // Copying bytes takes no time; reading and writing them does, and so does making them smaller.
        let plain = form == Form::Plain && !self.kind.is_view() && !encoding.contains("gzip");
        let size = if plain { 0 } else { page.items.iter().map(|object| object.json.len()).sum() };
        let work = async {
            let (page, converted) = self.converted(page).await?;
            ListChunks::of(self.kind, page, form, options.include_object, converted).into_response(encoding)
        };
        offload(size, work).await
    }

    /// A page whose objects a webhook has converted, if one does that for this kind: it may fail, which is to be known before
    /// the first byte. Whatever else is shown in another form becomes it when it is sent.
    pub(super) async fn converted(&self, mut page: list::Page) -> Result<(list::Page, bool), ApiError> {
        let converted = calls_webhook(self.kind);
        if converted {
            page.items = self.handlers.api.converter.to_version_all(self.kind, page.items).await?;
        }
        Ok((page, converted))
    }

    pub(super) async fn watch(&self) -> Result<Response<Body>, ApiError> {
        let form = self.form()?;
        let options = ListOptions::parse(&self.context.query)?;
        let selection = Selection::parse(self.kind, &options)?.named(&self.context.info.name);
        let watch = match self.handlers.api.watch(self.kind, self.scope(), &options, selection, form).await {
            Ok(watch) => watch.by(&self.context.user.name),
            // Too old: clients expect a watch that begins and says so in its first event.
            Err(error) if error.code == 410 => {
                let event = json!({"type": "ERROR", "object": error.to_json()});
                return Ok(respond::json(200, &event));
            }
            Err(error) => return Err(error),
        };
        // At shutdown clients are to go elsewhere at once.
        let frames = watch.frames().take_until(self.handlers.stop.clone().cancelled_owned());
        let frames = frames.map(|frame| frame.map(Frame::data));
        let mut response = respond::bytes(200, JSON, Bytes::new());
        *response.body_mut() = StreamBody::new(frames).boxed_unsync();
        Ok(response)
    }

    /// An object with warnings.
    pub(super) fn answer(
        &self,
        code: u16,
        object: &Arc<Object>,
        form: Form,
        warnings: &[String],
    ) -> Result<Response<Body>, ApiError> {
        let mut response = self.show(code, object, form)?;
        respond::warn(&mut response, warnings);
        Ok(response)
    }
}
