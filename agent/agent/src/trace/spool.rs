//! The spool: what the node recorded, on disk until the API server has it.

use coracle_cli::causes;
use coracle_proto::exposition::Page;
use coracle_timeline::{CollectorHandle, Keep, Limits, shared_memory, start_recording};
use coracle_trace::{Recorder, Sizes, Stage, Uid};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::clock::ServerClock;
use super::delivery::{Delivered, Delivery};

/// Spans that the server did not take for so long are deleted.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// A spool and the collector that writes it. Clones share it.
#[derive(Clone)]
pub struct Spool {
    dir: PathBuf,
    collector: CollectorHandle,
    clock: Arc<ServerClock>,
    counts: Arc<Delivered>,
}

impl Spool {
    /// Opens the spool in `dir` and starts to record. What the agent recorded right before it was killed is in `memory`, a
    /// file on a tmpfs. `None` if `bytes` is 0 or the directory cannot be used: the node does without.
    pub fn open(
        dir: &Path,
        memory: Option<&Path>,
        bytes: u64,
        clock: Arc<ServerClock>,
    ) -> Option<(Self, Recorder)> {
        if bytes == 0 {
            return None;
        }
        if let Some(memory) = memory {
            shared_memory::forget_earlier(dir, memory);
        }
        let keep = match Keep::exclusive(dir, Limits { bytes, age: MAX_AGE }) {
            Ok(keep) => keep,
            Err(error) => {
                tracing::warn!(dir = %dir.display(), error = %causes::chain(&error), "spans are not recorded");
                return None;
            }
        };
        let (recorder, collector) = start_recording(memory, Sizes::AGENT, keep);
        let spool = Spool { dir: dir.to_owned(), collector, clock, counts: Arc::default() };
        Some((spool, recorder))
    }

    /// What the agent before this one had begun.
    pub fn cut_off(&self) -> HashMap<(Uid, Stage), u64> {
        self.collector.cut_off()
    }

    /// The task that delivers it as the spans of a node.
    pub fn delivery(&self, client: kube::Client, node: &str) -> io::Result<Delivery> {
        let spool = (self.dir.as_path(), self.collector.clone());
        Delivery::new(client, node, spool, self.clock.clone(), self.counts.clone())
    }

    /// Writes what is recorded to disk and ends the collector.
    pub fn stop(&self) {
        self.collector.stop();
    }

    /// Writes the metrics.
    pub fn render(&self, page: &mut Page) {
        let counters = self.collector.counters();
        let family = "coracle_trace_records_total";
        page.single(family, "counter", "Spans that were recorded.", counters.records);
        let family = "coracle_trace_lost_total";
        page.single(family, "counter", "Spans that were lost because they came too fast.", counters.lost);
        page.single("coracle_trace_bytes", "gauge", "Bytes of spans on disk.", counters.bytes);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let oldest = match counters.oldest {
            0 => Duration::ZERO,
            nanos => now.saturating_sub(Duration::from_nanos(nanos)),
        };
        page.single(
            "coracle_trace_oldest_seconds",
            "gauge",
            "Age of the oldest span on disk.",
            oldest.as_secs_f64(),
        );
        let family = "coracle_trace_delivered_bytes_total";
        let bytes = self.counts.bytes.load(Ordering::Relaxed);
        page.single(family, "counter", "Bytes of spans that the API server has acknowledged.", bytes);
        let family = "coracle_trace_rejected_bodies_total";
        let rejected = self.counts.rejected.load(Ordering::Relaxed);
        page.single(family, "counter", "Deliveries of spans that the API server rejected.", rejected);
        let Some(offset) = self.clock.offset() else { return };
        let family = "coracle_trace_clock_offset_seconds";
        let help = "How far the clock of the API server is ahead of the node's.";
        page.single(family, "gauge", help, offset.nanos as f64 / 1e9);
        let family = "coracle_trace_clock_uncertainty_seconds";
        page.single(family, "gauge", "How wrong the offset may be.", offset.uncertainty as f64 / 1e9);
    }
}
