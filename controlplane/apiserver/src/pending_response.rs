//! A response that is being sent. It holds the flow-control seat of its request for a limited time, and is aborted if the
//! client does not read it.

use super::filters::flow_control::Permit;
use super::respond::{Body, BoxError};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// Size of the data frames passed to HTTP/2, its usual frame size. HTTP/2 accepts a whole frame once the client's window has
/// room for one byte, so larger frames would count as sent while they are not.
pub(super) const SLICE: usize = 16 * 1024;

/// How a response is sent; stored in the extensions of the response.
#[derive(Clone)]
pub enum SendPolicy {
    /// Holds the flow-control seat until it is sent, up to the seat timeout of the connection.
    HoldSeat(Arc<Permit>),
    /// Never times out: logs and container streams are read interactively.
    NoTimeout,
}

/// The client did not read in time.
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
    pub(super) body: Option<Body>,
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
    pub(super) fn new(body: Body, policy: Option<SendPolicy>, sliced: bool) -> Self {
        let begun = Instant::now();
        let (no_timeout, seat) = match policy {
            Some(SendPolicy::NoTimeout) => (true, None),
            Some(SendPolicy::HoldSeat(seat)) => (false, Some(seat)),
            None => (false, None),
        };
        Self { body: Some(body), rest: Bytes::new(), sliced, no_timeout, seat, begun, offered: Some(begun) }
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
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

    pub(super) fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.as_ref().is_some_and(|body| body.is_end_stream())
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let mut hint = self.body.as_ref().map(|body| body.size_hint()).unwrap_or_default();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// Checks a response: releases its seat after `seat`, and aborts it if it is not read for `unread`.
pub(super) fn check_progress(
    answer: &Mutex<PendingResponse>,
    now: Instant,
    seat: Duration,
    unread: Duration,
) -> SendState {
    // Locked: it is being sent.
    let Some(mut answer) = answer.try_lock() else { return SendState::Sending };
    let seat = if now >= answer.begun + seat { answer.seat.take() } else { None };
    let unread = answer.sliced && answer.offered.is_some_and(|since| now >= since + unread);
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
