//! Audit events of calls in this process. They are the events of the requests that would have the same effect, without the
//! annotations of authorization: parts of the server are not authorized.

use super::filters::audit::{Audit, AuditContext, Stage};
use super::request_info::RequestInfo;
use super::respond::JSON;
use super::verb::Verb;
use coracle_client::options::WriteOptions;
use coracle_client::pipeline::{Reply, Target};
use coracle_proto::status::ApiError;
use coracle_proto::version::BUILD;
use http::Method;
use std::net::{IpAddr, Ipv4Addr};

/// A call, with its audit event if it has one.
pub(crate) struct AuditedCall(Option<Box<Event>>);

struct Event {
    context: AuditContext,
    /// The options of the call; admission adds annotations to the event.
    options: WriteOptions,
}

impl AuditedCall {
    /// Begins the event of a call, if the policy asks for one.
    pub(crate) async fn begin(audit: &Audit, verb: &Verb, target: &Target<'_>) -> Self {
        if !audit.has_sinks() {
            return Self(None);
        }
        // Boxed: calls that are not audited do not carry it.
        Self(Box::pin(begun(audit, verb, target)).await)
    }

    /// The target of the call, with the options of its event.
    pub(crate) fn target<'a>(&'a self, target: &Target<'a>) -> Target<'a> {
        let options = self.0.as_ref().map_or(target.options, |event| &event.options);
        Target { options, ..*target }
    }

    /// Notes the body of the request, which is JSON; the last one counts. `body` is called only if the event needs it.
    pub(crate) fn sent(&self, body: impl FnOnce() -> String) {
        if let Some(capture) = self.0.as_ref().and_then(|event| event.context.capture.as_ref()) {
            *capture.0.lock() = Some((JSON.to_owned(), body().into()));
        }
    }

    /// Records how the call ended. `reply` is what answers a request that succeeds, and is called only if there is an event.
    pub(crate) async fn ended<T>(self, result: &Result<T, ApiError>, reply: impl FnOnce(&T) -> Reply) {
        let Some(event) = self.0 else { return };
        let mut context = event.context;
        match result {
            Ok(done) => {
                let reply = reply(done);
                let (Reply::Object(code, _) | Reply::Value(code, _)) = reply;
                let body = context.wants_response().then(|| reply.value());
                context.answer(code, body.filter(|body| !body.is_null()));
            }
            Err(error) => context.answer(error.code, Some(error.to_json())),
        }
        Box::pin(record(&mut context, Stage::ResponseComplete, &event.options)).await;
    }
}

/// Records a stage. Calls wait when the sinks are behind, except those that must not be late.
async fn record(context: &mut AuditContext, stage: Stage, options: &WriteOptions) {
    match options.skips_slow_audit {
        true => context.record_now(stage),
        false => context.record(stage).await,
    }
}

async fn begun(audit: &Audit, verb: &Verb, target: &Target<'_>) -> Option<Box<Event>> {
    let uri = path(target);
    let info = RequestInfo::parse(&method(verb), &uri, &[]);
    let id = uuid::Uuid::new_v4().to_string();
    // Field managers are named after the programs that have these parts in Kubernetes.
    let agent = format!("{}/{BUILD}", target.options.field_manager);
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut context = audit.begin(&id, target.user, &info, &uri, &agent, address)?;
    record(&mut context, Stage::RequestReceived, target.options).await;
    let options = WriteOptions { audit_annotations: context.annotations.clone(), ..target.options.clone() };
    Some(Box::new(Event { context, options }))
}

/// The method of the request that has the same effect.
fn method(verb: &Verb) -> Method {
    match verb {
        Verb::Create => Method::POST,
        Verb::Update => Method::PUT,
        Verb::Patch => Method::PATCH,
        Verb::Delete | Verb::DeleteCollection => Method::DELETE,
        _ => Method::GET,
    }
}

/// The path of that request.
fn path(target: &Target<'_>) -> String {
    let kind = target.kind;
    let mut path = match kind.group.as_str() {
        "" => format!("/api/{}", kind.version),
        group => format!("/apis/{group}/{}", kind.version),
    };
    let namespaces = if target.namespace.is_empty() { "" } else { "namespaces" };
    for segment in [namespaces, target.namespace, kind.plural.as_str(), target.name, target.subresource] {
        if !segment.is_empty() {
            path.extend(["/", segment]);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::filters::audit::policy::Policy;
    use coracle_client::user::User;
    use coracle_kinds::registry::index::Registry;
    use serde_json::{Value, json};
    use std::time::Duration;

    /// The events of a call that sends a ConfigMap and ends as given.
    async fn events(level: &str, name: &str, result: Result<Reply, ApiError>) -> Vec<Value> {
        let rules = json!([{"level": "None", "verbs": ["delete", "deletecollection"]}, {"level": level}]);
        let policy: Policy = serde_json::from_value(json!({"rules": rules})).unwrap();
        let mut audit = Audit::new(policy);
        let mut written = audit.sink();
        let user = User::service_account("kube-system", "root-ca-cert-publisher");
        let options = WriteOptions { field_manager: "manager".into(), ..WriteOptions::default() };
        let kind = Registry::builtin().resource("", "v1", "configmaps").unwrap();
        let (namespace, subresource) = ("prod", "");
        let target = Target {
            user: &user,
            kind: &kind,
            namespace,
            name,
            subresource,
            options: &options,
            applied: false,
        };
        for verb in [Verb::Delete, Verb::Create] {
            let call = AuditedCall::begin(&audit, &verb, &target).await;
            call.sent(|| json!({"metadata": {"name": "a", "uid": "u"}}).to_string());
            call.target(&target).options.audit_annotations.add("noted", "yes");
            call.ended(&result, Reply::clone).await;
        }
        let mut all = Vec::new();
        while let Ok(event) = written.try_recv() {
            all.push((*event).clone());
        }
        all
    }

    #[tokio::test]
    async fn calls_have_the_events_of_requests() {
        let answer = || Ok(Reply::Value(201, json!({"kind": "ConfigMap"})));
        let all = events("RequestResponse", "", answer()).await;
        let [received, complete] = &all[..] else { panic!("{all:?}") };
        assert_eq!(received["stage"], "RequestReceived");
        assert_eq!(received["auditID"], complete["auditID"]);
        assert_eq!(complete["stage"], "ResponseComplete");
        let user = "system:serviceaccount:kube-system:root-ca-cert-publisher";
        assert_eq!((&complete["user"]["username"], &complete["verb"]), (&json!(user), &json!("create")));
        assert_eq!(complete["requestURI"], "/api/v1/namespaces/prod/configmaps");
        assert_eq!(complete["sourceIPs"], json!(["127.0.0.1"]));
        assert_eq!(complete["userAgent"], format!("manager/{BUILD}"));
        let reference = json!({"resource": "configmaps", "namespace": "prod", "name": "a", "uid": "u", "apiVersion": "v1"});
        assert_eq!(complete["objectRef"], reference);
        assert_eq!(complete["annotations"], json!({"noted": "yes"}), "it is not authorized");
        assert_eq!(complete["responseStatus"]["code"], 201);
        assert_eq!(
            (&complete["requestObject"]["metadata"]["name"], &complete["responseObject"]["kind"]),
            (&json!("a"), &json!("ConfigMap"))
        );

        let all = events("Metadata", "", answer()).await;
        let complete = all.last().unwrap();
        assert_eq!(complete["objectRef"], reference);
        assert!(complete["requestObject"].is_null() && complete["responseObject"].is_null(), "{complete}");
        assert!(events("None", "", answer()).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_of_leases_do_not_wait_for_sinks() {
        let policy = json!({"rules": [{"level": "Metadata"}]});
        let mut audit = Audit::new(serde_json::from_value(policy).unwrap());
        let mut written = audit.sink();
        let (user, waits) = (User::server(), WriteOptions::default());
        let renews = WriteOptions { skips_slow_audit: true, ..WriteOptions::default() };
        let kind = Registry::builtin().resource("coordination.k8s.io", "v1", "leases").unwrap();
        let (namespace, name, subresource) = ("kube-system", "kube-scheduler", "");
        let target = |options| Target {
            user: &user,
            kind: &kind,
            namespace,
            name,
            subresource,
            options,
            applied: false,
        };
        let renewal = target(&renews);
        let renewed = async {
            // More events than wait for a sink.
            for _ in 0..3000 {
                let call = AuditedCall::begin(&audit, &Verb::Update, &renewal).await;
                call.ended(&Ok(Reply::Value(200, json!({}))), Reply::clone).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), renewed).await.expect("nobody takes the events");
        let other = target(&waits);
        let mut call = std::pin::pin!(AuditedCall::begin(&audit, &Verb::Update, &other));
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut call).await.is_err(), "others wait");
        assert!(written.recv().await.is_some());
        let _call = call.await;
    }

    #[tokio::test]
    async fn a_call_that_fails_says_why() {
        let all = events("Metadata", "a", Err(ApiError::not_found("", "configmaps", "a"))).await;
        let complete = all.last().unwrap();
        let status = &complete["responseStatus"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(404), &json!("NotFound")));
        assert_eq!(complete["requestURI"], "/api/v1/namespaces/prod/configmaps/a");
        assert!(complete["responseObject"].is_null(), "{complete}");
    }
}
