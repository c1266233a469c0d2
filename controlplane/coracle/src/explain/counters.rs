//! Counters of deliveries and of the export.

use std::sync::atomic::AtomicU64;

/// What agents delivered.
#[derive(Debug, Default)]
pub struct IngestCounters {
    /// Records that were taken.
    pub records: AtomicU64,
    /// Records about objects that are not the node's.
    pub rejected: AtomicU64,
}

/// What was exported.
#[derive(Debug, Default)]
pub struct ExportCounters {
    /// Spans that the receiver took.
    pub sent: AtomicU64,
    /// Spans that it did not take, or that waited for it in vain.
    pub dropped: AtomicU64,
}
