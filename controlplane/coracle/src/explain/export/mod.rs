//! Export of spans by OTLP: a thread takes blocks of the collector, resolves traces and parents, and sends batches. Nothing waits for it:
//! when the receiver is slow or away, spans are dropped and counted. Only a server that ends waits for it, for a short time.

// Traces, parents and objects of records.
mod resolve;
// Records to spans.
mod batch;
// gRPC and HTTP to the receiver.
mod client;

use super::counters::ExportCounters;
use super::options::OtlpOptions;
use super::otlp::Source;
use batch::request_of;
use client::{Client, Outcome};
use coracle_apiserver::objects::Objects;
use coracle_cli::supervise::Supervisor;
use coracle_proto::otlp::collector::trace::v1::ExportTraceServiceRequest;
use coracle_timeline::CollectorHandle;
use coracle_trace::SpanId;
use resolve::{Resolved, Resolver};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// Spans of one request.
const BATCH: usize = 512;
/// How long spans wait for others.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a batch is sent before it is dropped.
const TRIES: u32 = 5;
/// The longest pause that a receiver can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a server that ends waits for its last spans.
const FLUSH: Duration = Duration::from_secs(2);
/// How often failures are logged.
const QUIET: Duration = Duration::from_secs(60);

/// Dependencies of the export.
pub struct ExportParts {
    /// Where to.
    pub options: OtlpOptions,
    /// Where spans come from.
    pub collector: CollectorHandle,
    /// What tells this server from others.
    pub instance: String,
    /// Host name of this server.
    pub host: String,
    /// Has the namespace whose uid is that of the cluster.
    pub objects: Arc<Objects>,
    /// Counts what was sent and dropped.
    pub counters: Arc<ExportCounters>,
}

/// A running export; it ends with the collector.
pub struct Exporting {
    /// The collector has stopped.
    ending: CancellationToken,
    /// Everything was sent or dropped.
    ended: CancellationToken,
}

impl Exporting {
    /// Waits until what the collector wrote last is sent, but not for long. The collector must have stopped.
    pub async fn finish(&self) {
        self.ending.cancel();
        if tokio::time::timeout(FLUSH, self.ended.cancelled()).await.is_err() {
            tracing::warn!("the last spans were not exported in time");
        }
    }
}

/// Starts the export.
pub fn start(parts: ExportParts, supervisor: &Supervisor) -> anyhow::Result<Exporting> {
    // Wrong certificates are told at the start.
    Client::new(&parts.options)?;
    let runtime = Handle::current();
    let (ending, ended) = (CancellationToken::new(), CancellationToken::new());
    let exporting = Exporting { ending: ending.clone(), ended: ended.clone() };
    supervisor.thread("otlp-export", move || {
        if let Ok(client) = Client::new(&parts.options) {
            let (parts, runtime, ending) = (&parts, &runtime, &ending);
            Export { parts, client, runtime, ending, deadline: None, logged: None }.run();
        }
        ended.cancel();
    })?;
    Ok(exporting)
}

struct Export<'a> {
    parts: &'a ExportParts,
    client: Client,
    runtime: &'a Handle,
    ending: &'a CancellationToken,
    /// Until when a server that ends waits.
    deadline: Option<Instant>,
    /// When a failure was logged last.
    logged: Option<Instant>,
}

impl Export<'_> {
    fn run(&mut self) {
        let blocks = self.parts.collector.subscribe();
        let mut resolver = Resolver::new(self.parts.collector.recorder(), self.parts.options.sampling);
        let mut sent = Instant::now();
        loop {
            let received = if resolver.waiting() == 0 {
                let received = blocks.recv().map_err(RecvTimeoutError::from);
                sent = Instant::now();
                received
            } else {
                blocks.recv_timeout(PERIOD.saturating_sub(sent.elapsed()))
            };
            let ended = match received {
                Ok(block) => {
                    match block.records() {
                        Ok(records) => self.dropped(resolver.take(records, Instant::now())),
                        Err(error) => tracing::debug!(%error, "block cannot be exported"),
                    }
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => true,
            };
            if ended || resolver.waiting() >= BATCH || sent.elapsed() >= PERIOD {
                let ready = resolver.ready(Instant::now(), ended);
                for batch in ready.chunks(BATCH) {
                    self.send(batch);
                }
                sent = Instant::now();
            }
            if ended {
                return;
            }
        }
    }

    fn dropped(&self, count: u64) {
        self.parts.counters.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Sends a batch, several times if need be; once if the server ends.
    fn send(&mut self, batch: &[Resolved]) {
        let request = request_of(batch, &self.source());
        let count = batch.len() as u64;
        for attempt in 1..=TRIES {
            let is_last = attempt == TRIES || self.ending.is_cancelled();
            let (pause, why) = match self.exchange(&request) {
                Some(Outcome::Accepted { rejected, message }) => {
                    let rejected = rejected.min(count);
                    self.parts.counters.sent.fetch_add(count - rejected, Ordering::Relaxed);
                    self.dropped(rejected);
                    if rejected > 0 {
                        self.log(rejected, &message);
                    }
                    return;
                }
                Some(Outcome::Refused(why)) => {
                    self.dropped(count);
                    self.log(count, &why);
                    return;
                }
                Some(Outcome::Later(pause, why)) => (pause, why),
                None => {
                    self.client.disconnect();
                    (None, "no answer in time".to_owned())
                }
            };
            if is_last {
                self.dropped(count);
                self.log(count, &why);
                return;
            }
            let pause = pause.unwrap_or_else(|| backoff(attempt)).min(LONGEST_PAUSE);
            let ending = self.ending.cancelled();
            // A server that ends does not wait for the next try.
            let _ = self.runtime.block_on(async { tokio::time::timeout(pause, ending).await });
        }
    }

    /// One request; `None` if it is not answered in time.
    fn exchange(&mut self, request: &ExportTraceServiceRequest) -> Option<Outcome> {
        let (limit, ending, client) = (self.limit(), self.ending, &mut self.client);
        self.runtime.block_on(async {
            tokio::select! {
                outcome = tokio::time::timeout(limit, client.send(request)) => outcome.ok(),
                () = cut_off(ending) => None,
            }
        })
    }

    /// How long a request that begins now may take.
    fn limit(&mut self) -> Duration {
        if !self.ending.is_cancelled() {
            return TIMEOUT;
        }
        let now = Instant::now();
        self.deadline.get_or_insert(now + FLUSH).saturating_duration_since(now)
    }

    /// Logs that spans were dropped, once a minute.
    fn log(&mut self, count: u64, why: &str) {
        if self.logged.is_none_or(|last| last.elapsed() >= QUIET) {
            self.logged = Some(Instant::now());
            let endpoint = &self.parts.options.endpoint;
            tracing::warn!(%endpoint, spans = count, error = why, "spans not exported");
        }
    }

    fn source(&self) -> Source {
        let objects = &self.parts.objects;
        let namespaces = objects.registry.preferred("", "namespaces");
        let system = namespaces.and_then(|kind| objects.cached(&kind, "", "kube-system").ok());
        Source {
            node: String::new(),
            instance: self.parts.instance.clone(),
            host: self.parts.host.clone(),
            cluster: system.map(|namespace| namespace.meta.uid.clone()).unwrap_or_default(),
        }
    }
}

/// Ends a request that began before the server was about to end.
async fn cut_off(ending: &CancellationToken) {
    ending.cancelled().await;
    tokio::time::sleep(FLUSH).await;
}

/// 1 s, 2 s, 4 s, …, and up to half of it more, so that servers do not come back together.
fn backoff(attempt: u32) -> Duration {
    let pause = Duration::from_secs(1 << (attempt - 1).min(5));
    pause + pause.mul_f64((SpanId::fresh().0 % 500) as f64 / 1000.0)
}
