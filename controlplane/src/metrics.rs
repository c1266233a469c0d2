//! Counters in Prometheus' text form, with upstream's names.

use crate::apiserver::chain::Server;
use crate::apiserver::request_info::RequestInfo;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 9] = [0.005, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0];

/// Verb, group, version, resource, subresource, scope.
type Labels = (String, String, String, String, String, &'static str);

#[derive(Default, Clone)]
struct Series {
    count: u64,
    sum: f64,
    buckets: [u64; BUCKETS.len()],
}

/// Requests by verb and resource.
#[derive(Default)]
pub struct Requests {
    series: Arc<Mutex<BTreeMap<Labels, Series>>>,
    in_flight: Arc<AtomicI64>,
}

/// Counts a request when it is dropped.
pub struct Timer {
    labels: Labels,
    begun: Instant,
    series: Arc<Mutex<BTreeMap<Labels, Series>>>,
    in_flight: Arc<AtomicI64>,
}

impl Requests {
    /// Begins to time a request. Paths that are no resource share one series, so that clients cannot grow the table.
    pub fn begin(&self, info: &RequestInfo) -> Timer {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let labels = (
            info.verb.to_ascii_uppercase(),
            info.group.clone(),
            info.version.clone(),
            info.resource.clone(),
            info.subresource.clone(),
            info.scope(),
        );
        Timer {
            labels,
            begun: Instant::now(),
            series: self.series.clone(),
            in_flight: self.in_flight.clone(),
        }
    }

    /// All counters.
    pub fn render(&self, server: &Server) -> String {
        let mut out = String::new();
        let name = "apiserver_request_duration_seconds";
        let _ = writeln!(
            out,
            "# HELP {name} Time from the request's head to its answer's.\n# TYPE {name} histogram"
        );
        for ((verb, group, version, resource, sub, scope), series) in self.series.lock().iter() {
            let labels = format!(
                "component=\"apiserver\",verb=\"{verb}\",group=\"{group}\",version=\"{version}\",\
                 resource=\"{resource}\",subresource=\"{sub}\",scope=\"{scope}\""
            );
            for (bound, count) in BUCKETS.iter().zip(series.buckets) {
                let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
            }
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", series.count);
            let _ = writeln!(
                out,
                "{name}_sum{{{labels}}} {}\n{name}_count{{{labels}}} {}",
                series.sum, series.count
            );
        }
        let now = self.in_flight.load(Ordering::Relaxed);
        let _ = writeln!(out, "# HELP apiserver_current_inflight_requests Requests being served.");
        let _ = writeln!(
            out,
            "# TYPE apiserver_current_inflight_requests gauge\napiserver_current_inflight_requests {now}"
        );
        let _ = writeln!(
            out,
            "# HELP apiserver_storage_objects Objects by resource.\n# TYPE apiserver_storage_objects gauge"
        );
        for kind in server.api.registry.all().iter().filter(|k| k.stored && k.stored_as.is_none()) {
            if let Ok(cache) = server.api.cache(kind) {
                let resource = coracle_proto::status::qualified(&kind.group, &kind.plural);
                let _ = writeln!(out, "apiserver_storage_objects{{resource=\"{resource}\"}} {}", cache.len());
            }
        }
        out
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        let seconds = self.begun.elapsed().as_secs_f64();
        let mut all = self.series.lock();
        // Names come from clients: a flood of unknown resources must not grow the table.
        if all.len() > 4096 && !all.contains_key(&self.labels) {
            return;
        }
        let series = all.entry(std::mem::take(&mut self.labels)).or_default();
        series.count += 1;
        series.sum += seconds;
        for (count, bound) in series.buckets.iter_mut().zip(BUCKETS) {
            *count += u64::from(seconds <= bound);
        }
    }
}
