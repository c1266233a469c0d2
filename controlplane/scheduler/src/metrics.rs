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
/// Upper bounds of parts of attempts, in seconds.
const POINT: [f64; 12] =
    [0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048];
/// Upper bounds of the time from a pod's entry into the queue to its node, in seconds.
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

/// A part of a scheduling attempt, by the name of its extension point upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// Finds the nodes where the pod can run.
    Filter,
    /// Selects the best of them.
    Score,
    /// Counts the pod at the node.
    Reserve,
    /// Writes the node into the pod.
    Bind,
}

impl Point {
    fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "Filter",
            Self::Score => "Score",
            Self::Reserve => "Reserve",
            Self::Bind => "Bind",
        }
    }
}

/// How a part of an attempt ended, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// It went well.
    Success,
    /// No node is left.
    Unschedulable,
    /// An error.
    Error,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Unschedulable => "Unschedulable",
            Self::Error => "Error",
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
    /// By profile.
    points: BTreeMap<String, BTreeMap<(Point, Status), Histogram>>,
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
            points: BTreeMap::new(),
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

    /// Records the time of a part of an attempt.
    pub fn ran(&self, profile: &str, point: Point, status: Status, took: Duration) {
        let mut values = self.0.lock();
        let points = values.points.entry(profile.to_owned()).or_default();
        let times = points.entry((point, status)).or_insert_with(|| Histogram::new(&POINT));
        times.observe(took.as_secs_f64());
    }

    /// Records a scheduled pod: number of attempts, and time since it could be tried first.
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
        let name = "scheduler_framework_extension_point_duration_seconds";
        page.family(name, "histogram", "Latency for running all plugins of a specific extension point.");
        for (profile, points) in &values.points {
            for ((point, status), times) in points {
                let labels = [
                    ("extension_point", point.as_str()),
                    ("profile", profile.as_str()),
                    ("status", status.as_str()),
                ];
                page.histogram(name, &labels, times);
            }
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
        page.family(
            name,
            "histogram",
            "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.",
        );
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

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::exposition::Form;

    #[test]
    fn parts_of_attempts_have_upstreams_names() {
        let metrics = SchedulerMetrics::default();
        metrics.ran("default-scheduler", Point::Filter, Status::Success, Duration::from_micros(150));
        metrics.ran("default-scheduler", Point::Bind, Status::Error, Duration::from_secs(1));
        metrics.placed(1, Duration::from_millis(15));
        let mut page = Page::new(Form::Prometheus);
        metrics.render(&mut page);
        let text = page.finish();
        let name = "scheduler_framework_extension_point_duration_seconds";
        let of = |point: &str, status: &str| {
            format!("extension_point=\"{point}\",profile=\"default-scheduler\",status=\"{status}\"")
        };
        for line in [
            format!("{name}_bucket{{{},le=\"0.0001\"}} 0\n", of("Filter", "Success")),
            format!("{name}_bucket{{{},le=\"0.0002\"}} 1\n", of("Filter", "Success")),
            format!("{name}_bucket{{{},le=\"0.2048\"}} 0\n", of("Bind", "Error")),
            format!("{name}_count{{{}}} 1\n", of("Bind", "Error")),
            "scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts=\"1\",le=\"0.02\"} 1\n".into(),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}
