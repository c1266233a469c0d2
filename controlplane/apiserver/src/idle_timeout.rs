//! Timeouts of client connections: no request after the handshake, an incomplete request head, an idle keep-alive
//! connection, and a client that does not read its response. Requests in progress and quiet streams do not time out
//! here.

use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use super::pending_response::{PendingResponse, SendState, check_progress};
use super::revocation::TrackedConnection;

/// Timeouts of a connection. The defaults for request heads and idle connections are those of upstream.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// From the handshake to the first request, and from the first byte of a request to the end of its head.
    pub head: Duration,
    /// From the end of one request to the next.
    pub idle: Duration,
    /// While response data is available and the client reads nothing.
    pub unread: Duration,
    /// How long a response may hold the flow-control seat of its request; less than the queue timeout.
    pub seat: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let (unread, seat) = (Duration::from_secs(30), Duration::from_secs(10));
        Self { head: Duration::from_secs(32), idle: Duration::from_secs(90), unread, seat }
    }
}

/// Why a connection timed out.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectionTimeout {
    /// No first request, or an incomplete request head. The connection can be dropped at once.
    NoHead,
    /// No further request. The end of the last response may still have to be flushed.
    Idle,
    /// The client does not read its responses.
    WriteStalled,
}

/// Aborted responses that a connection may have before it is closed, so that one abandoned stream does not end the others.
const MAX_ABORTED: usize = 8;
/// Number of progress checks per [`Timeouts::unread`].
const CHECKS_PER_TIMEOUT: u32 = 6;

struct State {
    requests: usize,
    deadline: Instant,
    /// Waiting for a request head: the first request, or one that has begun.
    begun: bool,
    /// Time of the next progress check, while there are requests.
    check: Instant,
    answers: Vec<Weak<Mutex<PendingResponse>>>,
    /// Since when writes to the socket block.
    blocked: Option<Instant>,
}

/// Tracks the requests and responses of one connection.
#[derive(Clone)]
pub struct ConnectionTimer {
    timeouts: Timeouts,
    state: Arc<Mutex<State>>,
}

impl ConnectionTimer {
    /// Starts after the TLS handshake.
    pub fn begin(timeouts: Timeouts) -> Self {
        let now = Instant::now();
        let state = State {
            requests: 0,
            deadline: now + timeouts.head,
            begun: true,
            check: now + timeouts.unread,
            answers: Vec::new(),
            blocked: None,
        };
        Self { timeouts, state: Arc::new(Mutex::new(state)) }
    }

    /// Registers a request; it is active until the returned value is dropped.
    pub fn request(&self) -> ActiveRequest {
        self.state.lock().requests += 1;
        ActiveRequest(self.clone())
    }

    /// Drives a connection until it ends (`Some`), or until a request is being served or the connection is idle (`None`).
    /// Used on shutdown: a client that has just connected, or has begun a request, may still complete it.
    pub async fn drive_until_request<C: Future>(&self, mut connection: Pin<&mut C>) -> Option<C::Output> {
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

    /// Called when bytes are received. Used for HTTP/1.1 only, where they begin a request; HTTP/2 also receives pings.
    fn on_read(&self) {
        let mut state = self.state.lock();
        if state.requests == 0 && !state.begun {
            state.begun = true;
            state.deadline = state.deadline.min(Instant::now() + self.timeouts.head);
        }
    }

    /// Called when writes begin or cease to block.
    fn set_blocked(&self, blocked: bool) {
        self.state.lock().blocked = blocked.then(Instant::now);
    }

    /// Checks the progress of all responses; true if the connection is to be closed because the client does not read.
    fn is_stalled(&self, now: Instant) -> bool {
        let (answers, blocked) = {
            let state = self.state.lock();
            (state.answers.clone(), state.blocked)
        };
        let answers = answers.iter().filter_map(Weak::upgrade);
        let Timeouts { seat, unread, .. } = self.timeouts;
        let states: Vec<SendState> =
            answers.map(|answer| check_progress(&answer, now, seat, unread)).collect();
        let sending = states.contains(&SendState::Sending);
        let next = if sending { self.timeouts.unread / CHECKS_PER_TIMEOUT } else { self.timeouts.unread };
        self.state.lock().check = now + next;
        let blocked = blocked.is_some_and(|since| now >= since + self.timeouts.unread);
        let aborted = states.iter().filter(|state| **state == SendState::Aborted).count();
        (blocked && !states.contains(&SendState::NoTimeout)) || aborted > MAX_ABORTED
    }

    /// Drives a connection until it ends or times out.
    pub async fn drive<C: Future>(
        &self,
        mut connection: Pin<&mut C>,
    ) -> Result<C::Output, ConnectionTimeout> {
        let first = self.state.lock().deadline;
        let mut alarm = pin!(sleep_until(first));
        poll_fn(|context| {
            if let Poll::Ready(output) = connection.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            loop {
                let (due, timeout) = {
                    let state = self.state.lock();
                    match (state.requests, state.begun) {
                        (0, true) => (state.deadline, Some(ConnectionTimeout::NoHead)),
                        (0, false) => (state.deadline, Some(ConnectionTimeout::Idle)),
                        _ => (state.check, None),
                    }
                };
                // The timer is not reset with every request: if it fires early, it is set again.
                if due < alarm.deadline() {
                    alarm.as_mut().reset(due);
                }
                ready!(alarm.as_mut().poll(context));
                let now = Instant::now();
                match timeout {
                    Some(_) if due > now => alarm.as_mut().reset(due),
                    Some(timeout) => return Poll::Ready(Err(timeout)),
                    None if due > now => alarm.as_mut().reset(due.min(now + self.timeouts.idle)),
                    None if self.is_stalled(now) => return Poll::Ready(Err(ConnectionTimeout::WriteStalled)),
                    None => {}
                }
            }
        })
        .await
    }
}

/// A request that is being served.
pub struct ActiveRequest(ConnectionTimer);

impl ActiveRequest {
    /// Starts progress checks of its response.
    pub(super) fn track(&self, answer: &Arc<Mutex<PendingResponse>>) {
        let mut state = self.0.state.lock();
        state.check = state.check.min(Instant::now() + self.0.timeouts.unread / CHECKS_PER_TIMEOUT);
        state.answers.push(Arc::downgrade(answer));
    }

    /// Ends progress checks of its response.
    pub(super) fn untrack(&self, answer: &Arc<Mutex<PendingResponse>>) {
        self.0.state.lock().answers.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(answer)));
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests -= 1;
        state.begun = false;
        state.deadline = Instant::now() + self.0.timeouts.idle;
    }
}

/// A stream that reports reads and blocked writes to a [`ConnectionTimer`], and fails when its node is revoked.
pub struct TimedStream<S> {
    stream: S,
    timer: Option<ConnectionTimer>,
    tracked: Option<TrackedConnection>,
    blocked: bool,
}

impl<S> TimedStream<S> {
    /// Reports to `timer`, if there is one.
    pub fn new(stream: S, timer: Option<ConnectionTimer>, tracked: Option<TrackedConnection>) -> Self {
        Self { stream, timer, tracked, blocked: false }
    }

    fn check(&self) -> io::Result<()> {
        self.tracked.as_ref().map_or(Ok(()), TrackedConnection::check)
    }

    /// Reports whether a write blocked.
    fn record_write<T>(&mut self, written: Poll<T>) -> Poll<T> {
        let blocked = written.is_pending();
        if let Some(timer) = self.timer.as_ref().filter(|_| blocked != self.blocked) {
            timer.set_blocked(blocked);
            self.blocked = blocked;
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let (Poll::Pending, Some(tracked)) = (&read, &mut self.tracked) {
            return tracked.poll_revoked(context);
        }
        if let Some(timer) = self.timer.as_ref().filter(|_| buffer.filled().len() > before) {
            timer.on_read();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.record_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.record_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.record_write(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::future::pending;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(600);

    /// The timeout of a connection that never ends by itself.
    async fn timeout_of(timer: &ConnectionTimer) -> ConnectionTimeout {
        timer.drive(pin!(pending::<()>())).await.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_request_is_waited_for() {
        let timer = ConnectionTimer::begin(Timeouts { head: SHORT, idle: LONG, ..Timeouts::default() });
        // Bytes alone do not help.
        timer.on_read();
        assert_eq!(timeout_of(&timer).await, ConnectionTimeout::NoHead);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_in_progress_last_as_long_as_they_like() {
        let timer = ConnectionTimer::begin(Timeouts { head: SHORT, idle: SHORT, ..Timeouts::default() });
        let since = Instant::now();
        let requests = [timer.request(), timer.request()];
        for (served, time) in requests.into_iter().zip([1, 10]) {
            tokio::spawn(async move {
                tokio::time::sleep(SHORT * time).await;
                drop(served);
            });
        }
        assert_eq!(timeout_of(&timer).await, ConnectionTimeout::Idle);
        assert!(since.elapsed() >= SHORT * 11, "{:?}", since.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_is_never_finished_ends_before_an_idle_connection_would() {
        let timer = ConnectionTimer::begin(Timeouts { head: SHORT, idle: LONG, ..Timeouts::default() });
        drop(timer.request());
        let reader = timer.clone();
        let connection = async move {
            tokio::time::sleep(SHORT).await;
            reader.on_read();
            pending::<()>().await;
        };
        let ended = tokio::time::timeout(LONG / 10, timer.drive(pin!(connection))).await;
        assert_eq!(ended.unwrap(), Err(ConnectionTimeout::NoHead));
    }
}
