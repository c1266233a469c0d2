//! The queues of the controllers.

use coracle_client::shown::Counters;
use coracle_proto::exposition::{Histogram, Page};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Upper bounds of times in a queue and at work, in seconds: upstream's.
pub const BUCKETS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0];

/// Names of queues that upstream does not call like their controllers.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("endpointslice-controller", "endpoint_slice"),
    ("endpointslicemirroring-controller", "endpoint_slice_mirroring"),
    ("generic-garbage-collector", "garbage_collector_attempt_to_delete"),
    ("horizontal-pod-autoscaler", "horizontalpodautoscaler"),
    ("resourcequota-controller", "resourcequota_primary"),
    ("ttl-after-finished-controller", "ttl_jobs_to_delete"),
];

/// The name that upstream shows a controller's queue by.
fn shown(controller: &'static str) -> &'static str {
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == controller).map(|(_, other)| *other);
    other.unwrap_or_else(|| controller.strip_suffix("-controller").unwrap_or(controller))
}

/// What a queue has counted so far, and how it is now.
#[derive(Debug, Clone)]
pub struct Counts {
    /// Keys that wait.
    pub depth: usize,
    /// Keys that came.
    pub adds: u64,
    /// Keys that came again after a failure.
    pub retries: u64,
    /// How long keys waited, in seconds.
    pub waited: Histogram,
    /// How long the work on a key took, in seconds.
    pub worked: Histogram,
    /// Seconds of work on keys that are not done, all together.
    pub unfinished: f64,
    /// Seconds of work on the key that is longest at it.
    pub longest: f64,
}

/// A queue that counts.
pub trait Counted: Send + Sync {
    /// What it has counted.
    fn counts(&self) -> Counts;
}

/// Queues by the controller's name. A controller that starts again begins to count anew.
#[derive(Default)]
pub struct Work(Mutex<BTreeMap<&'static str, Arc<dyn Counted>>>);

impl Work {
    /// Shows a controller's queue from now on.
    pub fn put(&self, controller: &'static str, queue: Arc<dyn Counted>) {
        self.0.lock().insert(shown(controller), queue);
    }
}

impl Counters for Work {
    fn render(&self, page: &mut Page) {
        let queues: Vec<_> = self.0.lock().iter().map(|(name, queue)| (*name, queue.clone())).collect();
        let all: Vec<(&str, Counts)> = queues.iter().map(|(name, queue)| (*name, queue.counts())).collect();
        type Read = fn(&Counts) -> f64;
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
        type Times = fn(&Counts) -> &Histogram;
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

    impl Counted for Fixed {
        fn counts(&self) -> Counts {
            let mut worked = Histogram::new(&BUCKETS);
            worked.observe(0.05);
            let waited = Histogram::new(&BUCKETS);
            Counts { depth: 2, adds: 7, retries: 1, waited, worked, unfinished: 0.5, longest: 0.5 }
        }
    }

    #[test]
    fn queues_have_upstreams_names() {
        let work = Work::default();
        work.put("deployment-controller", Arc::new(Fixed));
        work.put("generic-garbage-collector", Arc::new(Fixed));
        let mut page = Page::new(Form::Prometheus);
        work.render(&mut page);
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
