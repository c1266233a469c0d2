//! How long a connection may be silent: clients that shake hands and say nothing, never finish the head of a request, or
//! are done are hung up on, and so are those that do not read what they asked for. Requests that are being served and streams
//! that have nothing to say are never cut here.

use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use super::delivery::{Answer, Pace, look_after};
use super::revocation::Entered;

/// How long a client may be silent, by what it has said so far; the defaults for heads and idle connections are those of
/// upstream's server.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// From the handshake to its first request, and from the first byte of a request to the end of its head.
    pub head: Duration,
    /// From the end of one request to the next.
    pub idle: Duration,
    /// While there is something of an answer to take and it takes nothing.
    pub unread: Duration,
    /// How long an answer that is being sent keeps the seat of its request: less than others wait for one.
    pub seat: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let (unread, seat) = (Duration::from_secs(30), Duration::from_secs(10));
        Self { head: Duration::from_secs(32), idle: Duration::from_secs(90), unread, seat }
    }
}

/// What ended a connection's time.
#[derive(Debug, PartialEq, Eq)]
pub enum Silence {
    /// There was no first request, or no end of a head: nothing is owed to this client.
    NoHead,
    /// No further request; the end of an answer may still be on its way to it.
    Idle,
    /// It does not read what it asked for.
    Unread,
}

/// How many answers of a connection may have been given up before the connection is: a client that forgets one does not lose
/// the others.
const GIVEN_UP: usize = 8;
/// Answers that are being sent are looked after so many times in the time that they may stay unread.
const CHECKS: u32 = 6;

struct State {
    requests: usize,
    deadline: Instant,
    /// Nothing but the deadline for heads counts: no request was made yet, or one has begun.
    begun: bool,
    /// When the answers are looked after next, while there are requests.
    check: Instant,
    answers: Vec<Weak<Mutex<Answer>>>,
    /// Since when nothing can be written.
    blocked: Option<Instant>,
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
        let now = Instant::now();
        let state = State {
            requests: 0,
            deadline: now + patience.head,
            begun: true,
            check: now + patience.unread,
            answers: Vec::new(),
            blocked: None,
        };
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

    /// Nothing can be written any more, or something can again.
    fn blocked(&self, blocked: bool) {
        self.state.lock().blocked = blocked.then(Instant::now);
    }

    /// Looks after the answers that are being sent. Whether the client reads so little of them that the connection is to end.
    fn is_neglected(&self, now: Instant) -> bool {
        let (answers, blocked) = {
            let state = self.state.lock();
            (state.answers.clone(), state.blocked)
        };
        let answers = answers.iter().filter_map(Weak::upgrade);
        let paces: Vec<Pace> = answers.map(|answer| look_after(&answer, now, &self.patience)).collect();
        let sending = paces.contains(&Pace::Sending);
        let next = if sending { self.patience.unread / CHECKS } else { self.patience.unread };
        self.state.lock().check = now + next;
        let blocked = blocked.is_some_and(|since| now >= since + self.patience.unread);
        let given_up = paces.iter().filter(|pace| **pace == Pace::GivenUp).count();
        (blocked && !paces.contains(&Pace::Free)) || given_up > GIVEN_UP
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
                let (due, silence) = {
                    let state = self.state.lock();
                    match (state.requests, state.begun) {
                        (0, true) => (state.deadline, Some(Silence::NoHead)),
                        (0, false) => (state.deadline, Some(Silence::Idle)),
                        _ => (state.check, None),
                    }
                };
                // An alarm that comes too early is set again then: busy connections do not touch it with every request.
                if due < alarm.deadline() {
                    alarm.as_mut().reset(due);
                }
                ready!(alarm.as_mut().poll(context));
                let now = Instant::now();
                match silence {
                    Some(_) if due > now => alarm.as_mut().reset(due),
                    Some(silence) => return Poll::Ready(Err(silence)),
                    None if due > now => alarm.as_mut().reset(due.min(now + self.patience.idle)),
                    None if self.is_neglected(now) => return Poll::Ready(Err(Silence::Unread)),
                    None => {}
                }
            }
        })
        .await
    }
}

/// A request that is being served.
pub struct Served(Attendance);

impl Served {
    /// Its answer is to be looked after.
    pub(super) fn sending(&self, answer: &Arc<Mutex<Answer>>) {
        let mut state = self.0.state.lock();
        state.check = state.check.min(Instant::now() + self.0.patience.unread / CHECKS);
        state.answers.push(Arc::downgrade(answer));
    }

    /// There is no more of it.
    pub(super) fn sent(&self, answer: &Arc<Mutex<Answer>>) {
        self.0.state.lock().answers.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(answer)));
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

/// A stream that tells when bytes come in and when they cannot go out, and breaks when its node is revoked.
pub struct Heard<S> {
    stream: S,
    attendance: Option<Attendance>,
    entered: Option<Entered>,
    blocked: bool,
}

impl<S> Heard<S> {
    /// Tells it to `attendance`, if there is one.
    pub fn new(stream: S, attendance: Option<Attendance>, entered: Option<Entered>) -> Self {
        Self { stream, attendance, entered, blocked: false }
    }

    fn check(&self) -> io::Result<()> {
        self.entered.as_ref().map_or(Ok(()), Entered::check)
    }

    /// Notes whether something could be written.
    fn noted<T>(&mut self, written: Poll<T>) -> Poll<T> {
        let blocked = written.is_pending();
        if let Some(attendance) = self.attendance.as_ref().filter(|_| blocked != self.blocked) {
            attendance.blocked(blocked);
            self.blocked = blocked;
        }
        written
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
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.noted(flushed)
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

    /// What ends a connection that never ends by itself.
    async fn silence(attendance: &Attendance) -> Silence {
        attendance.attend(pin!(pending::<()>())).await.unwrap_err()
    }

    #[tokio::test]
    async fn the_first_request_is_waited_for() {
        let attendance = Attendance::begin(Patience { head: SHORT, idle: LONG, ..Patience::default() });
        // Bytes alone do not help.
        attendance.heard();
        assert_eq!(silence(&attendance).await, Silence::NoHead);
    }

    #[tokio::test]
    async fn requests_in_progress_last_as_long_as_they_like() {
        let attendance = Attendance::begin(Patience { head: SHORT, idle: SHORT, ..Patience::default() });
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
        let attendance = Attendance::begin(Patience { head: SHORT, idle: LONG, ..Patience::default() });
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
}
