//! Metrics of the scheduler, with the names of Kubernetes.

use coracle_client::diagnostics::MetricsSource;
use coracle_proto::exposition::{Histogram, Page};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Upper bounds of attempts, in seconds.
const ATTEMPT: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
/// Upper bounds of the time from a pod's first attempt to its node, in seconds.
const WHOLE: [f64; 20] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68,
    655.36, 1310.72, 2621.44, 5242.88,
];
const TRIES: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];
const VICTIMS: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
/// Pods with more attempts than this are shown together.
const MOST_TRIES: u32 = 15;

/// Result of a scheduling attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttemptResult {
    /// The pod has a node.
    Scheduled,
    /// No node fits.
    Unschedulable,
    /// An error.
    Error,
}

impl AttemptResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

/// Sizes of the queues and of the snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Pods in the active queue.
    pub active: usize,
    /// Pods in backoff.
    pub backoff: usize,
    /// Unschedulable pods.
    pub unschedulable: usize,
    /// Pods with scheduling gates.
    pub gated: usize,
    /// Nodes.
    pub nodes: usize,
    /// Pods that have a node.
    pub pods: usize,
}

struct Values {
    size: Size,
    attempts: BTreeMap<(String, AttemptResult), Histogram>,
    algorithm: Histogram,
    tries: Histogram,
    whole: BTreeMap<u32, Histogram>,
    preemptions: u64,
    victims: Histogram,
}

/// The metrics of the scheduler.
pub struct SchedulerMetrics(Mutex<Values>);

impl Default for SchedulerMetrics {
    fn default() -> Self {
        Self(Mutex::new(Values {
            size: Size::default(),
            attempts: BTreeMap::new(),
            algorithm: Histogram::new(&ATTEMPT),
            tries: Histogram::new(&TRIES),
            whole: BTreeMap::new(),
            preemptions: 0,
            victims: Histogram::new(&VICTIMS),
        }))
    }
}

impl SchedulerMetrics {
    /// Sets the current sizes.
    pub fn size(&self, size: Size) {
        self.0.lock().size = size;
    }

    /// Records the time of the scheduling algorithm.
    pub fn decided(&self, took: Duration) {
        self.0.lock().algorithm.observe(took.as_secs_f64());
    }

    /// Records an attempt; the time of a successful one includes the binding.
    pub fn attempted(&self, profile: &str, result: AttemptResult, took: Duration) {
        let mut values = self.0.lock();
        let key = (profile.to_owned(), result);
        let times = values.attempts.entry(key).or_insert_with(|| Histogram::new(&ATTEMPT));
        times.observe(took.as_secs_f64());
    }

    /// Records a scheduled pod: number of attempts, and time since the first one.
    pub fn placed(&self, tries: u32, took: Duration) {
        let mut values = self.0.lock();
        values.tries.observe(f64::from(tries));
        let whole = values.whole.entry(tries.min(MOST_TRIES + 1)).or_insert_with(|| Histogram::new(&WHOLE));
        whole.observe(took.as_secs_f64());
    }

    /// Records a preemption attempt, with the number of victims if it succeeded.
    pub fn preempted(&self, victims: Option<usize>) {
        let mut values = self.0.lock();
        values.preemptions += 1;
        if let Some(victims) = victims {
            values.victims.observe(victims as f64);
        }
    }
}

impl MetricsSource for SchedulerMetrics {
    fn render(&self, page: &mut Page) {
        let values = self.0.lock();
        let name = "scheduler_schedule_attempts_total";
        page.family(name, "counter", "Number of attempts to schedule pods, by the result.");
        for ((profile, result), times) in &values.attempts {
            page.value(name, &[("profile", profile), ("result", result.as_str())], times.count());
        }
        let name = "scheduler_scheduling_attempt_duration_seconds";
        page.family(
            name,
            "histogram",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding).",
        );
        for ((profile, result), times) in &values.attempts {
            page.histogram(name, &[("profile", profile), ("result", result.as_str())], times);
        }
        let name = "scheduler_scheduling_algorithm_duration_seconds";
        page.family(name, "histogram", "Scheduling algorithm latency in seconds.");
        page.histogram(name, &[], &values.algorithm);
        let size = values.size;
        let name = "scheduler_pending_pods";
        page.family(name, "gauge", "Number of pending pods, by the queue type.");
        for (queue, count) in [
            ("active", size.active),
            ("backoff", size.backoff),
            ("gated", size.gated),
            ("unschedulable", size.unschedulable),
        ] {
            page.value(name, &[("queue", queue)], count);
        }
        let name = "scheduler_cache_size";
        page.family(name, "gauge", "Number of nodes and pods in the scheduler cache.");
        for (kind, count) in [("nodes", size.nodes), ("pods", size.pods)] {
            page.value(name, &[("type", kind)], count);
        }
        let name = "scheduler_pod_scheduling_attempts";
        page.family(name, "histogram", "Number of attempts to successfully schedule a pod.");
        page.histogram(name, &[], &values.tries);
        let name = "scheduler_pod_scheduling_sli_duration_seconds";
        page.family(name, "histogram", "Latency from a pod's first attempt until it has a node.");
        for (tries, times) in &values.whole {
            let tries = if *tries > MOST_TRIES { format!("{MOST_TRIES}+") } else { tries.to_string() };
            page.histogram(name, &[("attempts", &tries)], times);
        }
        let name = "scheduler_preemption_attempts_total";
        page.single(name, "counter", "Total preemption attempts in the cluster till now", values.preemptions);
        let name = "scheduler_preemption_victims";
        page.family(name, "histogram", "Number of selected preemption victims");
        page.histogram(name, &[], &values.victims);
    }
}
