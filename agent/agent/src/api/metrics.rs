//! `/stats/summary` and the pages of metrics.

use coracle_proto::exposition::{Form, Page};
use coracle_proto::version::{BUILD, MINOR};
use http::StatusCode;
use std::sync::Arc;

use super::response::{ApiResponse, json, with_type};
use crate::lifecycle::table::{Entry, PodTable};
use crate::pod::observed::State;
use crate::probe::schedule::Probes;
use crate::status::report::Reporter;
use crate::trace::metrics::NodeMetrics;
use crate::trace::spool::Spool;
use crate::usage::{Usage, series, summary};
use crate::volume::metrics::VolumeMetrics;
use crate::volume::usage::VolumeUsage;
use coracle_cli::feature_gates::Feature;
use coracle_cli::supervise::Supervisor;
use coracle_engine::runtime::instrumented::Operations;

/// What the pages of metrics show.
pub struct Metrics {
    /// The Node object's name.
    pub node: String,
    /// The feature gates with their values.
    pub features: Vec<Feature>,
    /// Usage of the node and its pods.
    pub usage: Usage,
    /// How full volumes are.
    pub volumes: VolumeUsage,
    /// Mounts of volumes, and calls of storage drivers.
    pub mounts: VolumeMetrics,
    /// Probes.
    pub probes: Probes,
    /// Operations of the runtime.
    pub operations: Arc<Operations>,
    /// Durations of the node's work.
    pub durations: Arc<NodeMetrics>,
    /// Spans on disk, where they are recorded.
    pub spool: Option<Spool>,
    /// The agent's tasks.
    pub supervisor: Supervisor,
}

fn page(text: String, form: Form) -> ApiResponse {
    with_type(StatusCode::OK, form.content_type(), text)
}

impl Metrics {
    /// `/stats/summary`.
    pub fn stats(&self, reporter: &Reporter) -> ApiResponse {
        let started = |uid: &str, container: Option<&str>| {
            let status = reporter.status(uid)?;
            let time = match container {
                None => status.start_time,
                Some(name) => {
                    let lists = [status.container_statuses, status.init_container_statuses];
                    let mut all = lists.into_iter().flatten().flatten();
                    let found = all.find(|status| status.name == name)?;
                    found.state?.running?.started_at
                }
            };
            time.map(|time| format!("{:.0}", time.0))
        };
        let volumes = |uid: &str| self.volumes.of_pod(uid);
        json(&summary::summary(&self.node, &self.usage.latest(), &started, &volumes))
    }

    /// `/metrics/resource`.
    pub fn resource(&self, form: Form) -> ApiResponse {
        page(series::resource(&self.usage.latest(), form), form)
    }

    /// `/metrics/cadvisor`.
    pub fn cadvisor(&self, form: Form) -> ApiResponse {
        page(series::cadvisor(&self.usage.latest(), form), form)
    }

    /// `/metrics/probes`.
    pub fn probes(&self, form: Form) -> ApiResponse {
        let mut out = Page::new(form);
        out.family(
            "prober_probe_total",
            "counter",
            "Cumulative number of a liveness, readiness or startup probe for a container by result.",
        );
        for total in self.probes.totals() {
            let kind = total.kind.as_str();
            for (result, count) in [("successful", total.successes), ("failed", total.failures)] {
                let labels = [
                    ("container", total.container.as_str()),
                    ("namespace", &total.namespace),
                    ("pod", &total.pod),
                    ("pod_uid", &total.uid),
                    ("probe_type", kind),
                    ("result", result),
                ];
                out.value("prober_probe_total", &labels, count);
            }
        }
        page(out.finish(), form)
    }

    /// `/metrics`: the agent itself.
    pub fn agent(&self, pods: &PodTable, form: Form) -> ApiResponse {
        let mut out = Page::new(form);
        let entries = pods.list();
        let running = |state| {
            entries.iter().flat_map(|entry| &entry.view.containers).filter(|c| c.state == state).count()
        };
        let alive = |entry: &Entry| entry.view.containers.iter().any(|c| c.state == State::Running);
        out.single(
            "kubelet_running_pods",
            "gauge",
            "Number of pods that have a running pod sandbox",
            entries.iter().filter(|entry| alive(entry)).count(),
        );
        out.single(
            "kubelet_desired_pods",
            "gauge",
            "The number of pods the kubelet is being instructed to run.",
            entries.len(),
        );
        out.family("kubelet_running_containers", "gauge", "Number of containers currently running");
        for (name, state) in [
            ("created", State::Created),
            ("exited", State::Exited),
            ("running", State::Running),
            ("unknown", State::Unknown),
        ] {
            out.value("kubelet_running_containers", &[("container_state", name)], running(state));
        }
        out.family("kubelet_node_name", "gauge", "The node's name. The count is always 1.");
        out.value("kubelet_node_name", &[("node", &self.node)], 1);
        out.family(
            "kubernetes_build_info",
            "gauge",
            "A metric with a constant '1' value labeled by version.",
        );
        let labels = [("git_version", BUILD), ("major", "1"), ("minor", MINOR)];
        out.value("kubernetes_build_info", &labels, 1);
        out.features(self.features.iter().map(|feature| (feature.name, feature.stage, feature.enabled)));
        self.volumes.render(&mut out);
        self.mounts.render(&mut out);
        self.operations.render(&mut out);
        self.durations.render(&mut out);
        if let Some(spool) = &self.spool {
            spool.render(&mut out);
        }
        self.tasks(&mut out);
        out.process();
        page(out.finish(), form)
    }

    /// How the agent's tasks do.
    fn tasks(&self, out: &mut Page) {
        let name = "coracle_task_panics_total";
        out.family(name, "counter", "Panics that were caught, by the task that panicked.");
        for (task, count) in self.supervisor.panics() {
            out.value(name, &[("task", &task)], count);
        }
        let name = "coracle_tasks_dead";
        out.single(name, "gauge", "Tasks that failed many times in a row.", self.supervisor.dead().len());
        let name = "coracle_quarantined_objects";
        let count = self.supervisor.quarantined().len();
        out.single(name, "gauge", "Objects that made a task panic.", count);
    }
}
