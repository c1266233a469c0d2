//! Usage as CRI metrics: descriptors, and samples whose label values are in the order of the descriptor's keys.

use std::collections::HashMap;

use coracle_proto::cri;

use crate::metric_families::{CONTAINER, Family, INTERFACE};

/// `id` and `name` are both the container's, as in cAdvisor's series of runtimes without names.
const CONTAINER_KEYS: [&str; 6] = ["id", "name", "image", "container", "pod", "namespace"];
const INTERFACE_KEYS: [&str; 4] = ["id", "pod", "namespace", "interface"];

/// Descriptors of the metrics of [`rows`].
pub fn descriptors() -> Vec<cri::MetricDescriptor> {
    fn of<T: 'static>(
        families: &'static [Family<T>],
        keys: &[&str],
    ) -> impl Iterator<Item = cri::MetricDescriptor> {
        let label_keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
        families.iter().map(move |family| cri::MetricDescriptor {
            name: family.name.into(),
            help: family.help.into(),
            label_keys: label_keys.clone(),
        })
    }
    of(&CONTAINER, &CONTAINER_KEYS).chain(of(&INTERFACE, &INTERFACE_KEYS)).collect()
}

/// Metrics of pods; `images` are image names by container id. Values are integers, as CRI requires.
pub fn rows(pods: &[cri::PodSandboxStats], images: &HashMap<String, String>) -> Vec<cri::PodSandboxMetrics> {
    pods.iter().filter_map(|pod| of_pod(pod, images)).collect()
}

fn of_pod(pod: &cri::PodSandboxStats, images: &HashMap<String, String>) -> Option<cri::PodSandboxMetrics> {
    let (attributes, linux) = (pod.attributes.as_ref()?, pod.linux.as_ref()?);
    let meta = attributes.metadata.as_ref()?;
    let mut metrics = Vec::new();
    if let Some(network) = &linux.network {
        for interface in network.default_interface.iter().chain(&network.interfaces) {
            let labels = [&attributes.id, &meta.name, &meta.namespace, &interface.name];
            metrics.extend(read(&INTERFACE, interface, network.timestamp, &labels));
        }
    }
    let of_container = |stats: &cri::ContainerStats| {
        let attributes = stats.attributes.as_ref()?;
        let (id, image) = (&attributes.id, images.get(&attributes.id).cloned().unwrap_or_default());
        let labels = [id, id, &image, &attributes.metadata.as_ref()?.name, &meta.name, &meta.namespace];
        let at = stats.cpu.as_ref().map_or(0, |cpu| cpu.timestamp);
        let metrics = read(&CONTAINER, stats, at, &labels).collect();
        Some(cri::ContainerMetrics { container_id: id.clone(), metrics })
    };
    Some(cri::PodSandboxMetrics {
        pod_sandbox_id: attributes.id.clone(),
        metrics,
        container_metrics: linux.containers.iter().filter_map(of_container).collect(),
    })
}

fn read<T: 'static>(
    families: &'static [Family<T>],
    from: &T,
    timestamp: i64,
    labels: &[&String],
) -> impl Iterator<Item = cri::Metric> {
    families.iter().filter_map(move |family| {
        let kind = if family.kind == "counter" { cri::MetricType::Counter } else { cri::MetricType::Gauge };
        Some(cri::Metric {
            name: family.name.into(),
            timestamp,
            metric_type: kind.into(),
            label_values: labels.iter().map(|label| label.to_string()).collect(),
            value: Some(cri::UInt64Value { value: (family.read)(from)? as u64 }),
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_row_has_the_labels_of_its_descriptor() {
        let number = |value| Some(cri::UInt64Value { value });
        let container = cri::ContainerStats {
            attributes: Some(cri::ContainerAttributes {
                id: "c1".into(),
                metadata: Some(cri::ContainerMetadata { name: "web".into(), attempt: 0 }),
                ..Default::default()
            }),
            cpu: Some(cri::CpuUsage {
                timestamp: 5,
                usage_core_nano_seconds: number(2_900_000_000),
                ..Default::default()
            }),
            ..Default::default()
        };
        let eth0 =
            cri::NetworkInterfaceUsage { name: "eth0".into(), rx_bytes: number(7), ..Default::default() };
        let pod = cri::PodSandboxStats {
            attributes: Some(cri::PodSandboxAttributes {
                id: "p1".into(),
                metadata: Some(cri::PodSandboxMetadata {
                    name: "pod".into(),
                    namespace: "ns".into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            linux: Some(cri::LinuxPodSandboxStats {
                network: Some(cri::NetworkUsage { default_interface: Some(eth0), ..Default::default() }),
                containers: vec![container],
                ..Default::default()
            }),
            ..Default::default()
        };
        let images = HashMap::from([("c1".to_owned(), "nginx:1".to_owned())]);
        let rows = rows(&[pod, cri::PodSandboxStats::default()], &images);
        let [pod] = &rows[..] else { panic!("{rows:?}") };
        let [metric] = &pod.container_metrics[0].metrics[..] else { panic!("{pod:?}") };
        assert_eq!(
            (metric.name.as_str(), metric.value, metric.timestamp),
            ("container_cpu_usage_seconds_total", number(2), 5)
        );
        assert_eq!(metric.label_values, ["c1", "c1", "nginx:1", "web", "pod", "ns"]);
        let [received] = &pod.metrics[..] else { panic!("{pod:?}") };
        assert_eq!((received.value, received.label_values.last().unwrap().as_str()), (number(7), "eth0"));
        let descriptors = descriptors();
        for row in [metric, received] {
            let descriptor = descriptors.iter().find(|d| d.name == row.name).unwrap();
            assert_eq!(descriptor.label_keys.len(), row.label_values.len(), "{}", row.name);
        }
    }
}
