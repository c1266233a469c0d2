//! Verbs on resources: from a request to a call of [`Api`] and back.

// Request bodies, with a size limit.
mod body;
// get, list, watch.
mod read;
// create, update, patch.
mod write;
// delete, one or many.
mod delete;
// Subresources, and kinds that are computed.
mod subresource;

use crate::api::Api;
use crate::authz::Authorizer;
use crate::connector::Connectors;
use crate::context::Context;
use crate::negotiate::{self, Form};
use crate::request_body::RequestBody;
use crate::respond::{self, Body};
use crate::run_action::Actions;
use crate::verb::Verb;
use coracle_client::options::WriteOptions;
use coracle_client::pipeline::Target;
use coracle_client::trace_options::TraceOptions;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use coracle_trace::TraceContext;
use http::{Request, Response};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Handlers of requests on resources, and their dependencies.
pub struct Resources {
    /// Objects.
    pub api: Arc<Api>,
    /// Subresources and resources that store nothing.
    pub actions: Arc<Actions>,
    /// Subresources that take over the connection.
    pub connectors: Connectors,
    /// Decides whether an update or apply may create the object.
    pub authz: Arc<dyn Authorizer>,
    /// Ends watches when it is cancelled.
    pub stop: CancellationToken,
}

impl Resources {
    /// Serves one request on a resource.
    pub async fn serve(
        &self,
        context: Context,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        let info = &context.info;
        let kind = self.api.objects.registry.resource(&info.group, &info.version, &info.resource);
        let kind = kind.ok_or_else(ApiError::no_such_path)?;
        let call = ResourceRequest { handlers: self, kind: &kind, context: &context };
        let mut response = self.answer(&call, request).await?;
        if !kind.deprecation.is_empty() {
            respond::warn(&mut response, &[kind.deprecation.to_owned()]);
        }
        Ok(response)
    }

    async fn answer(
        &self,
        call: &ResourceRequest<'_>,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        let (kind, info) = (call.kind, &call.context.info);
        call.check_scope()?;
        // Each is boxed: in place, every request would carry, and the connection move, the largest of them.
        if !info.subresource.is_empty() {
            return Box::pin(call.subresource(request)).await;
        }
        // A verb was authorized under its own name: it must not do what another one does.
        if !kind.verbs.contains(&info.verb.as_str()) || call.lacks_name() {
            return Err(ApiError::method_not_allowed());
        }
        if !kind.stored {
            if matches!(info.verb, Verb::Get | Verb::List) {
                return Box::pin(call.serve_computed()).await;
            }
            return Box::pin(call.action(request)).await;
        }
        match info.verb {
            Verb::Get => call.get().await,
            Verb::List => Box::pin(call.list()).await,
            Verb::Watch => Box::pin(call.watch()).await,
            Verb::Create => Box::pin(call.create(request)).await,
            Verb::Update => Box::pin(call.update("", request)).await,
            Verb::Patch => Box::pin(call.patch("", request)).await,
            Verb::Delete => Box::pin(call.delete(request)).await,
            Verb::DeleteCollection => Box::pin(call.delete_collection(request)).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}

/// A request on a resource.
struct ResourceRequest<'a> {
    handlers: &'a Resources,
    kind: &'a Arc<Kind>,
    context: &'a Context,
}

impl<'a> ResourceRequest<'a> {
    fn check_scope(&self) -> Result<(), ApiError> {
        let info = &self.context.info;
        let cluster_path = info.namespace.is_empty();
        if info.verb == Verb::Create && info.subresource.is_empty() && !info.name.is_empty() {
            return Err(ApiError::method_not_allowed());
        }
        let many = matches!(info.verb, Verb::List | Verb::Watch) && !info.is_named_by_path();
        if self.kind.namespaced() && cluster_path && !many {
            // A single object of a namespaced kind has no address outside its namespace.
            return Err(if info.verb == Verb::Create {
                ApiError::method_not_allowed()
            } else {
                ApiError::no_such_path()
            });
        }
        // Nothing that belongs to no namespace is reached through one.
        if !self.kind.namespaced() && info.in_namespace {
            return Err(ApiError::no_such_path());
        }
        Ok(())
    }

    /// Whether the verb needs a name and there is none.
    fn lacks_name(&self) -> bool {
        let info = &self.context.info;
        info.name.is_empty() && matches!(info.verb, Verb::Update | Verb::Patch)
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

    /// What the client says about its trace. Only nodes may name the span that led to a write.
    fn trace_options(&self) -> TraceOptions {
        let is_node = self.context.user.node().is_some();
        let cause = if is_node { self.context.header(TraceOptions::CAUSE) } else { "" };
        let (parent, state) =
            (self.context.header(TraceContext::HEADER), self.context.header(TraceContext::STATE));
        let state = TraceOptions::passed_on(parent, state).to_owned();
        TraceOptions { cause: TraceOptions::read_cause(cause), state }
    }

    fn options(&self) -> Result<WriteOptions, ApiError> {
        let options = WriteOptions::parse(
            &self.context.query,
            self.context.header("user-agent"),
            self.context.info.verb.as_str(),
        )?;
        let audit_annotations = self.context.audit_annotations.clone();
        Ok(WriteOptions { audit_annotations, trace: self.trace_options(), ..options })
    }
}
