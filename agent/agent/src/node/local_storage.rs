//! Enforces local storage limits: emptyDir sizes and ephemeral storage of containers and pods.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use std::collections::HashMap;
use std::path::Path;

use super::eviction::EvictionParts;
use crate::config::NodeConfig;
use crate::events::Kind;
use crate::pod::observed::label;
use crate::pod::{amount, spec};
use coracle_host_dir::{HostDir, measure as measure_tree};

const STORAGE: &str = "ephemeral-storage";

/// What one pod uses: bytes by emptyDir, and by container with its logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of its emptyDirs on disk.
    pub volumes: HashMap<String, i64>,
    /// Of its containers: writable layer and logs.
    pub containers: HashMap<String, i64>,
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
    let stats = parts.runtime.list_container_stats(None).await.unwrap_or_default();
    let config = parts.config.clone();
    let measured = tokio::task::spawn_blocking(move || {
        let measure = |pod: std::sync::Arc<Pod>| {
            let usage = measure(&config, &pod, &stats);
            (pod, usage)
        };
        limited.into_iter().map(measure).collect::<Vec<_>>()
    });
    for (pod, usage) in measured.await.unwrap_or_default() {
        let Some(message) = over(&spec::spec(&pod), &usage) else { continue };
        parts.events.pod(&pod, Kind::Warning, "Evicted", message.clone());
        tracing::info!(
            pod = spec::name(&pod),
            namespace = spec::namespace(&pod),
            uid = spec::uid(&pod),
            "pod evicted: {message}"
        );
        parts.evict(&pod, message);
    }
}

/// The limit of an emptyDir on disk; 0 is none.
fn volume_limits(spec: &PodSpec) -> impl Iterator<Item = (&str, &str, i64)> {
    spec.volumes.iter().flatten().filter_map(|volume| {
        let source = volume.empty_dir.as_ref()?;
        let limit = source.size_limit.as_ref()?;
        let on_disk = source.medium.as_deref().unwrap_or_default() != "Memory";
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
    volume_limits(spec).next().is_some() || container_limits(spec).next().is_some()
}

/// Eviction message of a pod that exceeds a limit.
pub fn over(spec: &PodSpec, usage: &Usage) -> Option<String> {
    let used = |of: &HashMap<String, i64>, name: &str| of.get(name).copied().unwrap_or(0);
    for (name, limit, bytes) in volume_limits(spec) {
        if used(&usage.volumes, name) > bytes {
            return Some(format!("Usage of EmptyDir volume {name:?} exceeds the limit {limit:?}. "));
        }
    }
    // The pod as a whole is limited only when every container is.
    let limits: Vec<_> = container_limits(spec).collect();
    if limits.len() == spec.containers.len() {
        let total = limits.iter().map(|(_, _, bytes)| *bytes).fold(0, i64::saturating_add);
        let all = usage.containers.values().chain(usage.volumes.values());
        let all = all.copied().fold(0, i64::saturating_add);
        if all > total {
            return Some(format!(
                "Pod ephemeral local storage usage exceeds the total limit of containers {total}. "
            ));
        }
    }
    let (name, limit, _) =
        limits.into_iter().find(|(name, _, bytes)| used(&usage.containers, name) > *bytes)?;
    Some(format!("Container {name} exceeded its local ephemeral storage limit {limit:?}. "))
}

fn measure(config: &NodeConfig, pod: &Pod, stats: &[cri::ContainerStats]) -> Usage {
    let uid = spec::uid(pod);
    let spec = spec::spec(pod);
    let mut usage = Usage::default();
    for volume in spec.volumes.iter().flatten() {
        let memory = volume.empty_dir.as_ref().is_none_or(|e| e.medium.as_deref() == Some("Memory"));
        if !memory {
            let bytes = size_of_tree(&config.volume_dir(uid, "empty-dir", &volume.name));
            usage.volumes.insert(volume.name.clone(), bytes);
        }
    }
    let logs = config.pod_log_dir(spec::namespace(pod), spec::name(pod), uid);
    for container in &spec.containers {
        let layer = stats.iter().filter(|stats| {
            let labels = stats.attributes.as_ref().map(|attributes| &attributes.labels);
            let is = |key: &str, value: &str| labels.and_then(|l| l.get(key)).is_some_and(|v| v == value);
            is(label::POD_UID, uid) && is(label::CONTAINER_NAME, &container.name)
        });
        let layer =
            layer.filter_map(|stats| stats.writable_layer.as_ref()?.used_bytes).map(|bytes| bytes.value);
        let layer = i64::try_from(layer.max().unwrap_or(0)).unwrap_or(i64::MAX);
        let bytes = layer.saturating_add(size_of_tree(&logs.join(&container.name)));
        usage.containers.insert(container.name.clone(), bytes);
    }
    usage
}

/// Bytes on disk, as `du` counts them; nothing for a tree that is not there.
fn size_of_tree(dir: &Path) -> i64 {
    let Ok(dir) = HostDir::open(dir) else { return 0 };
    let own = dir.stat().map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0) * 512);
    i64::try_from(measure_tree(dir).bytes.saturating_add(own)).unwrap_or(i64::MAX)
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
        let usage = |volumes: &[(&str, i64)], containers: &[(&str, i64)]| {
            let map =
                |list: &[(&str, i64)]| list.iter().map(|(name, bytes)| (name.to_string(), *bytes)).collect();
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
                Some("Pod ephemeral local storage usage exceeds the total limit of containers 6144. "),
            ),
        ] {
            assert_eq!(over(&spec, &used).as_deref(), want, "{used:?}");
        }
    }

    #[test]
    fn trees_have_a_size() {
        let dir = tempfile::tempdir().unwrap();
        let before = size_of_tree(dir.path());
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/file"), vec![1; 100_000]).unwrap();
        assert!(size_of_tree(dir.path()) >= before + 100_000);
        assert_eq!(size_of_tree(&dir.path().join("none")), 0);
    }
}
