//! `/stats/summary` and the pages of metrics.

use http::StatusCode;
use std::fs;

use super::answer::{Answer, json, with_type};
use crate::context::Context;
use crate::pod::observed::State;
use crate::usage::series::{self, Page};
use crate::usage::{Usage, summary};

const FORM: &str = "text/plain; version=0.0.4; charset=utf-8";

fn page(text: String) -> Answer {
    with_type(StatusCode::OK, FORM, text)
}

/// `/stats/summary`.
pub fn stats(context: &Context, usage: &Usage) -> Answer {
    let started = |uid: &str, container: Option<&str>| {
        let status = context.reporter.status(uid)?;
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
    json(&summary::summary(&context.config.name, &usage.latest(), &started))
}

/// `/metrics/resource`.
pub fn resource(usage: &Usage) -> Answer {
    page(series::resource(&usage.latest()))
}

/// `/metrics/cadvisor`.
pub fn cadvisor(usage: &Usage) -> Answer {
    page(series::cadvisor(&usage.latest()))
}

/// `/metrics/probes`.
pub fn probes(context: &Context) -> Answer {
    let mut out = Page::default();
    out.family(
        "prober_probe_total",
        "counter",
        "Cumulative number of a liveness, readiness or startup probe for a container by result.",
    );
    for total in context.probes.totals() {
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
    page(out.finish())
}

/// `/metrics`: the agent itself.
pub fn agent(context: &Context) -> Answer {
    let mut out = Page::default();
    let entries = context.pods.list();
    let running =
        |state| entries.iter().flat_map(|entry| &entry.view.containers).filter(|c| c.state == state).count();
    let alive =
        |entry: &crate::pod::table::Entry| entry.view.containers.iter().any(|c| c.state == State::Running);
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
    out.value("kubelet_node_name", &[("node", &context.config.name)], 1);
    out.family("kubernetes_build_info", "gauge", "A metric with a constant '1' value labeled by version.");
    let version = concat!("v1.35.0+coracle-", env!("CARGO_PKG_VERSION"));
    out.value("kubernetes_build_info", &[("git_version", version), ("major", "1"), ("minor", "35")], 1);
    process(&mut out);
    page(out.finish())
}

/// The process as Prometheus' clients show it.
fn process(out: &mut Page) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may hold blanks; everything behind its bracket is numbers.
    let fields: Vec<u64> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0)).collect())
        .unwrap_or_default();
    let field = |at: usize| fields.get(at).copied().unwrap_or(0);
    let cpu = (field(10) + field(11)) as f64 / 100.0;
    out.single(
        "process_cpu_seconds_total",
        "counter",
        "Total user and system CPU time spent in seconds.",
        cpu,
    );
    out.single("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", field(19));
    out.single("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", field(20) * 4096);
    let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    out.single("process_open_fds", "gauge", "Number of open file descriptors.", open);
}
