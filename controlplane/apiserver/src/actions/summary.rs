//! What `metrics.k8s.io` reads of an agent's `/stats/summary`. A value that cannot be read counts as missing: it is no reason
//! to lose the other pods of the node.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).ok())
}

/// Usage of a node and of its pods.
#[derive(Debug, Deserialize)]
pub(super) struct Summary {
    #[serde(default, deserialize_with = "lenient")]
    pub node: Option<Usage>,
    pub pods: Option<Vec<PodUsage>>,
}

/// Usage of a node or of a container; only the latter has a name here.
#[derive(Debug, Deserialize)]
pub(super) struct Usage {
    pub name: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub cpu: Option<Cpu>,
    #[serde(default, deserialize_with = "lenient")]
    pub memory: Option<Memory>,
}

/// CPU time used per second, and when it was measured.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cpu {
    pub time: Option<String>,
    pub usage_nano_cores: Option<u64>,
}

/// Memory that cannot be reclaimed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Memory {
    pub working_set_bytes: Option<u64>,
}

/// Usage of a pod, by container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodUsage {
    #[serde(default, deserialize_with = "lenient")]
    pub pod_ref: Option<PodRef>,
    pub containers: Option<Vec<Usage>>,
}

/// The pod.
#[derive(Debug, Deserialize)]
pub(super) struct PodRef {
    pub name: Option<String>,
    pub namespace: Option<String>,
}

impl PodRef {
    /// Namespace and name, as one key.
    pub fn key(&self) -> String {
        format!(
            "{}/{}",
            self.namespace.as_deref().unwrap_or_default(),
            self.name.as_deref().unwrap_or_default()
        )
    }
}
