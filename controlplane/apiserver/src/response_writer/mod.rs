//! Sends a response to the client. A response holds the flow-control seat of its request while it is being sent, for a
//! limited time. It is aborted if the client does not read it, so that slow clients hold neither a seat nor memory.

use super::filters::flow_control::Permit;
use super::idle_timeout::{ActiveRequest, Timeouts};
use super::respond::{Body, BoxError};
use bytes::Bytes;
use http::{Response, Version};
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

/// Size of the data frames passed to HTTP/2, its usual frame size. HTTP/2 accepts a whole frame once the client's window has
/// room for one byte, so larger frames would count as sent while they are not.
const SLICE: usize = 16 * 1024;

/// How a response is sent; stored in the extensions of the response.
#[derive(Clone)]
pub enum SendPolicy {
    /// Holds the flow-control seat until it is sent, up to [`Timeouts::seat`].
    HoldSeat(Arc<Permit>),
    /// Never times out: logs and container streams are read interactively.
    NoTimeout,
}

/// The rest of a response was not sent.
#[derive(Debug, thiserror::Error)]
#[error("the answer breaks off")]
pub struct ResponseAborted(#[source] BoxError);

/// The client did not read within [`Timeouts::unread`].
#[derive(Debug, thiserror::Error)]
#[error("the client does not read")]
struct WriteStalled;

/// State of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendState {
    /// Data is available to the client.
    Sending,
    /// No data is available, as in a quiet watch.
    Quiet,
    /// It has no timeout.
    NoTimeout,
    /// The client did not read; the body has been dropped.
    Aborted,
}

/// A response that is being sent; shared by its body and the connection timer.
pub(super) struct PendingResponse {
    body: Option<Body>,
    /// The rest of a frame that was partly sent.
    rest: Bytes,
    /// Whether frames are sliced, so that reads of this response can be observed (HTTP/2).
    sliced: bool,
    no_timeout: bool,
    seat: Option<Arc<Permit>>,
    begun: Instant,
    /// Since when data is available to the client; `None` while there is none.
    offered: Option<Instant>,
}

impl PendingResponse {
    fn new(body: Body, policy: Option<SendPolicy>, sliced: bool) -> Self {
        let begun = Instant::now();
        let (no_timeout, seat) = match policy {
            Some(SendPolicy::NoTimeout) => (true, None),
            Some(SendPolicy::HoldSeat(seat)) => (false, Some(seat)),
            None => (false, None),
        };
        Self { body: Some(body), rest: Bytes::new(), sliced, no_timeout, seat, begun, offered: Some(begun) }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.rest.is_empty() {
            let Some(body) = &mut self.body else { return Poll::Ready(Some(Err(WriteStalled.into()))) };
            // While the body is pending, the client has read everything.
            self.offered = None;
            let frame = ready!(Pin::new(body).poll_frame(context));
            self.offered = Some(Instant::now());
            match frame {
                Some(Ok(frame)) if self.sliced => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                frame => return Poll::Ready(frame),
            }
        } else {
            self.offered = Some(Instant::now());
        }
        let slice = self.rest.split_to(self.rest.len().min(SLICE));
        Poll::Ready(Some(Ok(Frame::data(slice))))
    }
}

/// Checks a response: releases its seat after a while, and aborts it if it is not read.
pub(super) fn check_progress(
    answer: &Mutex<PendingResponse>,
    now: Instant,
    timeouts: &Timeouts,
) -> SendState {
    // Locked: it is being sent.
    let Some(mut answer) = answer.try_lock() else { return SendState::Sending };
    let seat = if now >= answer.begun + timeouts.seat { answer.seat.take() } else { None };
    let unread = answer.sliced && answer.offered.is_some_and(|since| now >= since + timeouts.unread);
    let mut aborted = (None, Bytes::new());
    if unread && !answer.no_timeout {
        aborted = (answer.body.take(), std::mem::take(&mut answer.rest));
    }
    let state = match &*answer {
        PendingResponse { body: None, .. } => SendState::Aborted,
        PendingResponse { no_timeout: true, .. } => SendState::NoTimeout,
        PendingResponse { offered: None, seat: None, .. } => SendState::Quiet,
        _ => SendState::Sending,
    };
    // Dropping them may take other locks.
    drop(answer);
    drop((seat, aborted));
    state
}

impl ActiveRequest {
    /// The same response; the request is active until it is sent or aborted.
    pub fn until_sent(self, response: Response<Body>, version: Version) -> Response<ResponseBody> {
        let (mut head, body) = response.into_parts();
        let policy = head.extensions.remove::<SendPolicy>();
        // HTTP/1.1 sends one response at a time: the connection shows whether it is read.
        let answer = Arc::new(Mutex::new(PendingResponse::new(body, policy, version == Version::HTTP_2)));
        self.track(&answer);
        Response::from_parts(head, ResponseBody { answer, served: self })
    }
}

/// The body of a response that is being sent.
pub struct ResponseBody {
    answer: Arc<Mutex<PendingResponse>>,
    served: ActiveRequest,
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.served.untrack(&self.answer);
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseAborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseAborted>>> {
        self.answer.lock().poll(context).map_err(ResponseAborted)
    }

    fn is_end_stream(&self) -> bool {
        let answer = self.answer.lock();
        answer.rest.is_empty() && answer.body.as_ref().is_some_and(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let answer = self.answer.lock();
        let rest = answer.rest.len() as u64;
        let mut hint = answer.body.as_ref().map(|body| body.size_hint()).unwrap_or_default();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests;
