//! Metrics from the metrics APIs: resource usage of pods, custom metrics, external metrics.

use async_trait::async_trait;
use coracle_client::Client;
use coracle_client::aggregated::{AggregatedObjects, AggregatedRead, AggregatedReadError};
use coracle_client::user::User;
use coracle_fields::metrics::v1beta1::{PodMetrics, PodMetricsList};
use coracle_fields::{Schema as _, View};
use coracle_informer::time;
use coracle_kinds::registry::usage::quantity;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

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

/// A metric of the custom or external metrics API.
#[derive(Debug, Clone, Copy)]
pub struct MetricQuery<'a> {
    /// The namespace of the autoscaler.
    pub namespace: &'a str,
    /// Name of the metric.
    pub metric: &'a str,
    /// Selector of series of the metric; empty for all.
    pub selector: &'a str,
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
    /// No server has `custom.metrics.k8s.io`.
    #[error(
        "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
    )]
    NoCustom,
    /// No server has `external.metrics.k8s.io`, which is not looked for: the request for a metric fails.
    #[error(
        "unable to fetch metrics from external metrics API: the server could not find the requested resource (get {0}.external.metrics.k8s.io)"
    )]
    NoExternal(String),
    /// Such an API was not read.
    #[error("unable to fetch metrics from {api} metrics API: {error}")]
    Fetch {
        /// `custom` or `external`.
        api: &'static str,
        /// Why.
        error: AggregatedReadError,
    },
    /// It has no value.
    #[error("no metrics returned from {0} metrics API")]
    Empty(&'static str),
    /// One value was asked for.
    #[error(
        "unable to fetch metrics from custom metrics API: the custom metrics API server returned {0} results when we asked for exactly one"
    )]
    NotOne(usize),
    /// A value that is no quantity.
    #[error("unable to fetch metrics from {api} metrics API: {value} is not a quantity")]
    NotAQuantity {
        /// `custom` or `external`.
        api: &'static str,
        /// As it came.
        value: String,
    },
    /// The kind of the object is not known.
    #[error(
        "unable to fetch metrics from custom metrics API: unable to map kind {0} to resource: no matches for kind {0:?}"
    )]
    NoKind(String),
}

/// A source of metrics. Values are in thousandths.
#[async_trait]
pub trait Metrics: Send + Sync {
    /// What the pods of a namespace used, by name.
    async fn pods(&self, namespace: &str) -> Result<BTreeMap<String, PodUsage>, MetricsError>;

    /// A custom metric of the pods that a selector selects, by name. The value is that of the resource "" in the container "".
    async fn custom(
        &self,
        _query: MetricQuery<'_>,
        _pods: &str,
    ) -> Result<BTreeMap<String, PodUsage>, MetricsError> {
        Err(MetricsError::NoCustom)
    }

    /// A custom metric of an object: its `apiVersion`, kind and name.
    async fn object(
        &self,
        _query: MetricQuery<'_>,
        _object: (&str, &str, &str),
    ) -> Result<i64, MetricsError> {
        Err(MetricsError::NoCustom)
    }

    /// All values of an external metric.
    async fn external(&self, query: MetricQuery<'_>) -> Result<Vec<i64>, MetricsError> {
        Err(not_registered(EXTERNAL, query.metric))
    }
}

/// The server's own `metrics.k8s.io`, when it serves one, and the custom and external metrics APIs of aggregated servers.
pub struct Served {
    /// Reads `metrics.k8s.io`.
    pub client: Client,
    /// The aggregated servers.
    pub extensions: Option<Arc<dyn AggregatedObjects>>,
}

const CUSTOM: &str = "custom";
const EXTERNAL: &str = "external";

fn not_registered(api: &str, metric: &str) -> MetricsError {
    if api == EXTERNAL { MetricsError::NoExternal(metric.to_owned()) } else { MetricsError::NoCustom }
}

impl Served {
    async fn read(
        &self,
        api: &'static str,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Value, MetricsError> {
        // The metric is the last part of the path.
        let absent = || not_registered(api, path.last().copied().unwrap_or_default());
        let extensions = self.extensions.as_ref().ok_or_else(absent)?;
        let group = format!("{api}.metrics.k8s.io");
        let versions: &[&str] = if api == CUSTOM { &["v1beta2", "v1beta1"] } else { &["v1beta1"] };
        let request = AggregatedRead { group: &group, versions, path, query };
        let answer = extensions.read(request, &User::service_account("kube-system", super::NAME)).await;
        answer.ok_or_else(absent)?.map_err(|error| MetricsError::Fetch { api, error })
    }

    /// The path segment of a kind: its resource, with the group where it has one.
    fn resource(&self, api_version: &str, kind: &str) -> Result<String, MetricsError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let row = self.client.registry().kind(group, version, kind);
        let row = row.ok_or_else(|| MetricsError::NoKind(kind.to_owned()))?;
        Ok(if group.is_empty() { row.plural.clone() } else { format!("{}.{group}", row.plural) })
    }
}

/// The value of an item of the custom or external metrics API.
fn value(api: &'static str, item: &Value) -> Result<i64, MetricsError> {
    let found = quantity(&item["value"]).map(|value| value.milli_value());
    found.ok_or_else(|| MetricsError::NotAQuantity { api, value: item["value"].to_string() })
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

#[async_trait]
impl Metrics for Served {
    async fn pods(&self, namespace: &str) -> Result<BTreeMap<String, PodUsage>, MetricsError> {
        let client = &self.client;
        let kind = client.registry().preferred("metrics.k8s.io", "pods").ok_or(MetricsError::NotServed)?;
        let list =
            client.list_virtual(&kind, namespace).await.map_err(|error| match error.is_not_found() {
                true => MetricsError::NotServed,
                false => MetricsError::Api(error),
            })?;
        Ok(PodMetricsList::of(&list).items().items().filter_map(read).collect())
    }

    async fn custom(
        &self,
        query: MetricQuery<'_>,
        pods: &str,
    ) -> Result<BTreeMap<String, PodUsage>, MetricsError> {
        let path = ["namespaces", query.namespace, "pods", "*", query.metric];
        let parameters = [("labelSelector", pods), ("metricLabelSelector", query.selector)];
        let list = self.read(CUSTOM, &path, &parameters).await?;
        if items(&list).is_empty() {
            return Err(MetricsError::Empty(CUSTOM));
        }
        items(&list).iter().map(of_pod).collect()
    }

    async fn object(
        &self,
        query: MetricQuery<'_>,
        (api_version, kind, name): (&str, &str, &str),
    ) -> Result<i64, MetricsError> {
        let parameters = [("metricLabelSelector", query.selector)];
        let list = if kind == "Namespace" && !api_version.contains('/') {
            // Of its own namespace only, whatever name is given.
            let path = ["namespaces", query.namespace, "metrics", query.metric];
            self.read(CUSTOM, &path, &parameters).await?
        } else {
            let resource = self.resource(api_version, kind)?;
            let path = ["namespaces", query.namespace, &resource, name, query.metric];
            self.read(CUSTOM, &path, &parameters).await?
        };
        match items(&list) {
            [one] => value(CUSTOM, one),
            other => Err(MetricsError::NotOne(other.len())),
        }
    }

    async fn external(&self, query: MetricQuery<'_>) -> Result<Vec<i64>, MetricsError> {
        let path = ["namespaces", query.namespace, query.metric];
        let list = self.read(EXTERNAL, &path, &[("labelSelector", query.selector)]).await?;
        if items(&list).is_empty() {
            return Err(MetricsError::Empty(EXTERNAL));
        }
        items(&list).iter().map(|item| value(EXTERNAL, item)).collect()
    }
}

/// One MetricValue of a pod.
fn of_pod(item: &Value) -> Result<(String, PodUsage), MetricsError> {
    let amount = value(CUSTOM, item)?;
    let window = ["windowSeconds", "window"].iter().find_map(|key| item[key].as_i64()).unwrap_or(60);
    let at = time::parse(item["timestamp"].as_str()).unwrap_or(Timestamp::UNIX_EPOCH);
    let containers = BTreeMap::from([(String::new(), BTreeMap::from([(String::new(), amount)]))]);
    let name = item["describedObject"]["name"].as_str().unwrap_or_default().to_owned();
    Ok((name, PodUsage { at, window, containers }))
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
