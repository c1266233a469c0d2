//! What is noted about a request while it is served: its id, span, metrics and audit event.

use super::filters::audit::response::{Recorded, audited};
use super::filters::audit::{AuditContext, latency};
use super::metrics::requests::Timer;
use super::pretty;
use super::request_body::RequestBody;
use super::request_info::RequestInfo;
use super::respond::Body;
use super::slow::{SlowLog, SlowRequest};
use coracle_client::user::User;
use coracle_trace::{Recorder, RequestSpan, TraceContext};
use http::header::{HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, Request, Response, Uri};
use std::time::{SystemTime, UNIX_EPOCH};

/// Clients may choose the id that the audit log has.
const AUDIT_ID: &str = "audit-id";
/// With the value `1`, the request of a node that compares its clock; the answer has the times of both ends of the request.
const CLOCK: &str = "coracle-clock";
/// The longest id of a client.
const LONGEST_ID: usize = 64;

/// A request while it is served.
pub(super) struct RequestTrace {
    pub id: String,
    pub span: RequestSpan,
    /// The audit event, and whether the request is long-running.
    pub audit: Option<(AuditContext, bool)>,
    pub timer: Option<Timer>,
    /// Whether it changes objects whose writes are recorded.
    pub is_recorded: bool,
    user: String,
    method: Method,
    uri: Uri,
    agent: Option<HeaderValue>,
    /// When it came, in nanoseconds of unix time, if the client asks for it.
    arrived: Option<u128>,
}

impl RequestTrace {
    pub fn begin(recorder: Recorder, request: &Request<RequestBody>) -> Self {
        let headers = request.headers();
        let arrived = (header(headers, CLOCK) == Some("1")).then(unix_nanos);
        let id = match header(headers, AUDIT_ID).filter(|id| is_audit_id(id)) {
            Some(id) => id.to_owned(),
            None => uuid::Uuid::new_v4().to_string(),
        };
        let remote = header(headers, TraceContext::HEADER).and_then(TraceContext::parse);
        let writes = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let mut span = recorder.request(remote, writes);
        span.about(&id, request.method().as_str(), request.uri().path());
        Self {
            id,
            span,
            audit: None,
            timer: None,
            is_recorded: false,
            user: String::new(),
            method: request.method().clone(),
            uri: request.uri().clone(),
            agent: headers.get(USER_AGENT).cloned(),
            arrived,
        }
    }

    /// Whether the client is a person, see [`pretty::wanted`].
    pub fn wants_pretty(&self) -> bool {
        pretty::wanted(&query(&self.uri), text(self.agent.as_ref()))
    }

    /// The user is known.
    pub fn authenticated(&mut self, user: &User) {
        self.span.who(&user.name, text(self.agent.as_ref()));
        self.user.clone_from(&user.name);
    }

    /// Ends the span, counts and logs the request, and records its answer in the audit log.
    pub async fn answered(self, response: Response<Body>, slow: &SlowLog) -> Response<Body> {
        let code = response.status().as_u16();
        let times = self.span.finish(code);
        if let Some(mut timer) = self.timer {
            timer.answered(code, times.total, times.webhooks + times.queued);
        }
        slow.check(&times, || {
            let info = RequestInfo::parse(&self.method, self.uri.path(), &query(&self.uri));
            let agent = text(self.agent.as_ref());
            let request = SlowRequest { id: &self.id, info, user: &self.user, agent, code };
            Some(request).filter(|request| !request.info.long_running())
        });
        let mut response = match self.audit {
            Some((audit, long)) => {
                let recorded = match long {
                    true => Recorded::Stream,
                    false if latency::annotate(&audit.annotations, &times) => Recorded::Sent,
                    false => Recorded::Before,
                };
                audited(audit, recorded, response).await
            }
            None => response,
        };
        let headers = response.headers_mut();
        if let Ok(value) = self.id.parse() {
            headers.insert(AUDIT_ID, value);
        }
        if let Some(arrived) = self.arrived
            && let Ok(value) = format!("{arrived} {}", unix_nanos()).parse()
        {
            headers.insert(CLOCK, value);
        }
        response
    }
}

fn query(uri: &Uri) -> Vec<(String, String)> {
    form_urlencoded::parse(uri.query().unwrap_or("").as_bytes()).into_owned().collect()
}

/// A header that is text.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn text(value: Option<&HeaderValue>) -> &str {
    value.and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn is_audit_id(id: &str) -> bool {
    (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn unix_nanos() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_clients_are_short_and_visible() {
        for (id, taken) in [
            ("0f3c3f0a-7d9f-4a5b-8a54-0d7b6a1d0c11", true),
            ("build/42", true),
            ("", false),
            ("two words", false),
            ("é", false),
            ("line\n", false),
        ] {
            assert_eq!(is_audit_id(id), taken, "{id:?}");
        }
        assert!(is_audit_id(&"x".repeat(64)) && !is_audit_id(&"x".repeat(65)));
    }
}
