//! Verbs on resources: from a request to a call of [`Api`] and back.

use super::admission::Operation;
use super::apart::apart;
use super::api::Reply;
use super::chain::{Context, Server};
use super::filters::audit::Capture;
use super::hook::Call;
use super::list;
use super::negotiate::{self, Form};
use super::options::{DeleteOptions, FieldValidation, ListOptions, WriteOptions};
use super::patching::{self, Patch, PatchKind};
use super::respond::{self, Body, JSON};
use super::select::Selection;
use super::write::{Target, Written, built_view};
use super::{decode, table};
use crate::apiserver::inbound::Inbound;
use crate::object::Object;
use crate::registry::kinds::{Kind, Subresource};
use bytes::Bytes;
use coracle_proto::status::{ApiError, FieldError};
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use std::sync::Arc;

/// The largest body a client may send.
pub const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Serves one request on a resource.
pub async fn serve(
    server: &Arc<Server>,
    context: Context,
    request: Request<Inbound>,
) -> Result<Response<Body>, ApiError> {
    let info = &context.info;
    let kind = server.api.registry.resource(&info.group, &info.version, &info.resource);
    let kind = kind.ok_or_else(ApiError::no_such_path)?;
    let call = Request1 { server, kind: &kind, context: &context };
    call.check_scope()?;
    if !info.subresource.is_empty() {
        return call.subresource(request).await;
    }
    // A verb was authorized under its own name: it must not do what another one does.
    if !kind.verbs.contains(&info.verb.as_str()) || call.lacks_name() {
        return Err(ApiError::method_not_allowed());
    }
    if !kind.stored {
        if matches!(info.verb.as_str(), "get" | "list") {
            return call.made_up().await;
        }
        return call.action(request).await;
    }
    match info.verb.as_str() {
        "get" => call.get().await,
        "list" => call.list().await,
        "watch" => call.watch().await,
        "create" => call.create(request).await,
        "update" => call.update("", request).await,
        "patch" => call.patch("", request).await,
        "delete" => call.delete(request).await,
        "deletecollection" => call.delete_collection(request).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// One request with what was found out about it.
struct Request1<'a> {
    server: &'a Arc<Server>,
    kind: &'a Arc<Kind>,
    context: &'a Context,
}

impl<'a> Request1<'a> {
    fn check_scope(&self) -> Result<(), ApiError> {
        let info = &self.context.info;
        let cluster_path = info.namespace.is_empty();
        if info.verb == "create" && info.subresource.is_empty() && !info.name.is_empty() {
            return Err(ApiError::method_not_allowed());
        }
        if self.kind.namespaced() && cluster_path && !matches!(info.verb.as_str(), "list" | "watch") {
            // A single object of a namespaced kind has no address outside its namespace.
            return Err(if info.verb == "create" {
                ApiError::method_not_allowed()
            } else {
                ApiError::no_such_path()
            });
        }
        // A namespace's own path names it twice; nothing that belongs to no namespace is reached through one.
        let own = info.resource == "namespaces" && info.path.split('/').nth(4) == Some(info.name.as_str());
        let within = info.path.split('/').nth(5) == Some("namespaces");
        if !self.kind.namespaced() && !cluster_path && (!own || within) {
            return Err(ApiError::no_such_path());
        }
        Ok(())
    }

    /// Whether the verb needs a name and there is none.
    fn lacks_name(&self) -> bool {
        let info = &self.context.info;
        info.name.is_empty() && matches!(info.verb.as_str(), "update" | "patch")
    }

    fn namespace(&self) -> &'a str {
        if self.kind.namespaced() { &self.context.info.namespace } else { "" }
    }

    fn scope(&self) -> Option<&'a str> {
        Some(self.namespace()).filter(|namespace| !namespace.is_empty())
    }

    fn target<'b>(&'b self, subresource: &'b str, options: &'b WriteOptions) -> Target<'b> {
        Target {
            user: &self.context.user,
            kind: self.kind,
            namespace: self.namespace(),
            name: &self.context.info.name,
            subresource,
            options,
            applied: false,
        }
    }

    fn form(&self) -> Result<Form, ApiError> {
        negotiate::form(self.context.header("accept"), true)
    }

    fn options(&self) -> Result<WriteOptions, ApiError> {
        let options = WriteOptions::parse(
            &self.context.query,
            self.context.header("user-agent"),
            &self.context.info.verb,
        )?;
        Ok(WriteOptions { notes: self.context.notes.clone(), ..options })
    }

    async fn get(&self) -> Result<Response<Body>, ApiError> {
        let form = self.form()?;
        let options = ListOptions::parse(&self.context.query)?;
        if let Some(at) = list::parse_version(&options.resource_version)? {
            self.server.api.wait_for_version(at).await?;
        }
        let object = self.server.api.get(self.kind, self.namespace(), &self.context.info.name).await?;
        self.show(200, &built_view(self.kind, &object)?, form)
    }

    /// One object in the form that was asked for.
    fn show(&self, code: u16, object: &Arc<Object>, form: Form) -> Result<Response<Body>, ApiError> {
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

    async fn list(&self) -> Result<Response<Body>, ApiError> {
        let form = self.form()?;
        let options = ListOptions::parse(&self.context.query)?;
        let selection = Selection::parse(self.kind, &options)?;
        let mut page = self.server.api.list(self.kind, self.scope(), &options, &selection).await?;
        // Copying bytes takes no time; reading and writing them does, and so does making them smaller.
        let plain = matches!(form, Form::Plain) && !self.context.header("accept-encoding").contains("gzip");
        let size = if plain { 0 } else { page.items.iter().map(|object| object.json.len()).sum() };
        let work = async {
            if self.kind.is_view() {
                page.items = page.items.iter().map(|o| built_view(self.kind, o)).collect::<Result<_, _>>()?;
            }
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

    async fn watch(&self) -> Result<Response<Body>, ApiError> {
        let form = self.form()?;
        let options = ListOptions::parse(&self.context.query)?;
        let selection = Selection::parse(self.kind, &options)?;
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

    async fn create(&self, request: Request<Inbound>) -> Result<Response<Body>, ApiError> {
        let (form, options) = (self.form()?, self.options()?);
        let (content_type, bytes) = (header(&request, "content-type"), read(request).await?);
        apart(bytes.len(), self.create_from(form, &options, &content_type, &bytes)).await
    }

    async fn create_from(
        &self,
        form: Form,
        options: &WriteOptions,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<Response<Body>, ApiError> {
        let (object, mut warnings) = self.object(content_type, bytes, options.field_validation)?;
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !options.dry_run && version.parse::<u64>().is_ok_and(|version| version != 0) {
            return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        let mut target = self.target("", options);
        target.name = "";
        let written = self.server.api.create(&target, object).await?;
        warnings.extend(written.warnings);
        self.answer(201, &written.object, form, &warnings)
    }

    async fn update(&self, subresource: &str, request: Request<Inbound>) -> Result<Response<Body>, ApiError> {
        let (form, options) = (self.form()?, self.options()?);
        let (content_type, bytes) = (header(&request, "content-type"), read(request).await?);
        apart(bytes.len(), self.update_from(subresource, form, &options, &content_type, &bytes)).await
    }

    async fn update_from(
        &self,
        subresource: &str,
        form: Form,
        options: &WriteOptions,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<Response<Body>, ApiError> {
        let (object, mut warnings) = self.object(content_type, bytes, options.field_validation)?;
        if object["metadata"]["name"].as_str().is_none_or(str::is_empty) {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                self.context.info.name
            )));
        }
        let target = self.target(subresource, options);
        let unversioned = object["metadata"]["resourceVersion"].as_str().is_none_or(str::is_empty);
        let replace = |_: &Value| {
            if self.kind.conditional && unversioned {
                let path = "metadata.resourceVersion";
                let why = "Invalid value: 0: must be specified for an update".to_owned();
                let cause = FieldError::new("FieldValueInvalid", path, why);
                return Err(ApiError::invalid(
                    &self.kind.group,
                    &self.kind.kind,
                    &self.context.info.name,
                    vec![cause],
                ));
            }
            Ok(object.clone())
        };
        let written = match self.server.api.change(&target, &replace).await {
            Err(error) if error.is_not_found() && self.kind.create_on_update && subresource.is_empty() => {
                let mut target = self.target("", options);
                target.name = "";
                self.server.api.create(&target, object).await?
            }
            other => other?,
        };
        warnings.extend(written.warnings);
        self.answer(if written.created { 201 } else { 200 }, &written.object, form, &warnings)
    }

    async fn patch(&self, subresource: &str, request: Request<Inbound>) -> Result<Response<Body>, ApiError> {
        let form = self.form()?;
        let options = self.options()?;
        let content_type = header(&request, "content-type");
        let format = PatchKind::of(&content_type)?;
        if format == PatchKind::Apply
            && !self.context.query.iter().any(|(key, v)| key == "fieldManager" && !v.is_empty())
        {
            return Err(patching::no_manager());
        }
        if self.kind.custom.is_some() && format == PatchKind::Strategic {
            return Err(ApiError::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        let bytes = read(request).await?;
        let work = async {
            let (patch, mut warnings) = patching::read(self.kind, format, &bytes, &options)?;
            let written = self.patched(subresource, &patch, &options).await?;
            warnings.extend(written.warnings);
            self.answer(if written.created { 201 } else { 200 }, &written.object, form, &warnings)
        };
        apart(bytes.len(), work).await
    }

    async fn patched(&self, sub: &str, patch: &Patch, options: &WriteOptions) -> Result<Written, ApiError> {
        let target = self.target(sub, options);
        self.server.api.patch(&target, patch).await
    }

    async fn delete(&self, request: Request<Inbound>) -> Result<Response<Body>, ApiError> {
        let form = self.form()?;
        let options = self.delete_options(request).await?;
        let (dry_run, notes) = (options.is_dry_run(), self.context.notes.clone());
        let write = WriteOptions { dry_run, notes, ..WriteOptions::default() };
        let removed = self.server.api.remove(&self.target("", &write), &options).await?;
        if removed.gone && !self.kind.returns_deleted {
            let details = json!({
                "name": removed.object.meta.name, "group": self.kind.group,
                "kind": self.kind.plural, "uid": removed.object.meta.uid,
            });
            let details: Value = details
                .as_object()
                .map(|d| d.iter().filter(|(_, v)| *v != "").map(|(k, v)| (k.clone(), v.clone())).collect())
                .unwrap_or_default();
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
            return Ok(respond::json(200, &status));
        }
        self.answer(200, &removed.object, form, &removed.warnings)
    }

    async fn delete_collection(&self, request: Request<Inbound>) -> Result<Response<Body>, ApiError> {
        let list_options = ListOptions::parse(&self.context.query)?;
        let selection = Selection::parse(self.kind, &list_options)?;
        let options = self.delete_options(request).await?;
        let (dry_run, notes) = (options.is_dry_run(), self.context.notes.clone());
        let write = WriteOptions { dry_run, notes, ..WriteOptions::default() };
        let page = self.server.api.list(self.kind, self.scope(), &list_options, &selection).await?;
        for object in &page.items {
            let mut target = self.target("", &write);
            target.namespace = &object.meta.namespace;
            target.name = &object.meta.name;
            match self.server.api.remove(&target, &options).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(respond::bytes(200, JSON, list::render(self.kind, &page)))
    }

    async fn delete_options(&self, request: Request<Inbound>) -> Result<DeleteOptions, ApiError> {
        let content_type = header(&request, "content-type");
        let bytes = read(request).await?;
        let body = if bytes.is_empty() { json!({}) } else { decode::delete_options(&content_type, &bytes)? };
        let options: DeleteOptions = serde_json::from_value(body)
            .map_err(|e| ApiError::bad_request(format!("unable to decode delete options: {e}")))?;
        options.with_query(&self.context.query)
    }

    async fn subresource(&self, request: Request<Inbound>) -> Result<Response<Body>, ApiError> {
        let info = &self.context.info;
        let known = self.kind.subresources.iter().find(|s| s.name() == info.subresource);
        let known = known.ok_or_else(ApiError::no_such_path)?;
        if let Some(connect) =
            self.server.connectors.get(&(self.kind.plural.clone(), info.subresource.clone()))
        {
            return connect.connect(self.server, self.context, self.kind, request).await;
        }
        if !known.exposed(self.kind).verbs.contains(&info.verb.as_str()) {
            return Err(ApiError::method_not_allowed());
        }
        if self.server.api.action(&info.group, &info.resource, &info.subresource).is_some() {
            return self.action(request).await;
        }
        match info.verb.as_str() {
            "get" => self.get().await,
            "update" => self.update(&info.subresource, request).await,
            "patch" => self.patch(&info.subresource, request).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// The request as an action sees it.
    fn call<'c>(&'c self, body: Value, content_type: &'c str, options: &'c WriteOptions) -> Call<'c> {
        let info = &self.context.info;
        Call {
            api: &self.server.api,
            user: &self.context.user,
            kind: self.kind,
            namespace: self.namespace(),
            name: &info.name,
            verb: &info.verb,
            content_type,
            body,
            options,
        }
    }

    /// Objects that are made when they are asked for.
    async fn made_up(&self) -> Result<Response<Body>, ApiError> {
        let (info, form) = (&self.context.info, self.form()?);
        let action = self.server.api.action(&info.group, &info.resource, "");
        let action = action.ok_or_else(ApiError::no_such_path)?;
        let options = WriteOptions::default();
        let value = action.call(self.call(Value::Null, "", &options)).await?.value();
        let include = ListOptions::parse(&self.context.query)?.include_object;
        let (items, metadata) = (value["items"].as_array(), value["metadata"].clone());
        let shown = match (form, items) {
            (Form::Plain, _) => value,
            (Form::Partial(version), Some(items)) => table::partial_list(items, metadata, version),
            (Form::Partial(version), None) => table::partial(&value, version),
            (Form::Table(version), Some(items)) => {
                table::of_list(self.kind, items, metadata, version, &include)
            }
            (Form::Table(version), None) => table::of_object(self.kind, &value, version, &include),
        };
        let mut response = respond::json(200, &shown);
        respond::warn(&mut response, &(self.kind.strategy.warnings)(&Value::Null, None));
        Ok(response)
    }

    /// Subresources and resources that do something instead of storing something.
    async fn action(&self, request: Request<Inbound>) -> Result<Response<Body>, ApiError> {
        let info = &self.context.info;
        let action = self.server.api.action(&info.group, &info.resource, &info.subresource);
        let action = action.ok_or_else(ApiError::no_such_path)?;
        // Reviews and the like have no columns: a Table of them cannot be had.
        let columns = self.kind.subresources.iter().find(|sub| sub.name() == info.subresource);
        let columns = columns.and_then(|sub| sub.columns());
        let form = negotiate::form(self.context.header("accept"), columns.is_some())?;
        let options = self.options()?;
        let mut warnings = Vec::new();
        let (content_type, verb) = (header(&request, "content-type"), info.verb.as_str());
        let body = match verb {
            "create" | "update" => {
                let bytes = read(request).await?;
                let expected = self.expected();
                let decoded = decode::body(&expected, &content_type, &bytes, options.field_validation)?;
                warnings = decoded.warnings;
                decoded.object
            }
            "patch" => {
                let patch_kind = PatchKind::of(&content_type)?;
                let bytes = read(request).await?;
                patching::raw(patch_kind, &bytes)?
            }
            _ => Value::Null,
        };
        if !info.subresource.is_empty() && verb == "create" {
            let target = self.target(&info.subresource, &options);
            let mut at = self.server.api.attributes(&target, Operation::Create, None);
            self.server.api.admission.validate(&mut at, &body).await?;
        }
        let mut response = match action.call(self.call(body, &content_type, &options)).await? {
            Reply::Object(code, object) => respond::bytes(code, JSON, object.json.clone()),
            Reply::Value(code, mut value) => {
                if verb == "list" && self.kind.verbs.contains(&"list") {
                    self.select_items(&mut value)?;
                }
                if let (Form::Table(version), Some(columns)) = (form, columns) {
                    let shown = Kind::new("", "", "", "").columns(columns);
                    let include = ListOptions::parse(&self.context.query)?.include_object;
                    value = table::of_object(&shown, &value, version, &include);
                }
                respond::json(code, &value)
            }
        };
        respond::warn(&mut response, &warnings);
        Ok(response)
    }

    /// Keeps what the label selector wants of a list that was made just now.
    fn select_items(&self, list: &mut Value) -> Result<(), ApiError> {
        let asked = self.context.query.iter().find(|(key, _)| key == "labelSelector");
        let Some((_, text)) = asked.filter(|(_, text)| !text.is_empty()) else { return Ok(()) };
        let selector = text
            .parse::<coracle_proto::selector::LabelSelector>()
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        if let Some(items) = list["items"].as_array_mut() {
            items.retain(|item| selector.matches_value(&item["metadata"]["labels"]));
        }
        Ok(())
    }

    /// The type of the body: the kind's own, or that of the subresource.
    fn expected(&self) -> decode::Expected {
        let sub = self.kind.subresources.iter().find(|s| s.name() == self.context.info.subresource);
        match sub {
            Some(sub) if !matches!(sub, Subresource::Status) => {
                let exposed = sub.exposed(self.kind);
                decode::Expected::new(&exposed.group, &exposed.version, &exposed.kind)
            }
            _ => decode::Expected::of(self.kind),
        }
    }

    fn object(
        &self,
        content_type: &str,
        bytes: &[u8],
        validation: FieldValidation,
    ) -> Result<(Value, Vec<String>), ApiError> {
        let mut decoded = decode::body(&decode::Expected::of(self.kind), content_type, bytes, validation)?;
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
        Ok((decoded.object, decoded.warnings))
    }

    fn answer(
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

fn header(request: &Request<Inbound>, name: &str) -> String {
    request.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
}

fn to_bytes(value: &Value) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// The whole body, or 413. The rest of a body that is too large is read and dropped, up to a point: a client that is
/// still sending would otherwise never see the answer.
pub async fn read(mut request: Request<Inbound>) -> Result<Bytes, ApiError> {
    let capture = request.extensions_mut().remove::<Capture>();
    let content_type = if capture.is_some() { header(&request, "content-type") } else { String::new() };
    let mut body = request.into_body();
    let mut bytes = bytes::BytesMut::new();
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|e| ApiError::bad_request(format!("the request body could not be read: {e}")))?;
        let Some(data) = frame.data_ref() else { continue };
        total += data.len();
        if total <= BODY_LIMIT {
            bytes.extend_from_slice(data);
        } else {
            bytes.clear();
        }
        if total > BODY_LIMIT * 8 {
            break;
        }
    }
    if total > BODY_LIMIT {
        return Err(ApiError::too_large(format!("Request entity too large: limit is {BODY_LIMIT}")));
    }
    let bytes = bytes.freeze();
    if let Some(Capture(place)) = capture {
        *place.lock() = Some((content_type, bytes.clone()));
    }
    Ok(bytes)
}
