//! One span as a message, and messages as a request.

use coracle_apiserver::request_info::RequestInfo;
use coracle_proto::otlp::collector::trace::v1::ExportTraceServiceRequest;
use coracle_proto::otlp::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use coracle_proto::otlp::resource::v1::Resource;
use coracle_proto::otlp::trace::v1::span::SpanKind;
use coracle_proto::otlp::trace::v1::status::StatusCode;
use coracle_proto::otlp::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use coracle_trace::{SpanId, Stage, TraceId, Uid};
use http::Method;

/// Resources whose objects have attributes of their own.
const NAMED: [(&str, &str); 7] = [
    ("pods", "pod"),
    ("deployments.apps", "deployment"),
    ("replicasets.apps", "replicaset"),
    ("statefulsets.apps", "statefulset"),
    ("daemonsets.apps", "daemonset"),
    ("jobs.batch", "job"),
    ("cronjobs.batch", "cronjob"),
];

/// The object that a span is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanObject {
    /// Such as `deployments.apps`.
    pub resource: String,
    /// Empty for what lives in the cluster.
    pub namespace: String,
    /// Object name.
    pub name: String,
    /// Object uid.
    pub uid: Uid,
}

/// A span before it is a message.
#[derive(Debug, Clone)]
pub struct SpanParts<'a> {
    /// Its trace.
    pub trace: TraceId,
    /// Its id.
    pub span: SpanId,
    /// Its parent; [`SpanId::NONE`] for a root.
    pub parent: SpanId,
    /// What it is.
    pub stage: Stage,
    /// The name that the stage gives it, such as that of a webhook.
    pub name: &'a str,
    /// More text; of a request user and user agent, each on a line.
    pub text: &'a str,
    /// What it is about.
    pub object: Option<&'a SpanObject>,
    /// The revision that it is about, 0 if none.
    pub revision: u64,
    /// Unix time in nanoseconds.
    pub start: u64,
    /// Unix time in nanoseconds.
    pub end: u64,
    /// HTTP status, exit code, attempt or count, by stage.
    pub code: u16,
    /// Whether it failed.
    pub failed: bool,
    /// How far its times may be off, in nanoseconds.
    pub uncertainty: u64,
}

/// Who recorded spans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The node; empty: a server.
    pub node: String,
    /// What tells this server from others.
    pub instance: String,
    /// Host name of the server; empty if it is not known.
    pub host: String,
    /// Uid of the namespace kube-system, empty while it is not known.
    pub cluster: String,
}

impl SpanParts<'_> {
    /// The span as a message.
    pub fn message(&self) -> Span {
        let status = self.failed.then(|| Status { message: String::new(), code: StatusCode::Error.into() });
        Span {
            trace_id: self.trace.0.to_be_bytes().to_vec(),
            span_id: self.span.0.to_be_bytes().to_vec(),
            trace_state: String::new(),
            parent_span_id: match self.parent {
                SpanId::NONE => Vec::new(),
                parent => parent.0.to_be_bytes().to_vec(),
            },
            flags: 0,
            name: self.title(),
            kind: kind(self.stage).into(),
            start_time_unix_nano: self.start,
            // Jaeger warns of spans without a duration.
            end_time_unix_nano: self.end.max(self.start.saturating_add(1)),
            attributes: self.attributes(),
            status,
        }
    }

    /// Few different ones: those who count spans by name group by it.
    fn title(&self) -> String {
        match (self.stage, self.object) {
            (Stage::Request, _) => {
                let (method, path) = self.name.split_once(' ').unwrap_or((self.name, ""));
                let info = Method::from_bytes(method.as_bytes()).ok().map(|method| {
                    let path = path.split('?').next().unwrap_or_default();
                    RequestInfo::parse(&method, path, &[])
                });
                match info.map(|info| info.resource).filter(|resource| !resource.is_empty()) {
                    Some(resource) => format!("{method} {resource}"),
                    None => method.to_owned(),
                }
            }
            (Stage::Write, Some(object)) => format!("{} {}", self.name, object.resource),
            (stage, _) => stage.key().to_owned(),
        }
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let mut all = vec![text("coracle.stage", self.stage.key())];
        if self.revision > 0 {
            all.push(number("coracle.revision", self.revision));
        }
        if self.uncertainty > 0 {
            all.push(number("coracle.uncertainty_ns", self.uncertainty));
        }
        if let Some(object) = self.object {
            about(object, &mut all);
        }
        match self.stage {
            Stage::Request => self.request(&mut all),
            Stage::Image => all.push(text("container.image.name", self.name)),
            Stage::Container => {
                all.push(text("k8s.container.name", self.name));
                // The first attempt is 1.
                let restarts = u64::from(self.code.saturating_sub(1));
                all.push(number("k8s.container.restart_count", restarts));
            }
            Stage::InitRun
            | Stage::PostStart
            | Stage::PreStop
            | Stage::Stop
            | Stage::CrashBackoff
            | Stage::Exit => all.push(text("k8s.container.name", self.name)),
            Stage::Write => {}
            _ if !self.name.is_empty() => all.push(text("coracle.name", self.name)),
            _ => {}
        }
        if self.failed {
            let http = matches!(self.stage, Stage::Request | Stage::Write) && self.code >= 400;
            all.push(text("error.type", &if http { self.code.to_string() } else { "_OTHER".to_owned() }));
        }
        all
    }

    fn request(&self, all: &mut Vec<KeyValue>) {
        let (method, path) = self.name.split_once(' ').unwrap_or((self.name, ""));
        all.push(text("http.request.method", method));
        all.push(text("url.scheme", "https"));
        all.push(text("url.path", path));
        if self.code > 0 {
            all.push(number("http.response.status_code", u64::from(self.code)));
        }
        if let Some(agent) = self.text.split('\n').nth(1).filter(|agent| !agent.is_empty()) {
            all.push(text("user_agent.original", agent));
        }
    }
}

fn about(object: &SpanObject, all: &mut Vec<KeyValue>) {
    if !object.namespace.is_empty() {
        all.push(text("k8s.namespace.name", &object.namespace));
    }
    if let Some((_, kind)) = NAMED.iter().find(|(resource, _)| *resource == object.resource) {
        all.push(text(&format!("k8s.{kind}.name"), &object.name));
        if !object.uid.is_none() {
            all.push(text(&format!("k8s.{kind}.uid"), &object.uid.to_string()));
        }
    }
}

fn kind(stage: Stage) -> SpanKind {
    match stage {
        Stage::Request => SpanKind::Server,
        Stage::Reconcile | Stage::Seen => SpanKind::Consumer,
        Stage::MutatingWebhook
        | Stage::ValidatingWebhook
        | Stage::ConversionWebhook
        | Stage::Aggregated
        | Stage::ImageResolve
        | Stage::ImageLayer
        | Stage::StatusReport => SpanKind::Client,
        _ => SpanKind::Internal,
    }
}

impl Source {
    fn resource(&self) -> Resource {
        let (service, instance, host) = match self.node.as_str() {
            "" => ("coracle-server", self.instance.as_str(), self.host.as_str()),
            node => ("coracle-agent", node, node),
        };
        let mut attributes = vec![text("service.name", service), text("service.instance.id", instance)];
        // Without it, Jaeger takes each span for one of another host, and what begins after its parent for a wrong clock.
        if !host.is_empty() {
            attributes.push(text("host.name", host));
        }
        if !self.cluster.is_empty() {
            attributes.push(text("k8s.cluster.uid", &self.cluster));
        }
        if !self.node.is_empty() {
            attributes.push(text("k8s.node.name", &self.node));
        }
        Resource { attributes }
    }
}

/// One request with the spans of several sources.
pub fn request(groups: impl IntoIterator<Item = (Source, Vec<Span>)>) -> ExportTraceServiceRequest {
    let of_source = |(source, spans): (Source, Vec<Span>)| ResourceSpans {
        resource: Some(source.resource()),
        scope_spans: vec![ScopeSpans {
            scope: Some(InstrumentationScope {
                name: "coracle".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            }),
            spans,
            schema_url: String::new(),
        }],
        schema_url: String::new(),
    };
    ExportTraceServiceRequest { resource_spans: groups.into_iter().map(of_source).collect() }
}

/// An attribute.
pub(in crate::explain) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, any_value::Value::IntValue(value.try_into().unwrap_or(i64::MAX)))
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}
