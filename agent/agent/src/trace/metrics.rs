//! Durations of the node's work, under the names, labels and buckets of the kubelet and of kube-proxy.

use coracle_proto::exposition::Page;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

use super::family::Family;

/// Prometheus' own buckets.
const DEFAULT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const POD_START: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
const IMAGE_PULL: &[f64] = &[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0,
    2700.0, 3600.0,
];
const STATUS_SYNC: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
/// Doubled from a millisecond on.
const SYNC_RULES: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Sizes of images, up to and without, and their label.
const IMAGE_SIZES: [(u64, &str); 12] = [
    (1, "N/A"),
    (10 * MIB, "0-10MB"),
    (100 * MIB, "10MB-100MB"),
    (500 * MIB, "100MB-500MB"),
    (GIB, "500MB-1GB"),
    (5 * GIB, "1GB-5GB"),
    (10 * GIB, "5GB-10GB"),
    (20 * GIB, "10GB-20GB"),
    (30 * GIB, "20GB-30GB"),
    (40 * GIB, "30GB-40GB"),
    (60 * GIB, "40GB-60GB"),
    (100 * GIB, "60GB-100GB"),
];

/// How long the start of a pod took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodStartTimes {
    /// Since the agent saw the pod.
    pub since_seen: Duration,
    /// Since the pod was created.
    pub since_created: Duration,
    /// For how long its init containers ran.
    pub init: Duration,
    /// Whether it has a network of its own.
    pub has_network: bool,
}

/// Durations of the node's work.
pub struct NodeMetrics {
    pod_start: Family,
    pod_start_sli: Family,
    pod_start_total: Family,
    pod_worker: Family,
    pod_worker_start: Family,
    image_pull: Family,
    status_sync: Family,
    run_sandbox: Family,
    sync_rules: Family,
    network_programming: Family,
    /// Of the first pod with a network of its own, in seconds.
    first_network_pod: Mutex<Option<f64>>,
    /// For how long images were pulled for pods that start, by uid.
    pulls: Mutex<HashMap<String, Duration>>,
}

impl Default for NodeMetrics {
    fn default() -> Self {
        NodeMetrics {
            pod_start: Family::new(
                "kubelet_pod_start_duration_seconds",
                None,
                POD_START,
                "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
            ),
            pod_start_sli: Family::new(
                "kubelet_pod_start_sli_duration_seconds",
                None,
                POD_START,
                "Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
            ),
            pod_start_total: Family::new(
                "kubelet_pod_start_total_duration_seconds",
                None,
                POD_START,
                "Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
            ),
            pod_worker: Family::new(
                "kubelet_pod_worker_duration_seconds",
                Some("operation_type"),
                DEFAULT,
                "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
            ),
            pod_worker_start: Family::new(
                "kubelet_pod_worker_start_duration_seconds",
                None,
                DEFAULT,
                "Duration in seconds from kubelet seeing a pod to starting a worker.",
            ),
            image_pull: Family::new(
                "kubelet_image_pull_duration_seconds",
                Some("image_size_in_bytes"),
                IMAGE_PULL,
                "Duration in seconds to pull an image.",
            ),
            status_sync: Family::new(
                "kubelet_pod_status_sync_duration_seconds",
                None,
                STATUS_SYNC,
                "Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.",
            ),
            run_sandbox: Family::new(
                "kubelet_run_podsandbox_duration_seconds",
                Some("runtime_handler"),
                DEFAULT,
                "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
            ),
            sync_rules: Family::new(
                "kubeproxy_sync_proxy_rules_duration_seconds",
                None,
                SYNC_RULES,
                "SyncProxyRules latency in seconds",
            ),
            network_programming: Family::new(
                "kubeproxy_network_programming_duration_seconds",
                None,
                &NETWORK_PROGRAMMING,
                "In Cluster Network Programming Latency in seconds",
            ),
            first_network_pod: Mutex::default(),
            pulls: Mutex::default(),
        }
    }
}

/// Quarters of a second, seconds up to a minute, then longer and longer steps.
static NETWORK_PROGRAMMING: [f64; 80] = network_programming();

const fn network_programming() -> [f64; 80] {
    let mut bounds = [0.0; 80];
    let mut at = 0;
    while at < 80 {
        bounds[at] = match at {
            0..2 => 0.25 * (at + 1) as f64,
            2..61 => (at - 1) as f64,
            61..73 => 60.0 + 5.0 * (at - 61) as f64,
            _ => 120.0 + 30.0 * (at - 73) as f64,
        };
        at += 1;
    }
    bounds
}

impl NodeMetrics {
    /// All containers of a new pod have been started.
    pub fn pod_started(&self, uid: &str, times: PodStartTimes) {
        let pulls = self.pulls.lock().remove(uid).unwrap_or_default();
        let own = times.since_created.saturating_sub(pulls).saturating_sub(times.init);
        self.pod_start.observe("", times.since_seen);
        self.pod_start_total.observe("", times.since_created);
        self.pod_start_sli.observe("", own);
        if times.has_network {
            self.first_network_pod.lock().get_or_insert(own.as_secs_f64());
        }
    }

    /// A worker handled a pod once.
    pub fn worker_pass(&self, operation: &str, took: Duration) {
        self.pod_worker.observe(operation, took);
    }

    /// The worker of a pod that was seen so long ago begins.
    pub fn worker_started(&self, after: Duration) {
        self.pod_worker_start.observe("", after);
    }

    /// An image of so many bytes was pulled for a pod.
    pub fn image_pulled(&self, uid: &str, bytes: u64, took: Duration) {
        self.image_pull.observe(size_label(bytes), took);
        *self.pulls.lock().entry(uid.to_owned()).or_default() += took;
    }

    /// The pod is gone.
    pub fn forget(&self, uid: &str) {
        self.pulls.lock().remove(uid);
    }

    /// The API server has a status that changed so long ago.
    pub fn status_synced(&self, took: Duration) {
        self.status_sync.observe("", took);
    }

    /// A sandbox was made with a handler of the runtime.
    pub fn sandbox_run(&self, handler: &str, took: Duration) {
        self.run_sandbox.observe(handler, took);
    }

    /// The rules of Services were changed.
    pub fn rules_synced(&self, took: Duration) {
        self.sync_rules.observe("", took);
    }

    /// The rules follow endpoints that changed so long ago.
    pub fn network_programmed(&self, after: Duration) {
        self.network_programming.observe("", after);
    }

    /// Writes the metrics.
    pub fn render(&self, page: &mut Page) {
        let families = [
            &self.pod_start,
            &self.pod_start_sli,
            &self.pod_start_total,
            &self.pod_worker,
            &self.pod_worker_start,
            &self.image_pull,
            &self.status_sync,
            &self.run_sandbox,
            &self.sync_rules,
            &self.network_programming,
        ];
        families.into_iter().for_each(|family| family.render(page));
        if let Some(seconds) = *self.first_network_pod.lock() {
            page.single(
                "kubelet_first_network_pod_start_sli_duration_seconds",
                "gauge",
                "Duration in seconds to start the first network pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
                seconds,
            );
        }
    }
}

fn size_label(bytes: u64) -> &'static str {
    IMAGE_SIZES.iter().find(|(below, _)| bytes < *below).map_or("GT100GB", |(_, label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::exposition::Form;

    fn text(metrics: &NodeMetrics) -> String {
        let mut page = Page::new(Form::Prometheus);
        metrics.render(&mut page);
        page.finish()
    }

    #[test]
    fn a_start_is_counted_without_what_the_pod_itself_takes() {
        let metrics = NodeMetrics::default();
        metrics.image_pulled("u", 29 * MIB, Duration::from_secs(3));
        metrics.image_pulled("other", MIB, Duration::from_secs(100));
        let times = PodStartTimes {
            since_seen: Duration::from_secs(9),
            since_created: Duration::from_secs(10),
            init: Duration::from_secs(2),
            has_network: true,
        };
        metrics.pod_started("u", times);
        metrics.pod_started("v", PodStartTimes { has_network: false, ..times });
        let text = text(&metrics);
        for line in [
            "kubelet_pod_start_duration_seconds_sum 18",
            "kubelet_pod_start_total_duration_seconds_sum 20",
            "kubelet_pod_start_sli_duration_seconds_sum 13",
            "kubelet_pod_start_sli_duration_seconds_count 2",
            "kubelet_first_network_pod_start_sli_duration_seconds 5",
            "kubelet_image_pull_duration_seconds_count{image_size_in_bytes=\"10MB-100MB\"} 1",
            "kubelet_image_pull_duration_seconds_count{image_size_in_bytes=\"0-10MB\"} 1",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(metrics.pulls.lock().len(), 1);
        metrics.forget("other");
        assert!(metrics.pulls.lock().is_empty());
    }

    #[test]
    fn what_has_no_label_is_there_from_the_start() {
        let text = text(&NodeMetrics::default());
        assert!(text.contains("kubelet_pod_start_duration_seconds_count 0"), "{text}");
        assert!(text.contains("# TYPE kubelet_pod_worker_duration_seconds histogram"), "{text}");
        assert!(!text.contains("kubelet_pod_worker_duration_seconds_count"), "{text}");
        assert!(!text.contains("kubelet_first_network_pod_start_sli_duration_seconds"), "{text}");
    }

    #[test]
    fn buckets_and_sizes_are_those_of_upstream() {
        assert_eq!(NETWORK_PROGRAMMING[..4], [0.25, 0.5, 1.0, 2.0]);
        assert_eq!(NETWORK_PROGRAMMING[59..63], [58.0, 59.0, 60.0, 65.0]);
        assert_eq!(NETWORK_PROGRAMMING[72..], [115.0, 120.0, 150.0, 180.0, 210.0, 240.0, 270.0, 300.0]);
        assert!(NETWORK_PROGRAMMING.windows(2).all(|pair| pair[0] < pair[1]));
        for (bytes, label) in [
            (0, "N/A"),
            (1, "0-10MB"),
            (10 * MIB, "10MB-100MB"),
            (99 * GIB, "60GB-100GB"),
            (100 * GIB, "GT100GB"),
        ] {
            assert_eq!(size_label(bytes), label, "{bytes}");
        }
    }
}
