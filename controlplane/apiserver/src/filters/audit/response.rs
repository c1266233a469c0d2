//! Audits responses: short ones with their bodies, streams when they end.

use super::{AuditContext, CompleteOnDrop, Stage, latency};
use crate::non_resource::SecretBody;
use crate::respond::{self, Body, BoxError, Proxied};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use http::Response;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

/// The longest body that an event contains, the same as the longest body of a request.
const LONGEST: usize = 3 << 20;
/// The annotation of an event that had to leave something out, as upstream names it.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// When the event of an answer is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// Before it is sent.
    Before,
    /// When it is sent: the event of a slow request says how long that took. Before, if too many events wait for a sink.
    Sent,
    /// When it begins, and again when it ends: the request is long-running.
    Stream,
}

/// Records the answer to a request and returns it for the client.
pub async fn audited(
    mut context: AuditContext,
    recorded: Recorded,
    response: Response<Body>,
) -> Response<Body> {
    let code = response.status().as_u16();
    if recorded == Recorded::Stream && response.status().is_success() {
        context.response(code, None);
        context.record(Stage::ResponseStarted).await;
        let closing = CompleteOnDrop(Some(context));
        return response.map(|body| {
            let body = body.map_frame(move |frame| {
                let _ = &closing;
                frame
            });
            body.boxed_unsync()
        });
    }
    // A backend may answer without end, and its answer is not a statement of this server.
    let passed_on = response.extensions().get::<Proxied>().is_some();
    // Secrets of tokens are for those who asked, at every level.
    let is_secret = response.extensions().get::<SecretBody>().is_some();
    if passed_on || is_secret || !(context.wants_response() || code >= 400) {
        context.response(code, None);
        return complete(context, recorded, response).await;
    }
    let (parts, body) = response.into_parts();
    let (copy, body) = copied(body).await;
    if copy.is_none() {
        context.annotations.add(TRUNCATED, "true");
    }
    context.response(code, copy.as_deref());
    complete(context, recorded, Response::from_parts(parts, body)).await
}

/// Records that the answer is complete, now or when it is sent.
async fn complete(mut context: AuditContext, recorded: Recorded, response: Response<Body>) -> Response<Body> {
    if recorded == Recorded::Sent && context.may_be_late() {
        let sending = Sending { begun: Instant::now(), context };
        return response.map(|body| SentBody { body, _sending: sending }.boxed_unsync());
    }
    context.record(Stage::ResponseComplete).await;
    response
}

/// Records the event of an answer when that was handed over, or given up.
struct Sending {
    begun: Instant,
    context: AuditContext,
}

impl Drop for Sending {
    fn drop(&mut self) {
        latency::written(&self.context.annotations, self.begun.elapsed());
        self.context.record_later(Stage::ResponseComplete);
    }
}

/// The body of an answer whose event is not recorded yet.
struct SentBody {
    body: Body,
    _sending: Sending,
}

impl hyper::body::Body for SentBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A copy of a body unless it is too long or breaks off, and a body that sends the same.
async fn copied(mut body: Body) -> (Option<Bytes>, Body) {
    if body.size_hint().lower() > LONGEST as u64 {
        return (None, body);
    }
    let mut read: Vec<Bytes> = Vec::new();
    let mut length = 0;
    let mut broken = None;
    while length <= LONGEST && broken.is_none() {
        match body.frame().await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    length += data.len();
                    read.push(data);
                }
            }
            Some(Err(error)) => broken = Some(error),
            None => {
                let whole = joined(read);
                return (Some(whole.clone()), respond::full(whole));
            }
        }
    }
    let read = read.into_iter().map(|data| Ok::<_, BoxError>(Frame::data(data))).chain(broken.map(Err));
    let rest = stream::iter(read).chain(BodyStream::new(body));
    (None, StreamBody::new(rest).boxed_unsync())
}

/// Most bodies are one piece, which is not copied.
fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1 {
        return pieces.pop().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in &pieces {
        whole.extend_from_slice(piece);
    }
    whole.freeze()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::policy::Policy;
    use super::super::sink::BACKLOG;
    use super::super::{Audit, LATE};
    use super::*;
    use crate::request_info::RequestInfo;
    use coracle_client::user::User;
    use serde_json::{Value, json};
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::mpsc;

    /// A body of so many pieces of 1 MiB.
    fn pieces(count: usize) -> Body {
        let piece = |_| Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b' '; 1 << 20])));
        StreamBody::new(stream::iter((0..count).map(piece))).boxed_unsync()
    }

    async fn recorded(response: Response<Body>) -> (Arc<Value>, Response<Body>) {
        let (mut events, response) = audited_as(Recorded::Before, response).await;
        (events.recv().await.unwrap(), response)
    }

    async fn audited_as(
        recorded: Recorded,
        response: Response<Body>,
    ) -> (mpsc::Receiver<Arc<Value>>, Response<Body>) {
        let policy = json!({"rules": [{"level": "RequestResponse"}]});
        let mut audit = Audit::new(serde_json::from_value(policy).unwrap());
        let events = audit.sink();
        let info = RequestInfo { verb: "get".into(), is_resource: true, ..RequestInfo::default() };
        let (user, peer) = (User::new("ann", []), IpAddr::from([192, 0, 2, 7]));
        let context = audit.begin("id", &user, &info, "/", "", peer).unwrap();
        (events, audited(context, recorded, response).await)
    }

    #[tokio::test]
    async fn the_event_of_a_slow_answer_says_how_long_it_was_sent() {
        let answer = respond::json(200, &json!({"kind": "Pod"}));
        let (mut events, response) = audited_as(Recorded::Sent, answer).await;
        assert!(events.try_recv().is_err(), "it is not sent");
        assert_eq!(response.body().size_hint().exact(), Some(14));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), r#"{"kind":"Pod"}"#);
        let event = events.recv().await.unwrap();
        assert_eq!(
            (&event["stage"], &event["responseObject"]["kind"]),
            (&json!("ResponseComplete"), &json!("Pod"))
        );
        let time = event["annotations"]["apiserver.latency.k8s.io/response-write"].as_str().unwrap();
        assert!(time.ends_with('s'), "{time}");
        // Nobody waits for it any more.
        let (mut events, response) = audited_as(Recorded::Sent, Response::new(pieces(2))).await;
        drop(response);
        assert!(events.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_wait_when_too_many_events_wait_for_a_sink() {
        let mut audit = Audit::new(Policy::metadata());
        let mut events = audit.sink();
        let info = RequestInfo { verb: "get".into(), is_resource: true, ..RequestInfo::default() };
        let (user, peer) = (User::new("ann", []), IpAddr::from([192, 0, 2, 7]));
        let begin = || audit.begin("id", &user, &info, "/", "", peer).unwrap();
        let answer = || audited(begin(), Recorded::Sent, respond::json(200, &json!({})));
        for _ in 0..BACKLOG {
            begin().record(Stage::ResponseComplete).await;
        }
        for _ in 0..LATE {
            drop(answer().await);
        }
        let second = Duration::from_secs(1);
        let mut next = std::pin::pin!(answer());
        assert!(tokio::time::timeout(second, &mut next).await.is_err(), "nothing was written");
        for _ in 0..BACKLOG + LATE {
            tokio::time::timeout(second, events.recv()).await.unwrap().unwrap();
        }
        drop(next.await);
        assert!(events.try_recv().is_ok());
        // Those that waited are written, and others may be late again.
        let response = answer().await;
        assert!(events.try_recv().is_err(), "it is not sent");
        drop(response);
        assert!(events.try_recv().is_ok());
    }

    #[tokio::test]
    async fn a_long_answer_reaches_the_client_but_not_the_event() {
        let (event, response) = recorded(respond::json(200, &json!({"kind": "Pod"}))).await;
        assert_eq!((&event["responseObject"]["kind"], &event["annotations"]), (&json!("Pod"), &Value::Null));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), r#"{"kind":"Pod"}"#);
        for body in [pieces(5), respond::full(vec![b' '; 5 << 20])] {
            let (event, response) = recorded(Response::new(body)).await;
            assert_eq!(event["responseStatus"]["code"], 200);
            assert_eq!(event["annotations"][TRUNCATED], "true");
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), 5 << 20);
        }
    }

    #[tokio::test]
    async fn the_answer_of_a_backend_is_not_read() {
        let body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>()).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = http::StatusCode::BAD_GATEWAY;
        response.extensions_mut().insert(Proxied);
        let recorded = tokio::time::timeout(Duration::from_secs(60), recorded(response)).await;
        let (event, _) = recorded.unwrap();
        assert_eq!(event["responseStatus"], json!({"metadata": {}, "code": 502}));
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_does_so_for_the_client() {
        let frames = [Ok(Frame::data(Bytes::from_static(b"a"))), Err(BoxError::from("gone"))];
        let (copy, mut body) = copied(StreamBody::new(stream::iter(frames)).boxed_unsync()).await;
        assert_eq!(copy, None);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "gone");
    }
}
