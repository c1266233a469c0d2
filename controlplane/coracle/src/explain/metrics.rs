//! Metrics of the recorder, the timeline, deliveries of agents and the export.

use super::counters::{ExportCounters, IngestCounters};
use super::ingest::Ingest;
use coracle_client::diagnostics::MetricsSource;
use coracle_proto::exposition::Page;
use coracle_timeline::CollectorHandle;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Everything about spans that is counted.
pub struct TraceMetrics {
    /// The timeline.
    pub collector: CollectorHandle,
    /// Deliveries.
    pub ingest: Arc<Ingest>,
    /// Counters of deliveries.
    pub delivered: Arc<IngestCounters>,
    /// Counters of the export.
    pub exported: Arc<ExportCounters>,
}

impl MetricsSource for TraceMetrics {
    fn render(&self, page: &mut Page) {
        let counters = self.collector.counters();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = [
            ("coracle_trace_records_total", "Records written to the timeline.", counters.records),
            ("coracle_trace_lost_total", "Records that the recorder had no room for.", counters.lost),
            (
                "coracle_trace_dropped_blocks_total",
                "Blocks that could not be written.",
                counters.dropped_blocks,
            ),
            ("coracle_trace_ingested_total", "Records that agents delivered.", load(&self.delivered.records)),
            (
                "coracle_trace_rejected_spans_total",
                "Records of agents about objects that are not theirs.",
                load(&self.delivered.rejected),
            ),
            ("coracle_trace_exported_total", "Spans exported by OTLP.", load(&self.exported.sent)),
            (
                "coracle_trace_export_dropped_total",
                "Spans that could not be exported by OTLP.",
                load(&self.exported.dropped),
            ),
        ];
        for (name, help, value) in counts {
            page.single(name, "counter", help, value);
        }
        page.single("coracle_trace_bytes", "gauge", "Size of the timeline on disk.", counters.bytes);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let oldest = if counters.oldest == 0 { 0.0 } else { (now - counters.oldest as f64 / 1e9).max(0.0) };
        page.single("coracle_trace_oldest_seconds", "gauge", "Age of the oldest record.", oldest);
        let clocks = self.ingest.clocks();
        let name = "coracle_trace_clock_offset_seconds";
        page.family(name, "gauge", "The server's clock minus that of a node.");
        for (node, clock) in &clocks {
            page.value(name, &[("node", node)], clock.offset as f64 / 1e9);
        }
        let name = "coracle_trace_clock_uncertainty_seconds";
        page.family(name, "gauge", "How far the offset of a node's clock may be off.");
        for (node, clock) in &clocks {
            page.value(name, &[("node", node)], f64::from(clock.uncertainty) / 1e9);
        }
    }
}
