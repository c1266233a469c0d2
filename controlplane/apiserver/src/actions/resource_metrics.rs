//! `metrics.k8s.io`: current usage of nodes and pods, read from the agents. Nothing is stored.

use super::summary::{PodUsage, Summary, Usage};
use crate::nodes::agent::Nodes;
use crate::objects::Objects;
use crate::run_action::{Action, Call};
use crate::usage_history::{Entry, Sample};
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::pipeline::Reply;
use coracle_fields::core::v1::Pod;
use coracle_fields::metrics::v1beta1::{ContainerMetrics, NodeMetrics, PodMetrics};
use coracle_fields::{Schema as _, make};
use coracle_kinds::object::Object;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The group.
pub const GROUP: &str = "metrics.k8s.io";
const VERSION: &str = "v1beta1";
/// Agents read their figures every five seconds; asking them more often than this tells nothing new.
const FRESH: Duration = Duration::from_secs(3);
/// A node that does not answer must not hold up the others.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How many containers of a pod are sampled.
const CONTAINERS: usize = 256;
/// The span that rates are over.
const WINDOW: &str = "5s";

/// Figures of all nodes, by node.
#[derive(Default)]
pub struct ResourceMetrics {
    /// Where the agents are; without them no node has figures.
    nodes: Option<Arc<Nodes>>,
    kept: Mutex<HashMap<String, (Instant, Arc<Summary>)>>,
}

/// The rows: nodes and pods that are figures.
pub fn register(registry: &Registry) {
    let row = |kind: &str, plural: &str| {
        let mut row = Kind::new(GROUP, VERSION, kind, plural).unstored(&["get", "list"]);
        // `node` and `pod` are the objects themselves.
        row.singular = String::new();
        row
    };
    registry.register(row("NodeMetrics", "nodes").cluster());
    registry.register(row("PodMetrics", "pods"));
}

/// The actions behind the rows.
pub fn actions(usage: &Arc<ResourceMetrics>) -> [(&'static str, Arc<dyn Action>); 2] {
    [
        ("nodes", Arc::new(Figures { usage: usage.clone(), of: Of::Nodes })),
        ("pods", Arc::new(Figures { usage: usage.clone(), of: Of::Pods })),
    ]
}

impl ResourceMetrics {
    /// Asks the agents of these nodes.
    pub fn new(nodes: Arc<Nodes>) -> Self {
        Self { nodes: Some(nodes), kept: Mutex::default() }
    }

    /// What the agents of these nodes say; those that cannot be asked are left out.
    async fn summaries(&self, names: Vec<String>) -> Vec<(String, Arc<Summary>)> {
        let asked = names.into_iter().map(|name| {
            let nodes = self.nodes.as_ref();
            async move {
                let kept = self
                    .kept
                    .lock()
                    .get(&name)
                    .filter(|(at, _)| at.elapsed() < FRESH)
                    .map(|(_, v)| v.clone());
                if let Some(kept) = kept {
                    return Some((name, kept));
                }
                let answer = nodes?;
                let answer =
                    tokio::time::timeout(REQUEST_TIMEOUT, answer.json::<Summary>(&name, "/stats/summary"))
                        .await;
                match answer {
                    Ok(Ok(summary)) => {
                        let summary = Arc::new(summary);
                        self.kept.lock().insert(name.clone(), (Instant::now(), summary.clone()));
                        Some((name, summary))
                    }
                    Ok(Err(error)) => {
                        tracing::debug!(
                            node = name,
                            message = error.message,
                            "usage of a node is not available"
                        );
                        None
                    }
                    Err(_) => None,
                }
            }
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Figures of nodes, as NodeMetrics; only of `name` when it is given.
    pub async fn nodes(&self, objects: &Objects, name: Option<&str>) -> Result<Vec<Value>, ApiError> {
        let kind = objects.registry.resource("", "v1", "nodes").ok_or_else(ApiError::no_such_path)?;
        let all = objects.cache(&kind)?.list(None);
        let wanted: Vec<_> =
            all.into_iter().filter(|node| name.is_none_or(|name| node.meta.name == name)).collect();
        // Figures of nodes that are gone are of no use.
        if name.is_none() {
            self.kept.lock().retain(|kept, _| wanted.iter().any(|node| node.meta.name == *kept));
        }
        let labels: HashMap<&str, &Labels> =
            wanted.iter().map(|node| (node.meta.name.as_str(), &node.meta.labels)).collect();
        let summaries = self.summaries(wanted.iter().map(|node| node.meta.name.clone()).collect()).await;
        Ok(summaries
            .iter()
            .filter_map(|(name, summary)| {
                node_metrics(name, summary.node.as_ref()?, labels.get(name.as_str())?)
            })
            .collect())
    }

    /// What the nodes of pods say about them: about pods of a namespace or of all, only about `name` when it is given.
    async fn reported(
        &self,
        objects: &Objects,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<Reported, ApiError> {
        let kind = objects.registry.resource("", "v1", "pods").ok_or_else(ApiError::no_such_path)?;
        let pods = objects.cache(&kind)?.list(namespace).into_iter();
        let pods = pods_on_nodes(pods.filter(|pod| name.is_none_or(|name| pod.meta.name == name)));
        let nodes: BTreeSet<&String> = pods.values().map(|(node, _)| node).collect();
        let summaries = self.summaries(nodes.into_iter().cloned().collect()).await;
        Ok(Reported { pods, summaries })
    }

    /// What every container uses now, for the history of usage.
    pub async fn samples(&self, objects: &Objects) -> Result<Vec<Sample>, ApiError> {
        let reported = self.reported(objects, None, None).await?;
        Ok(reported.usages().flat_map(|(usage, pod)| container_samples(usage, pod)).collect())
    }

    /// Figures of pods, as PodMetrics: of a namespace or of all, only of `name` when it is given.
    pub async fn pods(
        &self,
        objects: &Objects,
        namespace: &str,
        name: Option<&str>,
    ) -> Result<Vec<Value>, ApiError> {
        let scope = Some(namespace).filter(|namespace| !namespace.is_empty());
        let reported = self.reported(objects, scope, name).await?;
        let mut found: Vec<Value> =
            reported.usages().filter_map(|(usage, pod)| pod_metrics(usage, &pod.meta.labels)).collect();
        found.sort_by_cached_key(|pod| {
            let meta = PodMetrics::of(pod).metadata();
            (meta.namespace().text().to_owned(), meta.name().text().to_owned())
        });
        Ok(found)
    }
}

/// Pods with the nodes on which they run, by namespace and name.
type PodsOnNodes = HashMap<String, (String, Arc<Object>)>;

/// Without those that have no node yet.
fn pods_on_nodes(pods: impl Iterator<Item = Arc<Object>>) -> PodsOnNodes {
    let placed = |pod: Arc<Object>| {
        let node = pod.doc().view::<Pod>().spec().node_name().filled().map(str::to_owned)?;
        Some((format!("{}/{}", pod.meta.namespace, pod.meta.name), (node, pod)))
    };
    pods.filter_map(placed).collect()
}

/// Pods, and what their nodes say.
struct Reported {
    pods: PodsOnNodes,
    summaries: Vec<(String, Arc<Summary>)>,
}

impl Reported {
    /// The figures of each pod, once. A node has a say about the pods that run on it, and about no others.
    fn usages(&self) -> impl Iterator<Item = (&PodUsage, &Object)> {
        let mut seen = HashSet::new();
        let all = self
            .summaries
            .iter()
            .flat_map(|(from, summary)| summary.pods.iter().flatten().map(move |usage| (from, usage)));
        all.filter_map(move |(from, usage)| {
            let (key, (node, pod)) = self.pods.get_key_value(&usage.pod_ref.as_ref()?.key())?;
            (node == from && seen.insert(key)).then_some((usage, &**pod))
        })
    }
}

/// What the containers of a pod use, by the images that the pod names.
fn container_samples(usage: &PodUsage, pod: &Object) -> Vec<Sample> {
    let doc = pod.doc();
    let spec = doc.view::<Pod>().spec();
    let image = |name: &str| {
        let mut all = spec.containers().items().chain(spec.init_containers().items());
        all.find(|container| container.name() == name).map(|container| container.image().text())
    };
    let sample = |usage: &Usage| {
        let container = usage.name.clone()?;
        let image = image(&container)?.to_owned();
        Some(Sample {
            of: Entry { image, container, namespace: pod.meta.namespace.clone() },
            milli_cpus: usage.cpu.as_ref()?.usage_nano_cores?.div_ceil(1_000_000),
            kibibytes: usage.memory.as_ref()?.working_set_bytes?.div_ceil(1024),
        })
    };
    usage.containers.iter().flatten().take(CONTAINERS).filter_map(sample).collect()
}

/// Labels of a node or pod.
type Labels = BTreeMap<String, String>;

/// `{cpu, memory}` of a usage that has both, and its time.
fn amounts(usage: &Usage) -> Option<([(&'static str, String); 2], &str)> {
    let cpu = usage.cpu.as_ref()?;
    let (nano_cores, memory) = (cpu.usage_nano_cores?, usage.memory.as_ref()?.working_set_bytes?);
    let amounts = [("cpu", format!("{nano_cores}n")), ("memory", format!("{}Ki", memory / 1024))];
    Some((amounts, cpu.time.as_deref().unwrap_or_default()))
}

fn node_metrics(name: &str, usage: &Usage, labels: &Labels) -> Option<Value> {
    let (usage, time) = amounts(usage)?;
    let made = make!(NodeMetrics {
        metadata: { name, creation_timestamp: time, labels },
        timestamp: time,
        window: WINDOW,
        usage,
    });
    Some(made.into_value())
}

fn pod_metrics(pod: &PodUsage, labels: &Labels) -> Option<Value> {
    let mut newest = "";
    let mut containers = Vec::new();
    for container in pod.containers.as_ref()? {
        // A pod of which a container has no figures yet would look smaller than it is.
        let (usage, time) = amounts(container)?;
        newest = newest.max(time);
        containers.push(make!(part ContainerMetrics { name: container.name.as_deref(), usage }));
    }
    if containers.is_empty() {
        return None;
    }
    let of = pod.pod_ref.as_ref()?;
    let made = make!(PodMetrics {
        metadata: {
            name: of.name.as_deref(),
            namespace: of.namespace.as_deref(),
            creation_timestamp: newest,
            labels,
        },
        timestamp: newest,
        window: WINDOW,
        containers,
    });
    Some(made.into_value())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Nodes,
    Pods,
}

struct Figures {
    usage: Arc<ResourceMetrics>,
    of: Of,
}

#[async_trait]
impl Action for Figures {
    async fn call(&self, call: Call<'_>) -> Result<Reply, ApiError> {
        let name = Some(call.name).filter(|_| call.verb == Verb::Get);
        let items = match (&call.verb, self.of) {
            (Verb::Get | Verb::List, Of::Nodes) => self.usage.nodes(&call.api.objects, name).await?,
            (Verb::Get | Verb::List, Of::Pods) => {
                self.usage.pods(&call.api.objects, call.namespace, name).await?
            }
            _ => return Err(ApiError::method_not_allowed()),
        };
        if call.verb == Verb::List {
            let kind = if self.of == Of::Nodes { "NodeMetricsList" } else { "PodMetricsList" };
            return Ok(Reply::Value(
                200,
                json!({"kind": kind, "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": {}, "items": items}),
            ));
        }
        let missing = || match self.of {
            Of::Nodes => ApiError::not_found(GROUP, "nodemetrics", call.name),
            Of::Pods => {
                ApiError::not_found(GROUP, "podmetrics", &format!("{}/{}", call.namespace, call.name))
            }
        };
        items.into_iter().next().map(|item| Reply::Value(200, item)).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;

    #[test]
    fn nodes_report_their_own_pods_once() {
        let pod = |name: &str, node: &str| {
            let metadata = json!({"name": name, "namespace": "s"});
            object(json!({"metadata": metadata, "spec": {"nodeName": node}}))
        };
        let pods = pods_on_nodes([pod("a", "n1"), pod("b", "n2"), pod("c", "")].into_iter());
        let summary = |names: &[&str]| {
            let usage = |name: &&str| json!({"podRef": {"name": name, "namespace": "s"}, "containers": []});
            let pods: Vec<Value> = names.iter().map(usage).collect();
            Arc::new(serde_json::from_value(json!({"pods": pods})).unwrap())
        };
        let summaries = vec![
            ("n1".to_owned(), summary(&["a", "b", "a", "c"])),
            ("n2".to_owned(), summary(&["a", "b", "gone"])),
        ];
        let reported = Reported { pods, summaries };
        let names: Vec<&str> = reported.usages().map(|(_, pod)| pod.meta.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn samples_have_the_image_of_their_container() {
        let containers = json!([{"name": "c", "image": "shop:1"}, {"name": "d", "image": "log:2"}]);
        let pod = json!({"metadata": {"name": "p", "namespace": "s"}, "spec": {"containers": containers}});
        let used = |name: &str, memory: Value| json!({"name": name, "cpu": {"usageNanoCores": 1_500_000}, "memory": {"workingSetBytes": memory}});
        let all = json!([used("c", json!(2049)), used("d", Value::Null), used("gone", json!(1))]);
        let usage = json!({"podRef": {"name": "p", "namespace": "s"}, "containers": all});
        let usage = serde_json::from_value(usage).unwrap();
        let of = Entry { image: "shop:1".into(), container: "c".into(), namespace: "s".into() };
        let pod = object(pod);
        let found = container_samples(&usage, &pod);
        assert_eq!(found, [Sample { of, milli_cpus: 2, kibibytes: 3 }]);
        let many = vec![used("c", json!(1)); CONTAINERS + 1];
        let usage = serde_json::from_value(json!({"containers": many})).unwrap();
        assert_eq!(container_samples(&usage, &pod).len(), CONTAINERS);
    }

    #[test]
    fn figures_become_metrics() {
        let used = |cpu: Value| json!({"name": "c", "cpu": {"time": "T", "usageNanoCores": cpu}, "memory": {"workingSetBytes": 2048}});
        let labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let usage = serde_json::from_value(used(json!(5))).unwrap();
        let node = node_metrics("n", &usage, &labels).unwrap();
        assert_eq!(node["usage"], json!({"cpu": "5n", "memory": "2Ki"}));
        assert_eq!((&node["metadata"]["labels"]["a"], &node["timestamp"]), (&json!("b"), &json!("T")));
        let pod = |containers: Value| {
            let usage = json!({"podRef": {"name": "p", "namespace": "s"}, "containers": containers});
            pod_metrics(&serde_json::from_value(usage).unwrap(), &BTreeMap::new())
        };
        let one = pod(json!([used(json!(5))])).unwrap();
        assert_eq!(one["containers"], json!([{"name": "c", "usage": {"cpu": "5n", "memory": "2Ki"}}]));
        assert_eq!(pod(json!([used(json!(5)), used(Value::Null)])), None, "half of a pod is no pod");
        assert_eq!(pod(json!([])), None);
    }
}
