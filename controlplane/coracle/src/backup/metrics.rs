//! Metrics of the backups that the server makes.

use coracle_client::diagnostics::MetricsSource;
use coracle_proto::exposition::Page;
use parking_lot::Mutex;
use std::time::Duration;

/// Counters, and figures of the last backup.
#[derive(Debug, Default)]
pub(crate) struct BackupMetrics(Mutex<Figures>);

#[derive(Debug, Default, Clone, Copy)]
struct Figures {
    succeeded: u64,
    failed: u64,
    last_success: i64,
    bytes: u64,
    seconds: f64,
}

impl BackupMetrics {
    pub(crate) fn succeeded(&self, at: jiff::Timestamp, bytes: u64, took: Duration) {
        let mut figures = self.0.lock();
        figures.succeeded += 1;
        (figures.last_success, figures.bytes) = (at.as_second(), bytes);
        figures.seconds = took.as_secs_f64();
    }

    pub(crate) fn failed(&self) {
        self.0.lock().failed += 1;
    }
}

impl MetricsSource for BackupMetrics {
    fn render(&self, page: &mut Page) {
        let figures = *self.0.lock();
        let name = "coracle_backups_total";
        page.family(name, "counter", "Backups that this server made by its schedule.");
        page.value(name, &[("result", "success")], figures.succeeded);
        page.value(name, &[("result", "failure")], figures.failed);
        if figures.succeeded > 0 {
            let help = "When this server made its last backup.";
            page.single("coracle_backup_last_success_timestamp_seconds", "gauge", help, figures.last_success);
            page.single("coracle_backup_last_bytes", "gauge", "Size of its last backup.", figures.bytes);
            let help = "How long its last backup took.";
            page.single("coracle_backup_last_duration_seconds", "gauge", help, figures.seconds);
        }
    }
}
