//! Delivers what this node recorded to the API server, which keeps it and answers questions about it.
//!
//! Spans wait on disk until the server has acknowledged them; the oldest are deleted if there are too many. Nothing waits
//! for the delivery, and the delivery waits for the collector: an idle node does nothing.

use coracle_cli::causes;
use coracle_timeline::{CollectorHandle, KeepError, Position, Spooled};
use coracle_trace::{SpanId, Stage, Uid};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use parking_lot::Mutex;
use rand::RngExt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

use super::acknowledged::Acknowledged;
use super::clock::{self, ServerClock};

/// Identifies the spool and the end of a body in it.
pub const SPANS: &str = "coracle-spans";
/// Content type of blocks.
const BLOCKS: &str = "application/vnd.coracle.spans";
/// Largest body.
const BODY: usize = 256 << 10;
/// Largest answer that is read.
const ANSWER: usize = 64 << 10;
/// Pause between deliveries while there is something to deliver.
const BUSY: Duration = Duration::from_secs(1);
/// Longest pause after an error; it begins with the shortest and doubles.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Pause after an answer of a server that takes no spans.
const REST: Duration = Duration::from_secs(600);
/// An answer takes longer only if it never comes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Unknown uncertainty of the clock.
const UNKNOWN: u64 = u32::MAX as u64;

/// Why a body was not taken.
#[derive(Debug, thiserror::Error)]
enum DeliveryError {
    #[error("the spool cannot be read")]
    Spool(#[from] KeepError),
    #[error("the reader of the spool ended")]
    Reader(#[from] tokio::task::JoinError),
    #[error("request")]
    Request(#[from] http::Error),
    #[error(transparent)]
    Client(#[from] kube::Error),
    #[error("no answer in time")]
    Timeout,
    #[error("the server answered {0}")]
    Status(StatusCode),
}

/// What follows from an answer.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The server has everything up to there.
    Taken(Position),
    /// The server will never take this body.
    Rejected(Position),
    /// The server has too much to do.
    Later(Duration),
    /// The server takes no spans at all.
    Rest,
}

/// Counts of deliveries.
#[derive(Debug, Default)]
pub struct Delivered {
    /// Bytes that the server has acknowledged.
    pub bytes: AtomicU64,
    /// Bodies that it rejected.
    pub rejected: AtomicU64,
}

/// The task that delivers spans. Clones share their position.
#[derive(Clone)]
pub struct Delivery {
    client: kube::Client,
    path: Arc<str>,
    boot: Arc<str>,
    spool: CollectorHandle,
    clock: Arc<ServerClock>,
    acknowledged: Arc<Mutex<Acknowledged>>,
    counts: Arc<Delivered>,
    /// Notified of every block in the spool.
    appended: Arc<Notify>,
    /// Whether the server rejected the last body: it is logged once.
    is_rejected: Arc<AtomicBool>,
    /// The position after which spans were missing the last time: each loss is recorded once.
    missed_after: Arc<AtomicU64>,
}

impl Delivery {
    /// Delivers the spool in `dir` as the spans of a node.
    pub fn new(
        client: kube::Client,
        node: &str,
        (dir, spool): (&Path, CollectorHandle),
        clock: Arc<ServerClock>,
        counts: Arc<Delivered>,
    ) -> io::Result<Self> {
        let acknowledged = Acknowledged::open(&dir.join("acknowledged"), spool.keep().spool())?;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let appended = Arc::new(Notify::new());
        let notified = appended.clone();
        spool.on_append(move || notified.notify_one());
        Ok(Delivery {
            client,
            path: format!("/coracle/v1/spans/{node}").into(),
            boot: boot.trim().into(),
            spool,
            clock,
            acknowledged: Arc::new(Mutex::new(acknowledged)),
            counts,
            appended,
            is_rejected: Arc::default(),
            missed_after: Arc::new(AtomicU64::new(u64::MAX)),
        })
    }

    /// Delivers until the process ends.
    pub async fn run(self) {
        let mut backoff = BUSY;
        loop {
            let pause = match self.deliver().await {
                Ok(Some(pause)) => {
                    backoff = BUSY;
                    pause
                }
                Ok(None) => {
                    backoff = BUSY;
                    self.appended.notified().await;
                    continue;
                }
                Err(error) => {
                    tracing::debug!(error = %causes::chain(&error), "spans not delivered, will retry");
                    let pause = backoff.mul_f64(rand::rng().random_range(0.75..1.25));
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                    pause
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Delivers what is there, one body at most; the pause before the next, or `None` if there is nothing more.
    async fn deliver(&self) -> Result<Option<Duration>, DeliveryError> {
        let from = self.acknowledged.lock().position();
        let keep = self.spool.clone();
        let spooled = tokio::task::spawn_blocking(move || keep.keep().blocks_after(from, BODY)).await??;
        if spooled.skipped && self.missed_after.swap(from.0, Ordering::Relaxed) != from.0 {
            self.record_loss();
        }
        if spooled.bytes.is_empty() {
            return Ok(None);
        }
        let (size, next) = (spooled.bytes.len() as u64, spooled.next);
        let response = tokio::time::timeout(TIMEOUT, self.client.send(self.request(spooled)?)).await;
        let response = response.map_err(|_| DeliveryError::Timeout)??;
        let to = match verdict(response, next).await? {
            Verdict::Taken(to) => {
                self.counts.bytes.fetch_add(size, Ordering::Relaxed);
                self.is_rejected.store(false, Ordering::Relaxed);
                to
            }
            Verdict::Rejected(to) => {
                if !self.is_rejected.swap(true, Ordering::Relaxed) {
                    tracing::warn!(path = &*self.path, "the API server rejected spans of this node");
                }
                self.counts.rejected.fetch_add(1, Ordering::Relaxed);
                to
            }
            Verdict::Later(pause) => return Ok(Some(pause)),
            Verdict::Rest => return Ok(Some(REST)),
        };
        let delivery = self.clone();
        // The collector may hold the spool while it waits for the disk.
        tokio::task::spawn_blocking(move || delivery.acknowledge(to.max(next))).await??;
        Ok(Some(BUSY))
    }

    /// Notes that the server has everything before a position, which is its word: not more than there is.
    fn acknowledge(&self, to: Position) -> Result<(), KeepError> {
        let keep = self.spool.keep();
        let to = to.min(keep.end());
        self.acknowledged.lock().advance(to);
        keep.acknowledged(to)
    }

    fn request(&self, spooled: Spooled) -> Result<Request<Body>, http::Error> {
        let offset = self.clock.offset();
        let (nanos, uncertainty) = offset.map_or((0, UNKNOWN), |it| (it.nanos, it.uncertainty.min(UNKNOWN)));
        Request::post(&*self.path)
            .header(header::CONTENT_TYPE, BLOCKS)
            .header(SPANS, format!("{} {}", self.spool.keep().spool(), spooled.next.0))
            .header(clock::HEADER, format!("{nanos} {uncertainty} {}", self.boot))
            .body(Body::from(spooled.bytes))
    }

    /// Spans were deleted before the server got them: says so where they would have been.
    fn record_loss(&self) {
        let recorder = self.spool.recorder();
        let now = recorder.now();
        let text = "deleted before they were delivered";
        recorder.span_at(Stage::Lost, SpanId::NONE, (Uid::NONE, 0), now, now, text, 0);
    }
}

/// What an answer to a body that ends at `next` means.
async fn verdict(response: Response<Body>, next: Position) -> Result<Verdict, DeliveryError> {
    match response.status() {
        // A conflict: it has them already.
        StatusCode::OK | StatusCode::CONFLICT => Ok(Verdict::Taken(until(response).await.unwrap_or(next))),
        StatusCode::TOO_MANY_REQUESTS => {
            let after = response.headers().get(header::RETRY_AFTER);
            let seconds = after.and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(1u64);
            Ok(Verdict::Later(Duration::from_secs(seconds).clamp(BUSY, REST)))
        }
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNSUPPORTED_MEDIA_TYPE
        | StatusCode::UNPROCESSABLE_ENTITY => Ok(Verdict::Rejected(next)),
        // Another API server, or an older one.
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::NOT_FOUND
        | StatusCode::METHOD_NOT_ALLOWED
        | StatusCode::NOT_IMPLEMENTED => Ok(Verdict::Rest),
        other => Err(DeliveryError::Status(other)),
    }
}

/// `{"until": <sequence>}`.
async fn until(response: Response<Body>) -> Option<Position> {
    #[derive(serde::Deserialize)]
    struct Answer {
        until: u64,
    }
    let body = Limited::new(response.into_body(), ANSWER);
    let bytes = tokio::time::timeout(TIMEOUT, body.collect()).await.ok()?.ok()?.to_bytes();
    let answer: Answer = serde_json::from_slice(&bytes).ok()?;
    Some(Position(answer.until))
}

#[cfg(test)]
mod tests;
