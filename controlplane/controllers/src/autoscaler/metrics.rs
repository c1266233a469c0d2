//! Resource usage of pods from the metrics API.

use async_trait::async_trait;
use coracle_client::Client;
use coracle_fields::metrics::v1beta1::{PodMetrics, PodMetricsList};
use coracle_fields::{Schema as _, View};
use coracle_informer::time;
use coracle_kinds::registry::usage::quantity;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// What one pod used, averaged over a window.
#[derive(Debug, Clone, PartialEq)]
pub struct PodUsage {
    /// End of the window.
    pub at: Timestamp,
    /// Its length in seconds.
    pub window: i64,
    /// Thousandths by container and resource.
    pub containers: BTreeMap<String, BTreeMap<String, i64>>,
}

impl PodUsage {
    /// What the pod, or one container of it, used of a resource; `None` when it was not measured.
    pub fn of(&self, resource: &str, container: Option<&str>) -> Option<i64> {
        match container {
            Some(name) => self.containers.get(name)?.get(resource).copied(),
            None => {
                let each: Option<Vec<i64>> =
                    self.containers.values().map(|usage| usage.get(resource).copied()).collect();
                each.filter(|each| !each.is_empty()).map(|each| each.into_iter().fold(0, i64::saturating_add))
            }
        }
    }
}

/// Why it is not known what pods use.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// No server has `metrics.k8s.io`.
    #[error("the server could not find the requested resource (get pods.metrics.k8s.io)")]
    NotServed,
    /// The metrics API refused.
    #[error(transparent)]
    Api(ApiError),
}

/// A source of pod metrics.
#[async_trait]
pub trait Metrics: Send + Sync {
    /// What the pods of a namespace used, by name.
    async fn pods(&self, namespace: &str) -> Result<BTreeMap<String, PodUsage>, MetricsError>;
}

/// The server's own `metrics.k8s.io`, when it serves one.
pub struct Served(pub Client);

#[async_trait]
impl Metrics for Served {
    async fn pods(&self, namespace: &str) -> Result<BTreeMap<String, PodUsage>, MetricsError> {
        let client = &self.0;
        let kind = client.registry().preferred("metrics.k8s.io", "pods").ok_or(MetricsError::NotServed)?;
        let list =
            client.list_virtual(&kind, namespace).await.map_err(|error| match error.is_not_found() {
                true => MetricsError::NotServed,
                false => MetricsError::Api(error),
            })?;
        Ok(PodMetricsList::of(&list).items().items().filter_map(read).collect())
    }
}

/// One PodMetrics.
fn read(item: View<'_, PodMetrics>) -> Option<(String, PodUsage)> {
    let window = item.window().get().and_then(seconds).unwrap_or(30);
    if !item.containers().is_set() {
        return None;
    }
    let mut containers = BTreeMap::new();
    for container in item.containers().items() {
        if !container.usage().is_set() {
            return None;
        }
        let milli = |amount: Value| Some(quantity(&amount)?.milli_value());
        let usage = container.usage().entries();
        let usage = usage.filter_map(|(name, amount)| Some((name.to_owned(), milli(amount.to_value())?)));
        containers.insert(container.name().get()?.to_owned(), usage.collect());
    }
    let at = time::parse(item.timestamp().get())?;
    Some((item.metadata().name().get()?.to_owned(), PodUsage { at, window, containers }))
}

/// Seconds of a duration such as `1m30s` or `10.05s`.
fn seconds(text: &str) -> Option<i64> {
    let (mut total, mut number) = (0.0, String::new());
    for c in text.chars() {
        match c {
            '0'..='9' | '.' => number.push(c),
            unit => {
                let value: f64 = number.parse().ok()?;
                number.clear();
                total += value
                    * match unit {
                        'h' => 3600.0,
                        'm' => 60.0,
                        's' => 1.0,
                        _ => return None,
                    };
            }
        }
    }
    Some(total.ceil() as i64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn pod_metrics_are_read() {
        let item = json!({"metadata": {"name": "p"}, "timestamp": "2026-01-01T00:00:00Z", "window": "1m30s",
            "containers": [{"name": "a", "usage": {"cpu": "250m", "memory": "1Ki"}}, {"name": "b", "usage": {"cpu": "1"}}]});
        let (name, usage) = read(PodMetrics::of(&item)).unwrap();
        assert_eq!((name.as_str(), usage.window), ("p", 90));
        assert_eq!(usage.of("cpu", None), Some(1250));
        assert_eq!(usage.of("cpu", Some("a")), Some(250));
        assert_eq!(usage.of("memory", None), None, "one container was not measured");
        assert_eq!(seconds("10.05s"), Some(11));
    }
}
