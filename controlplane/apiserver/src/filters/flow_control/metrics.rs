//! Metrics of flow control, with the names of Kubernetes.

use coracle_proto::exposition::{Histogram, Page};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Upper bounds of queue lengths: upstream's.
const LENGTHS: [f64; 8] = [0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];

/// A flow schema and its priority level.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels {
    pub(super) schema: String,
    pub(super) level: String,
}

/// Why a request got no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rejection {
    /// The level has no queues and no free seat.
    ConcurrencyLimit,
    QueueFull,
    TimeOut,
}

impl Rejection {
    fn as_str(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

/// Requests of one flow schema.
struct Counts {
    dispatched: u64,
    rejected: BTreeMap<Rejection, u64>,
    executing: usize,
    queued: usize,
    /// Lengths of queues, as requests found them that had to wait; they count themselves.
    lengths: Histogram,
}

impl Counts {
    fn is_idle(&self) -> bool {
        self.executing == 0 && self.queued == 0
    }
}

/// Requests by flow schema and priority level. Those of a schema that was deleted are kept until its last request ends.
#[derive(Default)]
pub(super) struct FlowMetrics {
    counts: BTreeMap<Arc<Labels>, Counts>,
    /// The schemas that there are.
    current: BTreeSet<Arc<Labels>>,
}

impl FlowMetrics {
    /// These are the schemas from now on.
    pub(super) fn set_schemas(&mut self, schemas: impl IntoIterator<Item = Arc<Labels>>) {
        self.current = schemas.into_iter().collect();
        let current = &self.current;
        self.counts.retain(|flow, counts| current.contains(flow) || !counts.is_idle());
    }

    /// Forgets a flow whose schema is gone, after its last request.
    fn settle(&mut self, flow: &Arc<Labels>) {
        if !self.current.contains(flow) && self.counts.get(flow).is_some_and(Counts::is_idle) {
            self.counts.remove(flow);
        }
    }

    fn of(&mut self, flow: &Arc<Labels>) -> &mut Counts {
        self.counts.entry(flow.clone()).or_insert_with(|| Counts {
            dispatched: 0,
            rejected: BTreeMap::new(),
            executing: 0,
            queued: 0,
            lengths: Histogram::new(&LENGTHS),
        })
    }

    /// A request is executed from now on.
    pub(super) fn begun(&mut self, flow: &Arc<Labels>) {
        let counts = self.of(flow);
        counts.dispatched += 1;
        counts.executing += 1;
    }

    /// A request that had begun has ended.
    pub(super) fn ended(&mut self, flow: &Arc<Labels>) {
        let counts = self.of(flow);
        counts.executing = counts.executing.saturating_sub(1);
        self.settle(flow);
    }

    /// A request waits in a queue of this length.
    pub(super) fn queued(&mut self, flow: &Arc<Labels>, length: usize) {
        let counts = self.of(flow);
        counts.queued += 1;
        counts.lengths.observe(length as f64);
    }

    /// A request waits no longer.
    pub(super) fn left_queue(&mut self, flow: &Arc<Labels>) {
        let counts = self.of(flow);
        counts.queued = counts.queued.saturating_sub(1);
        self.settle(flow);
    }

    /// A request is refused.
    pub(super) fn rejected(&mut self, flow: &Arc<Labels>, why: Rejection) {
        *self.of(flow).rejected.entry(why).or_default() += 1;
        self.settle(flow);
    }

    pub(super) fn render(&self, page: &mut Page) {
        type Read = fn(&Counts) -> u64;
        let values: [(&str, &str, &str, Read); 3] = [
            (
                "apiserver_flowcontrol_dispatched_requests_total",
                "counter",
                "Number of requests executed by API Priority and Fairness subsystem",
                |c| c.dispatched,
            ),
            (
                "apiserver_flowcontrol_current_executing_requests",
                "gauge",
                "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem",
                |c| c.executing as u64,
            ),
            (
                "apiserver_flowcontrol_current_inqueue_requests",
                "gauge",
                "Number of requests currently pending in queues of the API Priority and Fairness subsystem",
                |c| c.queued as u64,
            ),
        ];
        for (name, kind, help, read) in values {
            page.family(name, kind, help);
            for (flow, counts) in &self.counts {
                page.value(name, &labels(flow), read(counts));
            }
        }
        let name = "apiserver_flowcontrol_rejected_requests_total";
        page.family(name, "counter", "Number of requests rejected by API Priority and Fairness subsystem");
        for (flow, counts) in &self.counts {
            for (why, count) in &counts.rejected {
                let [schema, level] = labels(flow);
                page.value(name, &[schema, level, ("reason", why.as_str())], count);
            }
        }
        let name = "apiserver_flowcontrol_request_queue_length_after_enqueue";
        page.family(
            name,
            "histogram",
            "Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is enqueued",
        );
        for (flow, counts) in &self.counts {
            page.histogram(name, &labels(flow), &counts.lengths);
        }
    }
}

fn labels(flow: &Labels) -> [(&str, &str); 2] {
    [("flow_schema", &flow.schema), ("priority_level", &flow.level)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::exposition::Form;

    #[test]
    fn requests_are_counted_by_schema_and_level() {
        let mut metrics = FlowMetrics::default();
        let flow = Arc::new(Labels { schema: "s".into(), level: "l".into() });
        metrics.set_schemas([flow.clone()]);
        for length in [1, 12] {
            metrics.queued(&flow, length);
        }
        metrics.left_queue(&flow);
        metrics.begun(&flow);
        metrics.begun(&flow);
        metrics.ended(&flow);
        metrics.rejected(&flow, Rejection::QueueFull);
        let mut page = Page::new(Form::Prometheus);
        metrics.render(&mut page);
        let text = page.finish();
        for (name, labels, value) in [
            ("dispatched_requests_total", "", 2),
            ("current_executing_requests", "", 1),
            ("current_inqueue_requests", "", 1),
            ("rejected_requests_total", ",reason=\"queue-full\"", 1),
            ("request_queue_length_after_enqueue_bucket", ",le=\"10\"", 1),
            ("request_queue_length_after_enqueue_sum", "", 13),
            ("request_queue_length_after_enqueue_count", "", 2),
        ] {
            let line = format!(
                "apiserver_flowcontrol_{name}{{flow_schema=\"s\",priority_level=\"l\"{labels}}} {value}\n"
            );
            assert!(text.contains(&line), "{line}{text}");
        }
    }

    #[test]
    fn a_deleted_schema_is_forgotten_after_its_last_request() {
        let [kept, deleted] =
            ["kept", "deleted"].map(|schema| Arc::new(Labels { schema: schema.into(), level: "l".into() }));
        let mut metrics = FlowMetrics::default();
        metrics.set_schemas([kept.clone(), deleted.clone()]);
        for flow in [&kept, &deleted] {
            metrics.begun(flow);
            metrics.ended(flow);
        }
        metrics.queued(&deleted, 1);
        metrics.set_schemas([kept.clone()]);
        assert_eq!(metrics.counts.len(), 2, "a request waits");
        metrics.left_queue(&deleted);
        metrics.begun(&deleted);
        assert_eq!(metrics.counts.len(), 2, "it runs");
        metrics.ended(&deleted);
        metrics.rejected(&deleted, Rejection::TimeOut);
        assert_eq!(metrics.counts.keys().collect::<Vec<_>>(), [&kept]);
        metrics.begun(&deleted);
        metrics.ended(&deleted);
        metrics.set_schemas([]);
        assert!(metrics.counts.is_empty());
    }
}
