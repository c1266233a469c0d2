//! Series in Prometheus' text form, with the kubelet's and cAdvisor's names.

use coracle_proto::cri;
use coracle_proto::exposition::{Form, Page};

use super::Reading;
use coracle_engine::metric_families::{CONTAINER, Family, INTERFACE};

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn get(value: &Option<cri::UInt64Value>) -> Option<u64> {
    value.as_ref().map(|value| value.value)
}

/// One container with the names that its labels carry.
struct Row<'a> {
    container: &'a str,
    image: &'a str,
    id: &'a str,
    pod: &'a str,
    namespace: &'a str,
    stats: &'a cri::ContainerStats,
}

fn containers(reading: &Reading) -> Vec<Row<'_>> {
    let rows = reading.pods.iter().flat_map(|pod| {
        let meta = pod.attributes.as_ref().and_then(|a| a.metadata.as_ref());
        let containers = pod.linux.iter().flat_map(|linux| &linux.containers);
        containers.filter_map(move |stats| {
            let (meta, attributes) = (meta?, stats.attributes.as_ref()?);
            Some(Row {
                container: &attributes.metadata.as_ref()?.name,
                image: attributes.annotations.get("io.kubernetes.container.image").map_or("", String::as_str),
                id: &attributes.id,
                pod: &meta.name,
                namespace: &meta.namespace,
                stats,
            })
        })
    });
    rows.collect()
}

/// `/metrics/resource`.
pub fn resource(reading: &Reading, form: Form) -> String {
    let mut page = Page::new(form);
    let rows = containers(reading);
    let labels = |row: &Row<'_>| {
        [("container", row.container), ("namespace", row.namespace), ("pod", row.pod)]
            .map(|(k, v)| (k, v.to_owned()))
    };
    let mut each =
        |name: &str, kind: &str, help: &str, value: &dyn Fn(&cri::ContainerStats) -> Option<f64>| {
            page.family(name, kind, help);
            for row in &rows {
                if let Some(value) = value(row.stats) {
                    let labels = labels(row);
                    let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
                    page.value(name, &labels, value);
                }
            }
        };
    each(
        "container_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        &|stats| get(&stats.cpu.as_ref()?.usage_core_nano_seconds).map(seconds),
    );
    each(
        "container_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the container in bytes",
        &|stats| get(&stats.memory.as_ref()?.working_set_bytes).map(|bytes| bytes as f64),
    );
    each(
        "container_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current amount of the container swap usage in bytes",
        &|stats| get(&stats.swap.as_ref()?.swap_usage_bytes).map(|bytes| bytes as f64),
    );
    let machine = &reading.machine;
    page.single(
        "node_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        seconds(machine.cpu_total),
    );
    page.single(
        "node_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the node in bytes",
        machine.working_set,
    );
    page.single(
        "node_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current swap usage of the node in bytes",
        machine.swap_used,
    );
    let pods: Vec<_> = reading
        .pods
        .iter()
        .filter_map(|pod| Some((pod.attributes.as_ref()?.metadata.as_ref()?, pod.linux.as_ref()?)))
        .collect();
    page.family(
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
    );
    for (meta, linux) in &pods {
        if let Some(total) = linux.cpu.as_ref().and_then(|cpu| get(&cpu.usage_core_nano_seconds)) {
            let labels = [("namespace", meta.namespace.as_str()), ("pod", &meta.name)];
            page.value("pod_cpu_usage_seconds_total", &labels, seconds(total));
        }
    }
    page.family("pod_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the pod in bytes");
    for (meta, linux) in &pods {
        if let Some(bytes) = linux.memory.as_ref().and_then(|memory| get(&memory.working_set_bytes)) {
            let labels = [("namespace", meta.namespace.as_str()), ("pod", &meta.name)];
            page.value("pod_memory_working_set_bytes", &labels, bytes);
        }
    }
    let failed = u8::from(reading.failed);
    for name in ["resource_scrape_error", "scrape_error"] {
        page.single(
            name,
            "gauge",
            "1 if there was an error while getting container metrics, 0 otherwise",
            failed,
        );
    }
    page.finish()
}

/// `/metrics/cadvisor`: the series that dashboards use.
pub fn cadvisor(reading: &Reading, form: Form) -> String {
    let mut page = Page::new(form);
    let rows = containers(reading);
    for Family { name, kind, help, read } in CONTAINER {
        page.family(name, kind, help);
        for row in &rows {
            let Some(value) = read(row.stats) else { continue };
            let labels = [
                ("container", row.container),
                ("id", row.id),
                ("image", row.image),
                ("name", row.id),
                ("namespace", row.namespace),
                ("pod", row.pod),
            ];
            page.value(name, &labels, value);
        }
    }
    for Family { name, kind, help, read } in INTERFACE {
        page.family(name, kind, help);
        for pod in &reading.pods {
            let Some(meta) = pod.attributes.as_ref().and_then(|a| a.metadata.as_ref()) else { continue };
            let Some(network) = pod.linux.as_ref().and_then(|linux| linux.network.as_ref()) else { continue };
            for interface in network.default_interface.iter().chain(&network.interfaces) {
                if let Some(value) = read(interface) {
                    let labels = [
                        ("interface", interface.name.as_str()),
                        ("namespace", &meta.namespace),
                        ("pod", &meta.name),
                    ];
                    page.value(name, &labels, value);
                }
            }
        }
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_node_has_a_page() {
        let empty = resource(&Reading::default(), Form::Prometheus);
        assert!(empty.contains("\nresource_scrape_error 0\n"), "{empty}");
        let open = resource(&Reading::default(), Form::OpenMetrics);
        assert!(
            open.contains("# TYPE pod_cpu_usage_seconds counter\n") && open.ends_with("# EOF\n"),
            "{open}"
        );
    }
}
