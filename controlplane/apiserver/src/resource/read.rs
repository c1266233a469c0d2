//! get, list and watch: cached bytes in the requested format.

use super::ResourceRequest;
use crate::conversion::calls_webhook;
use crate::list_body::ListChunks;
use crate::negotiate::Form;
use crate::offload::offload;
use crate::respond::{self, Body, COMPRESS_FROM, JSON};
use crate::select::Selection;
use crate::{list, table};
use bytes::Bytes;
use coracle_client::options::ListOptions;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use coracle_trace::{Sum, add, measured};
use futures::StreamExt;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

impl ResourceRequest<'_> {
    pub(super) async fn get(&self) -> Result<Response<Body>, ApiError> {
        let form = self.form()?;
        let options = ListOptions::parse(&self.context.query)?;
        let (objects, name) = (&self.handlers.api.objects, &self.context.info.name);
        let object = match list::parse_version(&options.resource_version)? {
            // Any version: what the cache has, also when the store does not answer.
            Some(0) => objects.cached_whole(self.kind, self.namespace(), name)?,
            Some(at) => {
                self.handlers.api.wait_for_version(at).await?;
                objects.get_whole(self.kind, self.namespace(), name).await?
            }
            None => objects.get_whole(self.kind, self.namespace(), name).await?,
        };
        // Without a webhook there is nothing to measure.
        let begun = calls_webhook(self.kind).then(Instant::now);
        let object = self.handlers.api.converter.to_version(self.kind, &object).await?;
        if let Some(begun) = begun {
            add(Sum::Transform, begun.elapsed());
        }
        self.show(200, &object, form)
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
            // The bytes are there.
            Form::Plain if object.json.len() < COMPRESS_FROM => {
                respond::bytes(code, JSON, object.json.clone())
            }
            Form::Plain => {
                measured(Sum::Serialize, || respond::compressible(code, JSON, object.json.clone(), encoding))
            }
            Form::Partial(version) => rendered(code, || table::partial(&object.value(), version)),
            Form::Table(version) => {
                let options = ListOptions::parse(&self.context.query)?;
                let include = &options.include_object;
                rendered(code, || table::of_object(self.kind, &object.value(), version, include))
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
            measured(Sum::Serialize, || {
                let chunks = ListChunks::of(self.kind, page, form, options.include_object, converted);
                chunks.into_response(encoding)
            })
        };
        offload(size, work).await
    }

    /// A page whose objects a webhook has converted, if one does that for this kind: it may fail, which is to be known before
    /// the first byte. Whatever else is shown in another form becomes it when it is sent.
    pub(super) async fn converted(&self, mut page: list::Page) -> Result<(list::Page, bool), ApiError> {
        let converted = calls_webhook(self.kind);
        if converted {
            let begun = Instant::now();
            page.items = self.handlers.api.converter.to_version_all(self.kind, page.items).await?;
            add(Sum::Transform, begun.elapsed());
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

/// A reply of what `transform` makes of an object.
fn rendered(code: u16, transform: impl FnOnce() -> Value) -> Response<Body> {
    let value = measured(Sum::Transform, transform);
    measured(Sum::Serialize, || respond::json(code, &value))
}
