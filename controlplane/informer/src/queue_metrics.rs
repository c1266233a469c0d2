//! Metrics of the work queues, with the names of Kubernetes.

use coracle_client::diagnostics::MetricsSource;
use coracle_proto::exposition::{Histogram, Page};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Upper bounds of times in a queue and at work, in seconds: upstream's.
pub const BUCKETS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0];

/// Queue names of Kubernetes that differ from the names of their controllers.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("endpointslice-controller", "endpoint_slice"),
    ("endpointslicemirroring-controller", "endpoint_slice_mirroring"),
    ("generic-garbage-collector", "garbage_collector_attempt_to_delete"),
    ("horizontal-pod-autoscaler", "horizontalpodautoscaler"),
    ("resourcequota-controller", "resourcequota_primary"),
    ("ttl-after-finished-controller", "ttl_jobs_to_delete"),
];

/// The `name` label of a controller's queue in the metrics of Kubernetes.
fn queue_name(controller: &'static str) -> &'static str {
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == controller).map(|(_, other)| *other);
    other.unwrap_or_else(|| controller.strip_suffix("-controller").unwrap_or(controller))
}

/// Statistics of a work queue.
#[derive(Debug, Clone)]
pub struct QueueStats {
    /// Keys in the queue.
    pub depth: usize,
    /// Keys added.
    pub adds: u64,
    /// Keys added again after a failure.
    pub retries: u64,
    /// Time that keys spent in the queue, in seconds.
    pub waited: Histogram,
    /// Time to process a key, in seconds.
    pub worked: Histogram,
    /// Total processing time of keys in progress, in seconds.
    pub unfinished: f64,
    /// Longest processing time of a key in progress, in seconds.
    pub longest: f64,
}

/// A queue with statistics.
pub trait MeasuredQueue: Send + Sync {
    /// The current statistics.
    fn stats(&self) -> QueueStats;
}

/// Queues by the name of the controller. The counters of a restarted controller begin at zero.
#[derive(Default)]
pub struct QueueMetrics(Mutex<BTreeMap<&'static str, Arc<dyn MeasuredQueue>>>);

impl QueueMetrics {
    /// Adds a controller's queue to the metrics.
    pub fn add(&self, controller: &'static str, queue: Arc<dyn MeasuredQueue>) {
        self.0.lock().insert(queue_name(controller), queue);
    }
}

impl MetricsSource for QueueMetrics {
    fn render(&self, page: &mut Page) {
        let queues: Vec<_> = self.0.lock().iter().map(|(name, queue)| (*name, queue.clone())).collect();
        let all: Vec<(&str, QueueStats)> =
            queues.iter().map(|(name, queue)| (*name, queue.stats())).collect();
        type Read = fn(&QueueStats) -> f64;
        let values: [(&str, &str, &str, Read); 5] = [
            ("workqueue_depth", "gauge", "Current depth of workqueue", |c| c.depth as f64),
            ("workqueue_adds_total", "counter", "Total number of adds handled by workqueue", |c| {
                c.adds as f64
            }),
            ("workqueue_retries_total", "counter", "Total number of retries handled by workqueue", |c| {
                c.retries as f64
            }),
            (
                "workqueue_unfinished_work_seconds",
                "gauge",
                "How many seconds of work are in progress and not observed by work_duration.",
                |c| c.unfinished,
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "gauge",
                "How many seconds the longest running processor has been running.",
                |c| c.longest,
            ),
        ];
        for (name, kind, help, read) in values {
            page.family(name, kind, help);
            for (queue, counts) in &all {
                page.value(name, &[("name", queue)], read(counts));
            }
        }
        type Times = fn(&QueueStats) -> &Histogram;
        let times: [(&str, &str, Times); 2] = [
            (
                "workqueue_queue_duration_seconds",
                "How long in seconds an item stays in workqueue before it is requested.",
                |c| &c.waited,
            ),
            (
                "workqueue_work_duration_seconds",
                "How long in seconds processing an item from workqueue takes.",
                |c| &c.worked,
            ),
        ];
        for (name, help, read) in times {
            page.family(name, "histogram", help);
            for (queue, counts) in &all {
                page.histogram(name, &[("name", queue)], read(counts));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::exposition::Form;

    struct Fixed;

    impl MeasuredQueue for Fixed {
        fn stats(&self) -> QueueStats {
            let mut worked = Histogram::new(&BUCKETS);
            worked.observe(0.05);
            let waited = Histogram::new(&BUCKETS);
            QueueStats { depth: 2, adds: 7, retries: 1, waited, worked, unfinished: 0.5, longest: 0.5 }
        }
    }

    #[test]
    fn queues_have_upstreams_names() {
        let metrics = QueueMetrics::default();
        metrics.add("deployment-controller", Arc::new(Fixed));
        metrics.add("generic-garbage-collector", Arc::new(Fixed));
        let mut page = Page::new(Form::Prometheus);
        metrics.render(&mut page);
        let text = page.finish();
        for line in [
            "workqueue_depth{name=\"deployment\"} 2\n",
            "workqueue_adds_total{name=\"garbage_collector_attempt_to_delete\"} 7\n",
            "workqueue_retries_total{name=\"deployment\"} 1\n",
            "workqueue_longest_running_processor_seconds{name=\"deployment\"} 0.5\n",
            "workqueue_work_duration_seconds_bucket{name=\"deployment\",le=\"0.01\"} 0\n",
            "workqueue_work_duration_seconds_bucket{name=\"deployment\",le=\"0.1\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
