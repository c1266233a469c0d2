//! Subresources, and kinds that are computed and not stored.

use super::ResourceRequest;
use super::body::{BufferedBody, content_type};
use crate::admission::Operation;
use crate::connector::Connector;
use crate::negotiate::{self, Form};
use crate::patch_request::{self, PatchKind};
use crate::respond::{self, Body, JSON};
use crate::run_action::Call;
use crate::select::Selection;
use crate::verb::Verb;
use crate::{decode, request_body::RequestBody, table};
use coracle_client::options::{ListOptions, WriteOptions};
use coracle_client::pipeline::Reply;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadataList;
use coracle_kinds::registry::kinds::{Kind, Subresource};
use coracle_proto::status::ApiError;
use coracle_trace::{RequestMark, mark};
use coracle_validation::tree::Tree as _;
use http::{Request, Response};
use serde_json::Value;

impl ResourceRequest<'_> {
    pub(super) async fn subresource(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        let info = &self.context.info;
        let known = self.kind.subresources.iter().find(|s| s.name() == info.subresource);
        let known = known.ok_or_else(ApiError::no_such_path)?;
        // Only what is behind a proxy has paths of its own.
        if info.subresource != "proxy" && !info.rest.is_empty() {
            return Err(ApiError::no_such_path());
        }
        if let Some(connect) =
            self.handlers.connectors.get(&(self.kind.plural.clone(), info.subresource.clone()))
        {
            return self.connect(connect.as_ref(), request).await;
        }
        if !known.exposed(self.kind).verbs.contains(&info.verb.as_str()) {
            return Err(ApiError::method_not_allowed());
        }
        let (actions, registry) = (&self.handlers.actions, &self.handlers.api.objects.registry);
        if actions.find(registry, &info.group, &info.resource, &info.subresource).is_some() {
            return self.action(request).await;
        }
        match info.verb {
            Verb::Get => self.get().await,
            Verb::Update => self.update(&info.subresource, request).await,
            Verb::Patch => self.patch(&info.subresource, request).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// Hands the connection over, once admission has let it through.
    async fn connect(
        &self,
        connector: &dyn Connector,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        let (api, context, method) = (&self.handlers.api, self.context, request.method().clone());
        let mut asked = connector.options(context, self.kind, &method).await?;
        let mut warnings = Vec::new();
        if let Some(asked) = &mut asked {
            // The query belongs to the stream or to what is behind the proxy; it holds no options of a write.
            let options = WriteOptions {
                audit_annotations: context.audit_annotations.clone(),
                ..WriteOptions::default()
            };
            let target = self.target(&context.info.subresource, &options);
            let mut at = api.attributes(&target, Operation::Connect, None);
            api.admission.admit(&mut at, asked).await?;
            warnings = std::mem::take(&mut at.warnings);
        }
        let mut response = connector.connect(context, self.kind, asked, request).await?;
        respond::warn(&mut response, &warnings);
        Ok(response)
    }

    /// The request as an action sees it.
    fn call<'c>(&'c self, body: Value, content_type: &'c str, options: &'c WriteOptions) -> Call<'c> {
        let info = &self.context.info;
        Call {
            api: &self.handlers.api,
            user: &self.context.user,
            kind: self.kind,
            namespace: self.namespace(),
            name: &info.name,
            subresource: &info.subresource,
            verb: info.verb.clone(),
            content_type,
            body,
            options,
            admitted: None,
        }
    }

    /// Objects that are made when they are asked for.
    pub(super) async fn serve_computed(&self) -> Result<Response<Body>, ApiError> {
        let (info, form) = (&self.context.info, self.form()?);
        let options = WriteOptions::default();
        let made = self.handlers.actions.run(self.call(Value::Null, "", &options)).await?;
        let mut value = made.reply.value();
        if info.verb == Verb::List {
            self.select_items(&mut value)?;
        }
        let include = ListOptions::parse(&self.context.query)?.include_object;
        let (items, metadata) = (value.at("items").as_array(), value.at("metadata").clone());
        let shown = match (form, items) {
            (Form::Plain, _) => value,
            (Form::Partial(version), Some(items)) => table::partial_list(items, metadata, version),
            (Form::Partial(version), None) => table::partial(&value, version),
            (Form::Table(version), Some(items)) => {
                table::of_list(self.kind, items, metadata, version, &include)
            }
            (Form::Table(version), None) => table::of_object(self.kind, &value, version, &include),
        };
        Ok(respond::json(200, &shown))
    }

    /// Subresources and resources that do something instead of storing something.
    pub(super) async fn action(&self, request: Request<RequestBody>) -> Result<Response<Body>, ApiError> {
        let info = &self.context.info;
        // Reviews and the like have no columns: a Table of them cannot be had.
        let columns = self.kind.subresources.iter().find(|sub| sub.name() == info.subresource);
        let columns = columns.and_then(|sub| sub.columns());
        let form = negotiate::form(self.context.header("accept"), columns.is_some())?;
        let options = self.options()?;
        let mut warnings = Vec::new();
        let content_type = content_type(&request);
        let body = match info.verb {
            Verb::Create | Verb::Update => {
                let bytes = BufferedBody::read(request).await?.bytes;
                let expected = self.expected();
                let decoded = decode::body(&expected, &content_type, &bytes, options.field_validation)?;
                warnings = decoded.warnings;
                decoded.object
            }
            Verb::Patch => {
                let patch_kind = PatchKind::of(&content_type)?;
                let is_named = |(key, value): &(String, String)| key == "fieldManager" && !value.is_empty();
                if patch_kind == PatchKind::Apply && !self.context.query.iter().any(is_named) {
                    return Err(patch_request::no_manager());
                }
                let bytes = BufferedBody::read(request).await?.bytes;
                patch_request::raw(patch_kind, &bytes)?
            }
            _ => Value::Null,
        };
        mark(RequestMark::Decoded);
        let acted = self.handlers.actions.run(self.call(body, &content_type, &options)).await?;
        warnings.extend(acted.warnings);
        let mut response = match acted.reply {
            Reply::Object(code, object) => respond::bytes(code, JSON, object.json.clone()),
            Reply::Value(code, mut value) => {
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

    /// Keeps what the selectors want of a list that was made just now.
    fn select_items(&self, list: &mut Value) -> Result<(), ApiError> {
        let options = ListOptions::parse(&self.context.query)?;
        let wanted = Selection::parse(self.kind, &options)?.named(&self.context.info.name);
        let mut list = PartialObjectMetadataList::edit(list);
        list.items().retain(|item| wanted.matches_metadata(item.metadata()));
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
}
