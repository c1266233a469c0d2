//! Attempts to find nodes for pods.

use coracle_client::shown::Counters;
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

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ended {
    /// The pod has a node.
    Scheduled,
    /// No node will do.
    Unschedulable,
    /// Something went wrong.
    Error,
}

impl Ended {
    fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

/// How much there is to do, and to do it with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Pods that are to be tried.
    pub active: usize,
    /// Pods that back off after a failure.
    pub backoff: usize,
    /// Pods for which no node will do.
    pub unschedulable: usize,
    /// Pods that are not to be tried yet.
    pub gated: usize,
    /// Nodes.
    pub nodes: usize,
    /// Pods that have a node.
    pub pods: usize,
}

struct Figures {
    size: Size,
    attempts: BTreeMap<(String, Ended), Histogram>,
    algorithm: Histogram,
    tries: Histogram,
    whole: BTreeMap<u32, Histogram>,
    preemptions: u64,
    victims: Histogram,
}

/// What the scheduler counts.
pub struct Scheduling(Mutex<Figures>);

impl Default for Scheduling {
    fn default() -> Self {
        Self(Mutex::new(Figures {
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

impl Scheduling {
    /// How large everything is now.
    pub fn size(&self, size: Size) {
        self.0.lock().size = size;
    }

    /// How long it took to find a node, or that there is none.
    pub fn decided(&self, took: Duration) {
        self.0.lock().algorithm.observe(took.as_secs_f64());
    }

    /// An attempt ended; with a node it includes writing it.
    pub fn attempted(&self, profile: &str, ended: Ended, took: Duration) {
        let mut figures = self.0.lock();
        let key = (profile.to_owned(), ended);
        let times = figures.attempts.entry(key).or_insert_with(|| Histogram::new(&ATTEMPT));
        times.observe(took.as_secs_f64());
    }

    /// A pod has its node, after so many attempts and so long after the first one.
    pub fn placed(&self, tries: u32, took: Duration) {
        let mut figures = self.0.lock();
        figures.tries.observe(f64::from(tries));
        let whole = figures.whole.entry(tries.min(MOST_TRIES + 1)).or_insert_with(|| Histogram::new(&WHOLE));
        whole.observe(took.as_secs_f64());
    }

    /// Others were looked for that could make room: so many, when it helps.
    pub fn preempted(&self, victims: Option<usize>) {
        let mut figures = self.0.lock();
        figures.preemptions += 1;
        if let Some(victims) = victims {
            figures.victims.observe(victims as f64);
        }
    }
}

impl Counters for Scheduling {
    fn render(&self, page: &mut Page) {
        let figures = self.0.lock();
        let name = "scheduler_schedule_attempts_total";
        page.family(name, "counter", "Number of attempts to schedule pods, by the result.");
        for ((profile, ended), times) in &figures.attempts {
            page.value(name, &[("profile", profile), ("result", ended.as_str())], times.count());
        }
        let name = "scheduler_scheduling_attempt_duration_seconds";
        page.family(
            name,
            "histogram",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding).",
        );
        for ((profile, ended), times) in &figures.attempts {
            page.histogram(name, &[("profile", profile), ("result", ended.as_str())], times);
        }
        let name = "scheduler_scheduling_algorithm_duration_seconds";
        page.family(name, "histogram", "Scheduling algorithm latency in seconds.");
        page.histogram(name, &[], &figures.algorithm);
        let size = figures.size;
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
        page.histogram(name, &[], &figures.tries);
        let name = "scheduler_pod_scheduling_sli_duration_seconds";
        page.family(name, "histogram", "Latency from a pod's first attempt until it has a node.");
        for (tries, times) in &figures.whole {
            let tries = if *tries > MOST_TRIES { format!("{MOST_TRIES}+") } else { tries.to_string() };
            page.histogram(name, &[("attempts", &tries)], times);
        }
        let name = "scheduler_preemption_attempts_total";
        page.single(
            name,
            "counter",
            "Total preemption attempts in the cluster till now",
            figures.preemptions,
        );
        let name = "scheduler_preemption_victims";
        page.family(name, "histogram", "Number of selected preemption victims");
        page.histogram(name, &[], &figures.victims);
    }
}
