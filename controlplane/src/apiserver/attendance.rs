//! How long a connection may be silent: clients that shake hands and say nothing, never finish the head of a request, or
//! are done are hung up on. Requests and streams in progress are never cut here.

use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use super::respond::{Body, BoxError};
use super::revocation::Entered;

/// How long a client may be silent, by what it has said so far; the defaults are those of upstream's server.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// From the handshake to its first request, and from the first byte of a request to the end of its head.
    pub head: Duration,
    /// From the end of one request to the next.
    pub idle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { head: Duration::from_secs(32), idle: Duration::from_secs(90) }
    }
}

/// What ended a connection's time.
#[derive(Debug, PartialEq, Eq)]
pub enum Silence {
    /// There was no first request, or no end of a head: nothing is owed to this client.
    NoHead,
    /// No further request; the end of an answer may still be on its way to it.
    Idle,
}

struct State {
    requests: usize,
    deadline: Instant,
    /// Nothing but the deadline for heads counts: no request was made yet, or one has begun.
    begun: bool,
}

/// Counts the requests of one connection.
#[derive(Clone)]
pub struct Attendance {
    patience: Patience,
    state: Arc<Mutex<State>>,
}

impl Attendance {
    /// Begins with the handshake's end.
    pub fn begin(patience: Patience) -> Self {
        let state = State { requests: 0, deadline: Instant::now() + patience.head, begun: true };
        Self { patience, state: Arc::new(Mutex::new(state)) }
    }

    /// A request is there; it lasts until what is returned is dropped.
    pub fn request(&self) -> Served {
        self.state.lock().requests += 1;
        Served(self.clone())
    }

    /// Drives a connection until its end, which is returned, or until its client owes no request: one that has made none
    /// yet does, and one that has begun to say it.
    pub async fn hear<C: Future>(&self, mut connection: Pin<&mut C>) -> Option<C::Output> {
        let owed = || {
            let state = self.state.lock();
            state.begun && state.requests == 0
        };
        poll_fn(|context| {
            if !owed() {
                return Poll::Ready(None);
            }
            match connection.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if owed() => Poll::Pending,
                Poll::Pending => Poll::Ready(None),
            }
        })
        .await
    }

    /// A byte came in. Only HTTP/1.1 tells by it that a request begins: HTTP/2 answers pings.
    fn heard(&self) {
        let mut state = self.state.lock();
        if state.requests == 0 && !state.begun {
            state.begun = true;
            state.deadline = state.deadline.min(Instant::now() + self.patience.head);
        }
    }

    /// Drives a connection until it ends, or until its client was silent for too long.
    pub async fn attend<C: Future>(&self, mut connection: Pin<&mut C>) -> Result<C::Output, Silence> {
        let first = self.state.lock().deadline;
        let mut alarm = pin!(sleep_until(first));
        poll_fn(|context| {
            if let Poll::Ready(output) = connection.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            loop {
                let (deadline, silence) = {
                    let state = self.state.lock();
                    let silence = if state.begun { Silence::NoHead } else { Silence::Idle };
                    (if state.requests == 0 { Some(state.deadline) } else { None }, silence)
                };
                // An alarm that comes too early is set again then: busy connections do not touch it with every request.
                if let Some(deadline) = deadline.filter(|deadline| *deadline < alarm.deadline()) {
                    alarm.as_mut().reset(deadline);
                }
                ready!(alarm.as_mut().poll(context));
                let now = Instant::now();
                match deadline {
                    Some(deadline) if deadline <= now => return Poll::Ready(Err(silence)),
                    Some(deadline) => alarm.as_mut().reset(deadline),
                    None => alarm.as_mut().reset(now + self.patience.idle),
                }
            }
        })
        .await
    }
}

/// A request that is being served.
pub struct Served(Attendance);

impl Served {
    /// The same answer, which counts as being served until it is sent or given up.
    pub fn until_sent(self, response: Response<Body>) -> Response<Sending> {
        response.map(|body| Sending { body, _served: self })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests -= 1;
        state.begun = false;
        state.deadline = Instant::now() + self.0.patience.idle;
    }
}

/// Why the rest of an answer is not sent.
#[derive(Debug, thiserror::Error)]
#[error("the answer breaks off")]
pub struct BrokenOff(#[source] BoxError);

/// The body of an answer.
pub struct Sending {
    body: Body,
    _served: Served,
}

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        Pin::new(&mut self.body).poll_frame(context).map_err(BrokenOff)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that tells when bytes come in, and breaks when its node is revoked.
pub struct Heard<S> {
    stream: S,
    attendance: Option<Attendance>,
    entered: Option<Entered>,
}

impl<S> Heard<S> {
    /// Tells it to `attendance`, if there is one.
    pub fn new(stream: S, attendance: Option<Attendance>, entered: Option<Entered>) -> Self {
        Self { stream, attendance, entered }
    }

    fn check(&self) -> io::Result<()> {
        self.entered.as_ref().map_or(Ok(()), Entered::check)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let (Poll::Pending, Some(entered)) = (&read, &mut self.entered) {
            return entered.poll_over(context);
        }
        if let Some(attendance) = self.attendance.as_ref().filter(|_| buffer.filled().len() > before) {
            attendance.heard();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http_body::Body as _;
    use http_body_util::BodyExt;
    use std::future::pending;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(600);

    /// What ends a connection that never ends by itself.
    async fn silence(attendance: &Attendance) -> Silence {
        attendance.attend(pin!(pending::<()>())).await.unwrap_err()
    }

    #[tokio::test]
    async fn the_first_request_is_waited_for() {
        let attendance = Attendance::begin(Patience { head: SHORT, idle: LONG });
        // Bytes alone do not help.
        attendance.heard();
        assert_eq!(silence(&attendance).await, Silence::NoHead);
    }

    #[tokio::test]
    async fn requests_in_progress_last_as_long_as_they_like() {
        let attendance = Attendance::begin(Patience { head: SHORT, idle: SHORT });
        let since = Instant::now();
        let requests = [attendance.request(), attendance.request()];
        for (served, time) in requests.into_iter().zip([1, 10]) {
            tokio::spawn(async move {
                tokio::time::sleep(SHORT * time).await;
                drop(served);
            });
        }
        assert_eq!(silence(&attendance).await, Silence::Idle);
        assert!(since.elapsed() >= SHORT * 11, "{:?}", since.elapsed());
    }

    #[tokio::test]
    async fn a_head_that_is_never_finished_ends_before_an_idle_connection_would() {
        let attendance = Attendance::begin(Patience { head: SHORT, idle: LONG });
        drop(attendance.request());
        let heard = attendance.clone();
        let connection = async move {
            tokio::time::sleep(SHORT).await;
            heard.heard();
            pending::<()>().await;
        };
        let ended = tokio::time::timeout(LONG / 10, attendance.attend(pin!(connection))).await;
        assert_eq!(ended.unwrap(), Err(Silence::NoHead));
    }

    #[tokio::test]
    async fn an_answer_counts_until_it_is_sent() {
        let attendance = Attendance::begin(Patience::default());
        let answer = attendance.request().until_sent(Response::new(super::super::respond::full("x")));
        assert_eq!(answer.body().size_hint().exact(), Some(1));
        assert_eq!(attendance.state.lock().requests, 1);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!((body.as_ref(), attendance.state.lock().requests), (&b"x"[..], 0));
    }
}
