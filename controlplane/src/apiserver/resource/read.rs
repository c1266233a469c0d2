//! get, list and watch: cached bytes in the form that was asked for.

use super::Asked;
use crate::apiserver::apart::apart;
use crate::apiserver::negotiate::Form;
use crate::apiserver::options::ListOptions;
use crate::apiserver::respond::{self, Body, JSON};
use crate::apiserver::select::Selection;
use crate::apiserver::{list, table};
use crate::object::Object;
use bytes::Bytes;
use coracle_proto::status::ApiError;
use futures::StreamExt;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use std::sync::Arc;

impl Asked<'_> {
    pub(super) async fn get(&self) -> Result<Response<Body>, ApiError> {
        let form = self.form()?;
        let options = ListOptions::parse(&self.context.query)?;
        if let Some(at) = list::parse_version(&options.resource_version)? {
            self.server.api.wait_for_version(at).await?;
        }
        let object = self.server.api.get(self.kind, self.namespace(), &self.context.info.name).await?;
        self.show(200, &self.server.api.converter.shown(self.kind, &object).await?, form)
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
        let mut page = self.server.api.list(self.kind, self.scope(), &options, &selection).await?;
        // Copying bytes takes no time; reading and writing them does, and so does making them smaller.
        let plain = matches!(form, Form::Plain) && !self.context.header("accept-encoding").contains("gzip");
        let size = if plain { 0 } else { page.items.iter().map(|object| object.json.len()).sum() };
        let work = async {
            page.items = self.server.api.converter.views(self.kind, page.items).await?;
            Ok(self.show_list(&page, form, &options))
        };
        apart(size, work).await
    }

    /// A list in the form that was asked for.
    fn show_list(&self, page: &list::Page, form: Form, options: &ListOptions) -> Response<Body> {
        let encoding = self.context.header("accept-encoding");
        let body: Bytes = match form {
            Form::Plain => list::render(self.kind, page),
            Form::Partial(version) => {
                let items: Vec<Value> = page.items.iter().map(|o| o.value()).collect();
                to_bytes(&table::partial_list(&items, page.metadata(), version))
            }
            Form::Table(version) => {
                let items: Vec<Value> = page.items.iter().map(|o| o.value()).collect();
                to_bytes(&table::of_list(
                    self.kind,
                    &items,
                    page.metadata(),
                    version,
                    &options.include_object,
                ))
            }
        };
        respond::compressible(200, JSON, body, encoding)
    }

    pub(super) async fn watch(&self) -> Result<Response<Body>, ApiError> {
        let form = self.form()?;
        let options = ListOptions::parse(&self.context.query)?;
        let selection = Selection::parse(self.kind, &options)?.named(&self.context.info.name);
        let watch = match self.server.api.watch(self.kind, self.scope(), &options, selection, form).await {
            Ok(watch) => watch,
            // Too old: clients expect a watch that begins and says so in its first event.
            Err(error) if error.code == 410 => {
                let event = json!({"type": "ERROR", "object": error.to_json()});
                return Ok(respond::json(200, &event));
            }
            Err(error) => return Err(error),
        };
        // At shutdown clients are to go elsewhere at once.
        let frames = watch.frames().take_until(self.server.wellknown.stop.clone().cancelled_owned());
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

fn to_bytes(value: &Value) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}
