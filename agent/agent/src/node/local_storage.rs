//! Enforces local storage limits: emptyDir sizes and ephemeral storage of containers and pods.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::eviction_parts::{EvictionParts, binary};
use crate::config::NodeConfig;
use crate::events::Kind;
use crate::pod::observed::label;
use crate::pod::{amount, spec};
use crate::volume::empty_dir::is_on_disk;
use coracle_host_dir::{HostDir, measure as measure_tree};

const STORAGE: &str = "ephemeral-storage";

/// Bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Bytes on disk.
    pub bytes: i64,
    /// Files and directories.
    pub files: i64,
}

impl Amount {
    fn add(self, other: Amount) -> Amount {
        Amount {
            bytes: self.bytes.saturating_add(other.bytes),
            files: self.files.saturating_add(other.files),
        }
    }
}

/// What one pod uses of the node's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of its volumes that live with it: emptyDirs on disk and ConfigMaps.
    pub volumes: HashMap<String, Amount>,
    /// Of its containers of every kind: writable layer and logs.
    pub containers: HashMap<String, Amount>,
}

/// Measures pods; their containers' layers come from the runtime.
pub async fn measure_pods(parts: &EvictionParts, pods: Vec<Arc<Pod>>) -> Vec<(Arc<Pod>, Usage)> {
    let stats = parts.runtime.list_container_stats(None).await.unwrap_or_default();
    let config = parts.config.clone();
    let measured = tokio::task::spawn_blocking(move || {
        let measure = |pod: Arc<Pod>| {
            let usage = measure(&config, &pod, &stats);
            (pod, usage)
        };
        pods.into_iter().map(measure).collect::<Vec<_>>()
    });
    measured.await.unwrap_or_default()
}

/// Evicts pods that exceed their limits. Only pods with limits are measured.
pub async fn check(parts: &EvictionParts) {
    let limited: Vec<_> = parts
        .pods
        .list()
        .into_iter()
        .map(|entry| entry.pod)
        .filter(|pod| has_limits(&spec::spec(pod)) && !spec::is_critical(pod))
        .collect();
    if limited.is_empty() {
        return;
    }
    for (pod, usage) in measure_pods(parts, limited).await {
        let Some(message) = over(&spec::spec(&pod), &usage) else { continue };
        parts.events.pod(&pod, Kind::Warning, "Evicted", message.clone());
        tracing::info!(
            pod = spec::name(&pod),
            namespace = spec::namespace(&pod),
            uid = spec::uid(&pod),
            "pod evicted: {message}"
        );
        parts.evict_over_limit(&pod, message);
    }
}

/// The limit of an emptyDir on disk; 0 is none.
fn volume_limits(spec: &PodSpec) -> impl Iterator<Item = (&str, &str, i64)> {
    spec.volumes.iter().flatten().filter_map(|volume| {
        let source = volume.empty_dir.as_ref()?;
        let limit = source.size_limit.as_ref()?;
        let on_disk = is_on_disk(source);
        let bytes = amount::units(limit);
        (on_disk && bytes > 0).then_some((volume.name.as_str(), limit.0.as_str(), bytes))
    })
}

fn container_limits(spec: &PodSpec) -> impl Iterator<Item = (&str, &str, i64)> {
    spec.containers.iter().filter_map(|container| {
        let limit = container.resources.as_ref()?.limits.as_ref()?.get(STORAGE)?;
        let bytes = amount::units(limit);
        (bytes > 0).then_some((container.name.as_str(), limit.0.as_str(), bytes))
    })
}

fn has_limits(spec: &PodSpec) -> bool {
    volume_limits(spec).next().is_some() || spec::totals(spec, true).contains_key(STORAGE)
}

/// Eviction message of a pod that exceeds a limit.
pub fn over(spec: &PodSpec, usage: &Usage) -> Option<String> {
    let used = |of: &HashMap<String, Amount>, name: &str| of.get(name).map_or(0, |amount| amount.bytes);
    for (name, limit, bytes) in volume_limits(spec) {
        if used(&usage.volumes, name) > bytes {
            return Some(format!("Usage of EmptyDir volume {name:?} exceeds the limit {limit:?}. "));
        }
    }
    // The limits that containers have, sidecars too, are together the limit of the whole pod.
    if let Some(total) = spec::totals(spec, true).get(STORAGE).copied() {
        let all = usage.containers.values().chain(usage.volumes.values());
        if all.map(|amount| amount.bytes).fold(0, i64::saturating_add) > total {
            let total = binary(total);
            return Some(format!(
                "Pod ephemeral local storage usage exceeds the total limit of containers {total}. "
            ));
        }
    }
    let (name, limit, _) =
        container_limits(spec).find(|(name, _, bytes)| used(&usage.containers, name) > *bytes)?;
    Some(format!("Container {name} exceeded its local ephemeral storage limit {limit:?}. "))
}

fn measure(config: &NodeConfig, pod: &Pod, stats: &[cri::ContainerStats]) -> Usage {
    let uid = spec::uid(pod);
    let spec = spec::spec(pod);
    let mut usage = Usage::default();
    for volume in spec.volumes.iter().flatten() {
        let plugin = match volume.empty_dir.as_ref().map(is_on_disk) {
            Some(true) => "empty-dir",
            Some(false) => continue,
            None if volume.config_map.is_some() => "configmap",
            None => continue,
        };
        usage
            .volumes
            .insert(volume.name.clone(), size_of_tree(&config.volume_dir(uid, plugin, &volume.name)));
    }
    let logs = config.pod_log_dir(spec::namespace(pod), spec::name(pod), uid);
    for (_, container) in spec::containers(&spec) {
        let layer = stats.iter().filter(|stats| {
            let labels = stats.attributes.as_ref().map(|attributes| &attributes.labels);
            let is = |key: &str, value: &str| labels.and_then(|l| l.get(key)).is_some_and(|v| v == value);
            is(label::POD_UID, uid) && is(label::CONTAINER_NAME, &container.name)
        });
        let number = |value: Option<cri::UInt64Value>| {
            i64::try_from(value.map_or(0, |value| value.value)).unwrap_or(i64::MAX)
        };
        let layer = layer
            .filter_map(|stats| stats.writable_layer.as_ref())
            .map(|layer| Amount { bytes: number(layer.used_bytes), files: number(layer.inodes_used) });
        let layer = layer.max_by_key(|amount| amount.bytes).unwrap_or_default();
        let amount = layer.add(size_of_tree(&logs.join(&container.name)));
        usage.containers.insert(container.name.clone(), amount);
    }
    usage
}

/// A tree on disk, as `du` counts it; nothing for a tree that is not there.
fn size_of_tree(dir: &Path) -> Amount {
    let Ok(dir) = HostDir::open(dir) else { return Amount::default() };
    let own = dir.stat().map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0) * 512);
    let below = measure_tree(dir);
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Amount { bytes: number(below.bytes.saturating_add(own)), files: number(below.files.saturating_add(1)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn who_uses_too_much() {
        let spec: PodSpec = serde_json::from_value(json!({
            "volumes": [{"name": "small", "emptyDir": {"sizeLimit": "1Ki"}}, {"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "1"}},
                {"name": "free", "emptyDir": {}}],
            "containers": [{"name": "a", "resources": {"limits": {"ephemeral-storage": "2Ki"}}},
                {"name": "b", "resources": {"limits": {"ephemeral-storage": "4Ki"}}}],
        }))
        .unwrap();
        assert!(has_limits(&spec));
        let of = |bytes| Amount { bytes, files: 1 };
        let usage = |volumes: &[(&str, i64)], containers: &[(&str, i64)]| {
            let map = |list: &[(&str, i64)]| {
                list.iter().map(|(name, bytes)| (name.to_string(), of(*bytes))).collect()
            };
            Usage { volumes: map(volumes), containers: map(containers) }
        };
        for (used, want) in [
            (usage(&[("small", 1024)], &[("a", 1)]), None),
            (
                usage(&[("small", 1025)], &[]),
                Some("Usage of EmptyDir volume \"small\" exceeds the limit \"1Ki\". "),
            ),
            (
                usage(&[], &[("a", 2049)]),
                Some("Container a exceeded its local ephemeral storage limit \"2Ki\". "),
            ),
            (
                usage(&[("free", 6000)], &[("a", 200)]),
                Some("Pod ephemeral local storage usage exceeds the total limit of containers 6Ki. "),
            ),
        ] {
            assert_eq!(over(&spec, &used).as_deref(), want, "{used:?}");
        }
    }

    #[test]
    fn a_pod_is_limited_when_some_of_its_containers_are() {
        let limit = json!({"limits": {"ephemeral-storage": "1Ki"}});
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": limit});
        for (spec, total) in [
            (json!({"containers": [{"name": "a", "resources": limit}, {"name": "b"}]}), 1024),
            (json!({"containers": [{"name": "a", "resources": limit}], "initContainers": [sidecar]}), 2048),
            (json!({"containers": [{"name": "a"}], "initContainers": [sidecar]}), 1024),
        ] {
            let parsed: PodSpec = serde_json::from_value(spec.clone()).unwrap();
            assert!(has_limits(&parsed), "{spec}");
            let evicted = |bytes| {
                let amount = Amount { bytes, files: 1 };
                let containers = [("b".to_owned(), amount)].into();
                over(&parsed, &Usage { containers, ..Usage::default() }).is_some()
            };
            assert_eq!((evicted(total), evicted(total + 1)), (false, true), "{spec}");
        }
    }

    #[test]
    fn trees_have_a_size() {
        let dir = tempfile::tempdir().unwrap();
        let before = size_of_tree(dir.path());
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/file"), vec![1; 100_000]).unwrap();
        let after = size_of_tree(dir.path());
        assert!(after.bytes >= before.bytes + 100_000);
        assert_eq!((before.files, after.files), (1, 3));
        assert_eq!(size_of_tree(&dir.path().join("none")), Amount::default());
    }
}
