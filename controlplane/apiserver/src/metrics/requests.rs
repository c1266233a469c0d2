//! Request counts and latencies by verb and resource.

use crate::request_info::RequestInfo;
use coracle_proto::exposition::{Histogram, Page};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];
/// The same for latencies without webhooks and queues.
const SLI_BUCKETS: [f64; 21] = [
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// Names come from clients: a flood of unknown resources must not grow the table.
const MOST: usize = 4096;

/// Verb, group, version, resource, subresource, scope.
type Labels = (String, String, String, String, String, &'static str);

#[derive(Clone)]
struct Series {
    times: Histogram,
    /// Without webhooks and queues; not of long-running requests.
    sli: Histogram,
    /// Answers by code; 0 when the client went away before there was one.
    codes: BTreeMap<u16, u64>,
}

impl Default for Series {
    fn default() -> Self {
        Self { times: Histogram::new(&BUCKETS), sli: Histogram::new(&SLI_BUCKETS), codes: BTreeMap::new() }
    }
}

#[derive(Default)]
struct Table {
    series: Mutex<BTreeMap<Labels, Series>>,
    /// Those that read, and those that write.
    in_flight: [AtomicI64; 2],
}

/// Requests by verb and resource.
#[derive(Default)]
pub struct Requests(Arc<Table>);

/// Counts a request when it is dropped.
pub struct Timer {
    labels: Labels,
    begun: Instant,
    code: u16,
    /// How long it took, and how long without webhooks and queues, once it is answered.
    took: Option<(Duration, Duration)>,
    writes: bool,
    long: bool,
    table: Arc<Table>,
}

impl Requests {
    /// Begins to time a request. Paths that are no resource share one series, so that clients cannot grow the table.
    pub fn begin(&self, info: RequestInfo, scope: &'static str) -> Timer {
        let (writes, long) = (!info.verb.reads(), info.long_running());
        self.0.in_flight[usize::from(writes)].fetch_add(1, Ordering::Relaxed);
        let verb = info.verb.as_str().to_ascii_uppercase();
        let labels = (verb, info.group, info.version, info.resource, info.subresource, scope);
        Timer { labels, begun: Instant::now(), code: 0, took: None, writes, long, table: self.0.clone() }
    }

    /// All of them.
    pub fn render(&self, page: &mut Page) {
        let all = self.0.series.lock().clone();
        let labels = |labels: &Labels| {
            let (verb, group, version, resource, sub, scope) = labels.clone();
            [
                ("component", "apiserver".to_owned()),
                ("dry_run", String::new()),
                ("group", group),
                ("resource", resource),
                ("scope", scope.to_owned()),
                ("subresource", sub),
                ("verb", verb),
                ("version", version),
            ]
        };
        let name = "apiserver_request_duration_seconds";
        page.family(name, "histogram", "Response latency in seconds by verb, group, version and resource.");
        for (of, series) in &all {
            let labels = labels(of);
            let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
            page.histogram(name, &labels, &series.times);
        }
        let name = "apiserver_request_sli_duration_seconds";
        let help = "Response latency in seconds without webhooks and priority and fairness queues.";
        page.family(name, "histogram", help);
        for (of, series) in all.iter().filter(|(_, series)| series.sli.count() > 0) {
            let labels = labels(of);
            let labels: Vec<(&str, &str)> =
                labels.iter().filter(|(k, _)| *k != "dry_run").map(|(k, v)| (*k, v.as_str())).collect();
            page.histogram(name, &labels, &series.sli);
        }
        let name = "apiserver_request_total";
        page.family(name, "counter", "Requests by verb, group, version, resource and HTTP code.");
        for (of, series) in &all {
            let labels = labels(of);
            for (code, count) in &series.codes {
                let code = code.to_string();
                let mut labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
                labels.insert(0, ("code", &code));
                page.value(name, &labels, count);
            }
        }
        let name = "apiserver_current_inflight_requests";
        page.family(name, "gauge", "Requests being served by kind of request.");
        for (kind, count) in ["readOnly", "mutating"].into_iter().zip(&self.0.in_flight) {
            page.value(name, &[("request_kind", kind)], count.load(Ordering::Relaxed));
        }
    }
}

impl Timer {
    /// Notes the answer's code, how long the request took, and how much of that were webhooks and queues.
    pub fn answered(&mut self, code: u16, total: Duration, elsewhere: Duration) {
        self.code = code;
        self.took = Some((total, total.saturating_sub(elsewhere)));
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.table.in_flight[usize::from(self.writes)].fetch_sub(1, Ordering::Relaxed);
        let total = self.took.map_or_else(|| self.begun.elapsed(), |(total, _)| total);
        let mut all = self.table.series.lock();
        if all.len() > MOST && !all.contains_key(&self.labels) {
            return;
        }
        let series = all.entry(std::mem::take(&mut self.labels)).or_default();
        series.times.observe(total.as_secs_f64());
        if let Some((_, own)) = self.took.filter(|_| !self.long) {
            series.sli.observe(own.as_secs_f64());
        }
        *series.codes.entry(self.code).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::exposition::Form;

    #[test]
    fn requests_are_counted_by_code_and_while_they_last() {
        let requests = Requests::default();
        let info = RequestInfo {
            verb: "create".into(),
            is_resource: true,
            version: "v1".into(),
            resource: "pods".into(),
            namespace: "default".into(),
            ..RequestInfo::default()
        };
        let page = |requests: &Requests| {
            let mut page = Page::new(Form::Prometheus);
            requests.render(&mut page);
            page.finish()
        };
        let mut timer = requests.begin(info.clone(), info.scope());
        assert!(
            page(&requests).contains("apiserver_current_inflight_requests{request_kind=\"mutating\"} 1\n")
        );
        timer.answered(201, Duration::from_millis(300), Duration::from_millis(200));
        drop(timer);
        drop(requests.begin(info.clone(), info.scope()));
        let text = page(&requests);
        let labels = "component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\",scope=\"namespace\",\
                      subresource=\"\",verb=\"CREATE\",version=\"v1\"";
        for code in [0, 201] {
            let line = format!("apiserver_request_total{{code=\"{code}\",{labels}}} 1\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(
            text.contains(&format!("apiserver_request_duration_seconds_count{{{labels}}} 2\n")),
            "{text}"
        );
        let labels = labels.replace("dry_run=\"\",", "");
        let sli = format!("apiserver_request_sli_duration_seconds_bucket{{{labels},le=\"0.2\"}} 1\n");
        assert!(text.contains(&sli), "{sli}{text}");
    }
}
