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
    /// 0 if there was none, also before this process.
    last_success: i64,
    bytes: u64,
    /// Of the last one of this process.
    seconds: Option<f64>,
}

impl BackupMetrics {
    /// A backup of before this process, or of another server.
    pub(crate) fn found(&self, at: jiff::Timestamp, bytes: u64) {
        let mut figures = self.0.lock();
        if at.as_second() > figures.last_success {
            (figures.last_success, figures.bytes) = (at.as_second(), bytes);
        }
    }

    pub(crate) fn succeeded(&self, at: jiff::Timestamp, bytes: u64, took: Duration) {
        let mut figures = self.0.lock();
        figures.succeeded += 1;
        (figures.last_success, figures.bytes) = (at.as_second(), bytes);
        figures.seconds = Some(took.as_secs_f64());
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
        if figures.last_success > 0 {
            let help = "When the last backup was made that succeeded.";
            page.single("coracle_backup_last_success_timestamp_seconds", "gauge", help, figures.last_success);
            page.single("coracle_backup_last_bytes", "gauge", "Size of that backup.", figures.bytes);
        }
        if let Some(seconds) = figures.seconds {
            let help = "How long the last backup of this server took.";
            page.single("coracle_backup_last_duration_seconds", "gauge", help, seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rendered(metrics: &BackupMetrics) -> String {
        let mut page = Page::default();
        metrics.render(&mut page);
        page.finish()
    }

    #[test]
    fn the_last_good_backup_is_known_after_a_restart() {
        let metrics = BackupMetrics::default();
        assert!(!rendered(&metrics).contains("last_success"));
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        metrics.found(at(1000), 5);
        let text = rendered(&metrics);
        assert!(text.contains("coracle_backup_last_success_timestamp_seconds 1000"), "{text}");
        assert!(!text.contains("duration"), "{text}");
        // An older one is no news.
        metrics.found(at(900), 4);
        metrics.failed();
        assert!(rendered(&metrics).contains("last_success_timestamp_seconds 1000"));
        metrics.succeeded(at(2000), 6, Duration::from_secs(1));
        let text = rendered(&metrics);
        assert!(
            text.contains("last_success_timestamp_seconds 2000")
                && text.contains("coracle_backup_last_bytes 6")
        );
    }
}
