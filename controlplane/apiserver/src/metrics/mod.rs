//! Metrics of the server for Prometheus, with upstream's names.

// Histograms that are counted without a lock.
pub(crate) mod atomic_histogram;
// Quantiles of times, counted without a lock.
pub(crate) mod atomic_summary;
// Requests by verb and resource.
pub mod requests;
// Requests to the store.
pub mod store;
// Events of watches.
pub mod watches;

use crate::objects::Objects;
use crate::version::version;
use coracle_cli::supervise::Supervisor;
use coracle_client::diagnostics::MetricsSource;
use coracle_proto::exposition::{Form, Page};
use requests::Requests;
use std::sync::Arc;
use store::StoreTimes;
use watches::WatchEvents;

/// The metrics of the server.
#[derive(Default)]
pub struct Metrics {
    /// Metrics of API requests.
    pub requests: Requests,
    /// Metrics of other parts: flow control, controllers, scheduler.
    pub sources: Vec<Arc<dyn MetricsSource>>,
}

/// Metrics of reads and writes of objects, by HTTP or in process.
#[derive(Default)]
pub struct ApiMetrics {
    /// Times of the store.
    pub store: StoreTimes,
    /// Events of watches.
    pub watches: WatchEvents,
}

impl ApiMetrics {
    pub(crate) fn render(&self, page: &mut Page) {
        self.store.render(page);
        self.watches.render(page);
    }
}

impl Metrics {
    /// Renders all metrics.
    pub fn render(&self, objects: &Objects, supervisor: &Supervisor, form: Form) -> String {
        let mut page = Page::new(form);
        self.requests.render(&mut page);
        page.family("apiserver_storage_objects", "gauge", "Number of stored objects by resource.");
        for kind in objects.registry.all().iter().filter(|k| k.stored && k.stored_as.is_none()) {
            if let Ok(cache) = objects.cache(kind) {
                let resource = coracle_proto::status::qualified(&kind.group, &kind.plural);
                page.value("apiserver_storage_objects", &[("resource", &resource)], cache.len());
            }
        }
        page.family(
            "coracle_unreadable_objects",
            "gauge",
            "Number of stored objects that cannot be read and are left out of lists and watches.",
        );
        page.value("coracle_unreadable_objects", &[], objects.reflector.unreadable().len());
        self.sources.iter().for_each(|source| source.render(&mut page));
        tasks(supervisor, &mut page);
        let version = version();
        let text = |key: &str| version[key].as_str().unwrap_or_default().to_owned();
        page.family("kubernetes_build_info", "gauge", "A constant 1, labelled by version.");
        let (full, major, minor) = (text("gitVersion"), text("major"), text("minor"));
        page.value(
            "kubernetes_build_info",
            &[("git_version", &full), ("major", &major), ("minor", &minor)],
            1,
        );
        page.process();
        page.finish()
    }
}

/// Metrics of the server's tasks.
fn tasks(supervisor: &Supervisor, page: &mut Page) {
    let name = "coracle_task_panics_total";
    page.family(name, "counter", "Panics that were caught, by the task that panicked.");
    for (task, count) in supervisor.panics() {
        page.value(name, &[("task", &task)], count);
    }
    let name = "coracle_tasks_dead";
    page.single(name, "gauge", "Tasks that failed many times in a row.", supervisor.dead().len());
    let name = "coracle_quarantined_objects";
    page.single(name, "gauge", "Objects that made a task panic.", supervisor.quarantined().len());
}
