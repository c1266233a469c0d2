//! An answer on its way to the client. It keeps the seat of its request while it is being sent, and is given up when the client
//! takes nothing of it: whoever asks and does not read keeps neither the seat nor the memory.

use super::attendance::{Patience, Served};
use super::filters::flow::Permit;
use super::respond::{Body, BoxError};
use bytes::Bytes;
use http::{Response, Version};
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

/// What HTTP/2 is given at a time, the usual size of its frames. It takes all of it once the client's window has room for one
/// byte, so that larger slices would count as sent while they are not.
const SLICE: usize = 16 * 1024;

/// What is special about the delivery of an answer. It is an extension of the response.
#[derive(Clone)]
pub enum Delivery {
    /// It keeps the right to run until it is sent, within limits.
    Seated(Arc<Permit>),
    /// It waits for its reader as long as that takes: logs and streams of containers are read by people.
    Unhurried,
}

/// Why the rest of an answer is not sent.
#[derive(Debug, thiserror::Error)]
#[error("the answer breaks off")]
pub struct BrokenOff(#[source] BoxError);

/// The client took nothing of an answer for too long.
#[derive(Debug, thiserror::Error)]
#[error("the client does not read")]
struct Unread;

/// What an answer was found at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// The client is to take something.
    Sending,
    /// There is nothing to send now, as in a quiet watch.
    Waiting,
    /// It may take as long as it likes.
    Free,
    /// Its client did not read. Nothing is left of it but its place in the connection.
    GivenUp,
}

/// An answer, for those who send it and those who look after it.
pub(super) struct Answer {
    body: Option<Body>,
    /// The end of a frame whose beginning was given out.
    rest: Bytes,
    /// Whether frames are given out in slices, and what happens to them tells how fast this answer is read.
    sliced: bool,
    unhurried: bool,
    seat: Option<Arc<Permit>>,
    begun: Instant,
    /// Since when the client has something to take; not known while there is nothing to send.
    offered: Option<Instant>,
}

impl Answer {
    fn new(body: Body, delivery: Option<Delivery>, sliced: bool) -> Self {
        let begun = Instant::now();
        let (unhurried, seat) = match delivery {
            Some(Delivery::Unhurried) => (true, None),
            Some(Delivery::Seated(seat)) => (false, Some(seat)),
            None => (false, None),
        };
        Self { body: Some(body), rest: Bytes::new(), sliced, unhurried, seat, begun, offered: Some(begun) }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.rest.is_empty() {
            let Some(body) = &mut self.body else { return Poll::Ready(Some(Err(Unread.into()))) };
            // While it is waited for, the client has taken everything.
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

/// Looks after an answer: its seat ends after a while, and so does an answer that is not read.
pub(super) fn look_after(answer: &Mutex<Answer>, now: Instant, patience: &Patience) -> Pace {
    // Whoever holds it is sending.
    let Some(mut answer) = answer.try_lock() else { return Pace::Sending };
    let seat = if now >= answer.begun + patience.seat { answer.seat.take() } else { None };
    let unread = answer.sliced && answer.offered.is_some_and(|since| now >= since + patience.unread);
    let mut given_up = (None, Bytes::new());
    if unread && !answer.unhurried {
        given_up = (answer.body.take(), std::mem::take(&mut answer.rest));
    }
    let pace = match &*answer {
        Answer { body: None, .. } => Pace::GivenUp,
        Answer { unhurried: true, .. } => Pace::Free,
        Answer { offered: None, seat: None, .. } => Pace::Waiting,
        _ => Pace::Sending,
    };
    // What ends with them may take locks of its own.
    drop(answer);
    drop((seat, given_up));
    pace
}

impl Served {
    /// The same answer, which counts as being served until it is sent or given up.
    pub fn until_sent(self, response: Response<Body>, version: Version) -> Response<Sending> {
        let (mut head, body) = response.into_parts();
        let delivery = head.extensions.remove::<Delivery>();
        // HTTP/1.1 sends one answer at a time: whether that is read is seen at the connection.
        let answer = Arc::new(Mutex::new(Answer::new(body, delivery, version == Version::HTTP_2)));
        self.sending(&answer);
        Response::from_parts(head, Sending { answer, served: self })
    }
}

/// The body of an answer.
pub struct Sending {
    answer: Arc<Mutex<Answer>>,
    served: Served,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.served.sent(&self.answer);
    }
}

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        self.answer.lock().poll(context).map_err(BrokenOff)
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
