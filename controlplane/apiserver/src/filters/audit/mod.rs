//! Audit logging: a policy sets the level of each request.

// The audit policy.
pub mod policy;
// Audit of responses.
pub mod response;
// Where the time of slow requests went.
pub mod latency;
// The log file, with rotation.
pub mod log;
// The webhook backend.
pub mod webhook;
// The queues of both.
mod sink;

use crate::decode;
use crate::filters::impersonate::Impersonated;
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use bytes::Bytes;
use coracle_client::audit_annotations::AuditAnnotations;
use coracle_client::user::User;
use coracle_fields::meta::{PartialObjectMetadata, Status};
use coracle_fields::{Schema as _, make};
use coracle_proto::status::ApiError;
use parking_lot::Mutex;
use policy::{AuditConfig, Level, Policy};
use serde::Deserialize;
use serde_json::{Value, json};
use sink::{BACKLOG, Sink};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Slow requests whose events are recorded after their answers; beyond it events are recorded before.
const LATE: usize = 256;
/// The response status of a request that was given up before its answer was known.
const UNANSWERED: &str = "the request was given up before it was answered";

/// The stages of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The request is known.
    RequestReceived,
    /// The head of a long answer is sent.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
}

impl Stage {
    fn as_str(&self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
        }
    }
}

/// The filter.
pub struct Audit {
    policy: Policy,
    sinks: Vec<Sink>,
    late: Arc<Semaphore>,
}

impl Default for Audit {
    fn default() -> Self {
        Self::new(Policy::default())
    }
}

/// Receives the body of a request, with its content type, when a handler reads it.
#[derive(Debug, Clone, Default)]
pub struct CapturedBody(pub Arc<Mutex<Option<(String, Bytes)>>>);

/// The audit event of one request, while it is being served.
pub struct AuditContext {
    config: AuditConfig,
    /// Whether the request's body is the object that it is about.
    carries: bool,
    event: Value,
    sinks: Vec<Sink>,
    late: Arc<Semaphore>,
    /// Held from the answer until all sinks have taken its event.
    permit: Option<OwnedSemaphorePermit>,
    /// Whether there is nothing more to record.
    completed: bool,
    /// Where the request's body is put.
    pub capture: Option<CapturedBody>,
    /// Annotations of the event.
    pub annotations: AuditAnnotations,
}

impl Audit {
    /// With a policy; nothing is written down before a sink is added.
    pub fn new(policy: Policy) -> Self {
        Self { policy, sinks: Vec::new(), late: Arc::new(Semaphore::new(LATE)) }
    }

    /// Adds a sink and gives its end, for the task that writes. Requests wait while the sink is behind, except renewals of the
    /// Leases of servers and leaders.
    pub fn sink(&mut self) -> mpsc::Receiver<Arc<Value>> {
        self.add(Sink::new(true, BACKLOG))
    }

    /// Adds a sink that loses events while so many wait: nobody waits for it.
    pub fn lossy_sink(&mut self, backlog: usize) -> mpsc::Receiver<Arc<Value>> {
        self.add(Sink::new(false, backlog))
    }

    fn add(&mut self, (sink, events): (Sink, mpsc::Receiver<Arc<Value>>)) -> mpsc::Receiver<Arc<Value>> {
        self.sinks.push(sink);
        events
    }

    /// Whether events are written anywhere.
    pub fn has_sinks(&self) -> bool {
        !self.sinks.is_empty()
    }

    /// Starts the audit event of a request; `None` if the policy does not log it.
    pub fn begin(
        &self,
        id: &str,
        user: &User,
        info: &RequestInfo,
        uri: &str,
        agent: &str,
        address: IpAddr,
    ) -> Option<AuditContext> {
        if !self.has_sinks() {
            return None;
        }
        let config = self.policy.config(user, info);
        let level = config.level;
        if level == Level::None {
            return None;
        }
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": level.as_str(), "auditID": id,
            "requestURI": uri, "verb": info.verb.as_str(), "user": described(user), "sourceIPs": [address.to_string()],
            "userAgent": agent, "requestReceivedTimestamp": now(),
        });
        if info.is_resource {
            event["objectRef"] = reference(info);
        }
        // What goes through a proxy is somebody else's.
        let carries = info.is_resource
            && matches!(info.verb, Verb::Create | Verb::Update)
            && info.subresource != "proxy";
        let capture = (carries || level >= Level::Request).then(CapturedBody::default);
        Some(AuditContext {
            config,
            carries,
            event,
            sinks: self.sinks.clone(),
            late: self.late.clone(),
            permit: None,
            completed: false,
            capture,
            annotations: AuditAnnotations::recorded(),
        })
    }
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn described(user: &User) -> Value {
    // Who could not be made out is nobody.
    if user.name.is_empty() { json!({}) } else { user.info() }
}

fn reference(info: &RequestInfo) -> Value {
    let mut value = json!({});
    for (name, text) in [
        ("resource", &info.resource),
        ("namespace", &info.namespace),
        ("name", &info.name),
        ("apiGroup", &info.group),
        ("apiVersion", &info.version),
        ("subresource", &info.subresource),
    ] {
        if !text.is_empty() {
            value[name] = json!(text);
        }
    }
    value
}

/// What a reference says of the object in a request where the path does not; a name that is yet to be made up is not in
/// it, as upstream has it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Option<Meta>,
}

/// Fills in what the path left open.
fn complete(reference: &mut Value, object: Object) {
    let meta = object.metadata.unwrap_or_default();
    for (field, text) in [
        ("namespace", meta.namespace),
        ("name", meta.name),
        ("uid", meta.uid),
        ("resourceVersion", meta.resource_version),
    ] {
        if let Some(text) = text.filter(|text| !text.is_empty() && reference[field].is_null()) {
            reference[field] = json!(text);
        }
    }
}

/// Takes the managed fields out of an object, a list or a table.
fn drop_managed_fields(value: &mut Value) {
    PartialObjectMetadata::edit(value).metadata().managed_fields().clear();
    for item in value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        drop_managed_fields(item);
    }
    for row in value.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        row.get_mut("object").into_iter().for_each(drop_managed_fields);
    }
}

impl AuditContext {
    /// Whether the level includes response bodies.
    pub fn wants_response(&self) -> bool {
        self.config.level >= Level::RequestResponse
    }

    /// Sets the impersonated user, and the mode that allowed it.
    pub fn acting_as(&mut self, impersonated: &Impersonated) {
        self.event["impersonatedUser"] = described(&impersonated.user);
        if let Some(constraint) = impersonated.constraint {
            self.event["authenticationMetadata"] = json!({"impersonationConstraint": constraint});
        }
    }

    /// Sets the annotations of the authorization decision. An authorizer that failed decided nothing.
    pub fn decided(&mut self, decision: &Result<(), ApiError>) {
        let (decision, why) = match decision {
            Ok(()) => (Some("allow"), ""),
            Err(error) if error.code == 500 => (None, "internal error"),
            Err(error) => (Some("forbid"), error.message.as_str()),
        };
        if let Some(decision) = decision {
            self.annotations.add("authorization.k8s.io/decision", decision);
        }
        self.annotations.add("authorization.k8s.io/reason", why);
    }

    /// Sets the response of a request that was not authenticated.
    pub fn refused(&mut self, error: &ApiError, attempted: &str) {
        // Its only event is that of ResponseStarted.
        self.completed = true;
        self.event["responseStatus"] = json!({"metadata": {}, "status": "Failure", "reason": error.reason,
            "message": attempted, "code": error.code});
    }

    /// Sets the response status and, by level, the response body.
    pub fn response(&mut self, code: u16, body: Option<&[u8]>) {
        self.answer(code, body.and_then(|bytes| serde_json::from_slice(bytes).ok()));
    }

    /// The same for a body that is a tree already.
    pub fn answer(&mut self, code: u16, body: Option<Value>) {
        let mut status = make!(part Status { code });
        status.edit().metadata().section();
        let failure = body.as_ref().map(Status::of);
        if let Some(failure) = failure.filter(|v| v.kind() == "Status" && v.status() == "Failure") {
            let mut status = status.edit();
            status.status().set(failure.status());
            status.reason().set(failure.reason());
            status.message().set(failure.message());
        }
        self.event["responseStatus"] = status.into_value();
        if let Some(mut body) = body.filter(|_| self.wants_response()) {
            if self.config.omit_managed_fields {
                drop_managed_fields(&mut body);
            }
            self.event["responseObject"] = body;
        }
    }

    /// Writes the event of a stage, unless the policy leaves the stage out. Waits when the sinks are behind.
    pub async fn record(&mut self, stage: Stage) {
        if let Some(event) = self.at(stage) {
            for sink in &self.sinks {
                sink.take(event.clone()).await;
            }
        }
        // Not before all sinks have it: who gives up while it waits for one is recorded when it is dropped.
        self.completed |= stage == Stage::ResponseComplete;
    }

    /// The same without waiting: a sink that is behind does not get the event.
    pub fn record_now(&mut self, stage: Stage) {
        self.completed |= stage == Stage::ResponseComplete;
        let Some(event) = self.at(stage) else { return };
        for sink in &self.sinks {
            sink.take_now(event.clone());
        }
    }

    /// Whether the event may be recorded after the answer. Events of answers that are sent cannot make anybody wait: only so
    /// many of them are let through while a sink stands still.
    fn may_be_late(&mut self) -> bool {
        self.permit = self.late.clone().try_acquire_owned().ok();
        self.permit.is_some()
    }

    /// The same where nobody can wait: when the sinks are behind, the event is written by a task of its own.
    pub fn record_later(&mut self, stage: Stage) {
        self.completed |= stage == Stage::ResponseComplete;
        let Some(event) = self.at(stage) else { return };
        let permit = self.permit.take().map(Arc::new);
        for sink in self.sinks.clone() {
            if let Err(event) = sink.try_take(event.clone())
                && let Ok(runtime) = tokio::runtime::Handle::try_current()
            {
                let permit = permit.clone();
                runtime.spawn(async move {
                    sink.take(event).await;
                    drop(permit);
                });
            }
        }
    }

    /// What was sent: the whole of it, or only what it is called.
    fn sent(&mut self, content_type: &str, bytes: &[u8]) {
        let whole = self.config.level >= Level::Request;
        // Most bodies are JSON, of which the rest need not be kept to know the name.
        let quick = if whole { None } else { serde_json::from_slice::<Object>(bytes).ok() };
        let shown = if quick.is_some() { None } else { decode::for_audit(content_type, bytes) };
        if self.carries {
            let object = quick.or_else(|| Object::deserialize(shown.as_ref()?).ok());
            complete(&mut self.event["objectRef"], object.unwrap_or_default());
        }
        if let Some(mut object) = shown.filter(|_| whole) {
            if self.config.omit_managed_fields {
                drop_managed_fields(&mut object);
            }
            self.event["requestObject"] = object;
        }
    }

    fn at(&mut self, stage: Stage) -> Option<Arc<Value>> {
        if self.config.omit_stages.iter().any(|omitted| omitted == stage.as_str()) {
            return None;
        }
        let body = self.capture.as_ref().and_then(|capture| capture.0.lock().take());
        if let Some((content_type, bytes)) = body {
            self.sent(&content_type, &bytes);
        }
        let mut event = self.event.clone();
        let annotations = self.annotations.all();
        if !annotations.is_empty() {
            event["annotations"] = json!(annotations);
        }
        event["stage"] = json!(stage.as_str());
        event["stageTimestamp"] = json!(now());
        Some(Arc::new(event))
    }
}

/// Records `ResponseComplete` of a request that nobody waits for any more: its client went away, or its control loop was stopped.
/// What it asked for may have been done.
impl Drop for AuditContext {
    fn drop(&mut self) {
        if self.completed {
            return;
        }
        if self.event["responseStatus"].is_null() {
            self.event["responseStatus"] = json!({"metadata": {}, "message": UNANSWERED});
        }
        match self.may_be_late() {
            true => self.record_later(Stage::ResponseComplete),
            false => self.record_now(Stage::ResponseComplete),
        }
    }
}

/// Records `ResponseComplete` of a stream when it is dropped.
pub struct CompleteOnDrop(pub Option<AuditContext>);

impl Drop for CompleteOnDrop {
    fn drop(&mut self) {
        if let Some(context) = &mut self.0 {
            context.record_later(Stage::ResponseComplete);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_request_of_nobody_is_written_down() {
        let mut audit = Audit::new(Policy::metadata());
        let mut events = audit.sink();
        let info = RequestInfo { verb: "list".into(), is_resource: true, ..RequestInfo::default() };
        let peer = IpAddr::from([192, 0, 2, 7]);
        let mut context =
            audit.begin("id", &User::default(), &info, "/api/v1/pods?limit=1", "", peer).unwrap();
        context.refused(&ApiError::unauthorized(), "Authentication failed, attempted: bearer");
        context.record(Stage::ResponseStarted).await;
        let event = events.recv().await.unwrap();
        assert_eq!((&event["user"], &event["stage"]), (&json!({}), &json!("ResponseStarted")));
        assert_eq!(
            (&event["requestURI"], &event["sourceIPs"][0]),
            (&json!("/api/v1/pods?limit=1"), &json!("192.0.2.7"))
        );
        let status = json!({"metadata": {}, "status": "Failure", "reason": "Unauthorized",
            "message": "Authentication failed, attempted: bearer", "code": 401});
        assert_eq!(event["responseStatus"], status);
    }

    #[tokio::test]
    async fn requests_that_are_given_up_have_their_last_event() {
        let policy = json!({"rules": [{"level": "Metadata"}]});
        let mut audit = Audit::new(serde_json::from_value(policy).unwrap());
        let mut events = audit.sink();
        let info = RequestInfo { verb: "create".into(), is_resource: true, ..RequestInfo::default() };
        let (user, peer) = (User::new("ann", []), IpAddr::from([192, 0, 2, 7]));
        let begin = || audit.begin("id", &user, &info, "/", "", peer).unwrap();
        begin().record(Stage::RequestReceived).await;
        assert_eq!(events.try_recv().unwrap()["stage"], "RequestReceived");
        let event = events.try_recv().unwrap();
        assert_eq!(event["stage"], "ResponseComplete");
        assert_eq!(event["responseStatus"], json!({"metadata": {}, "message": UNANSWERED}));

        begin().record(Stage::ResponseComplete).await;
        assert!(events.try_recv().is_ok() && events.try_recv().is_err(), "it is recorded once");

        for _ in 0..BACKLOG {
            begin().record(Stage::ResponseComplete).await;
        }
        let mut last = begin();
        last.response(201, None);
        let recorded = last.record(Stage::ResponseComplete);
        assert!(tokio::time::timeout(Duration::from_millis(10), recorded).await.is_err(), "the sink is full");
        drop(last);
        for _ in 0..BACKLOG {
            events.recv().await.unwrap();
        }
        let event = tokio::time::timeout(Duration::from_secs(60), events.recv()).await.unwrap().unwrap();
        assert_eq!(event["responseStatus"]["code"], 201);
    }

    #[tokio::test]
    async fn what_is_made_is_named_after_the_object() {
        let body = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "managedFields": [1]}});
        let generated = json!({"metadata": {"generateName": "a-"}});
        let path = |verb: &str, name: &str, subresource: &str| RequestInfo {
            verb: verb.into(),
            is_resource: true,
            namespace: "ns".into(),
            name: name.into(),
            subresource: subresource.into(),
            ..RequestInfo::default()
        };
        let named = json!({"namespace": "ns", "name": "a", "uid": "u"});
        let kept = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}});
        let yaml = "metadata: {name: a, uid: u}";
        for (level, info, content_type, body, reference, object) in [
            ("Metadata", path("create", "", ""), "application/json", body.to_string(), &named, Value::Null),
            ("Metadata", path("create", "", ""), "application/yaml", yaml.into(), &named, Value::Null),
            ("Request", path("create", "", ""), "", body.to_string(), &named, kept.clone()),
            (
                "Metadata",
                path("create", "", ""),
                "",
                generated.to_string(),
                &json!({"namespace": "ns"}),
                Value::Null,
            ),
            (
                "Metadata",
                path("update", "b", ""),
                "",
                body.to_string(),
                &json!({"namespace": "ns", "name": "b", "uid": "u"}),
                Value::Null,
            ),
            (
                "Request",
                path("create", "b", "proxy"),
                "",
                body.to_string(),
                &json!({"namespace": "ns", "name": "b", "subresource": "proxy"}),
                kept,
            ),
            ("Metadata", path("create", "", ""), "", "no".into(), &json!({"namespace": "ns"}), Value::Null),
        ] {
            let policy = json!({"omitManagedFields": true, "rules": [{"level": level}]});
            let mut audit = Audit::new(serde_json::from_value(policy).unwrap());
            let mut events = audit.sink();
            let peer = IpAddr::from([192, 0, 2, 7]);
            let user = User::new("ann", []);
            let mut context = audit.begin("id", &user, &info, "/", "", peer).unwrap();
            let place = context.capture.clone().unwrap();
            *place.0.lock() = Some((content_type.to_owned(), Bytes::from(body.clone())));
            context.record(Stage::ResponseComplete).await;
            let event = events.recv().await.unwrap();
            assert_eq!((&event["objectRef"], &event["requestObject"]), (reference, &object), "{body}");
        }
    }
}
