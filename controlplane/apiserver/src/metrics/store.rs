//! Times of requests to the store, with upstream's names.

use super::atomic_histogram::AtomicHistogram;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::exposition::Page;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::time::Duration;

/// Upper bounds of the buckets, in seconds.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];

/// A request to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// A removed object.
    Delete,
}

const OPERATIONS: [&str; 3] = ["create", "update", "delete"];

type Times = [AtomicHistogram<24>; 3];

/// Times by group, resource and operation.
#[derive(Default)]
pub struct StoreTimes(RwLock<BTreeMap<String, BTreeMap<String, Times>>>);

impl StoreTimes {
    /// Counts a request about an object of the kind.
    pub(crate) fn observe(&self, operation: Operation, kind: &Kind, took: Duration) {
        let known = self.0.read();
        if let Some(times) = known.get(&kind.group).and_then(|group| group.get(&kind.plural)) {
            return times[operation as usize].observe(&BUCKETS, took);
        }
        drop(known);
        let mut all = self.0.write();
        let times = all.entry(kind.group.clone()).or_default().entry(kind.plural.clone()).or_default();
        times[operation as usize].observe(&BUCKETS, took);
    }

    /// All of them.
    pub(crate) fn render(&self, page: &mut Page) {
        let name = "etcd_request_duration_seconds";
        page.family(name, "histogram", "Latency of requests to the store, by operation and resource.");
        for (group, resources) in self.0.read().iter() {
            for (resource, times) in resources {
                for (operation, times) in OPERATIONS.into_iter().zip(times) {
                    let labels = [
                        ("group", group.as_str()),
                        ("operation", operation),
                        ("resource", resource.as_str()),
                    ];
                    times.render(page, name, &labels, &BUCKETS);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::exposition::Form;

    #[test]
    fn writes_are_timed_by_resource() {
        let times = StoreTimes::default();
        let kind = Kind::new("apps", "v1", "Deployment", "deployments");
        for operation in [Operation::Create, Operation::Create, Operation::Delete] {
            times.observe(operation, &kind, Duration::from_millis(1));
        }
        let mut page = Page::new(Form::Prometheus);
        times.render(&mut page);
        let text = page.finish();
        for (operation, count) in [("create", 2), ("delete", 1)] {
            let labels = format!("group=\"apps\",operation=\"{operation}\",resource=\"deployments\"");
            let line = format!("etcd_request_duration_seconds_count{{{labels}}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(!text.contains("update"));
    }
}
