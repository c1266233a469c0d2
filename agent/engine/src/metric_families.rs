//! Prometheus metric families of container usage, with cAdvisor's names.

use coracle_proto::cri;

/// A metric family with samples computed from `T`.
#[derive(Debug)]
pub struct Family<T> {
    /// Name.
    pub name: &'static str,
    /// `counter` or `gauge`.
    pub kind: &'static str,
    /// Help text.
    pub help: &'static str,
    /// The value of a sample, if it is known.
    pub read: fn(&T) -> Option<f64>,
}

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

const fn family<T>(
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    read: fn(&T) -> Option<f64>,
) -> Family<T> {
    Family { name, kind, help, read }
}

fn get(value: &Option<cri::UInt64Value>) -> Option<f64> {
    value.as_ref().map(|value| value.value as f64)
}

fn seconds(nanos: f64) -> f64 {
    nanos / 1e9
}

/// Families of containers.
pub const CONTAINER: [Family<cri::ContainerStats>; 8] = [
    family("container_cpu_usage_seconds_total", COUNTER, "Cumulative cpu time consumed in seconds.", |s| {
        get(&s.cpu.as_ref()?.usage_core_nano_seconds).map(seconds)
    }),
    family("container_memory_working_set_bytes", GAUGE, "Current working set in bytes.", |s| {
        get(&s.memory.as_ref()?.working_set_bytes)
    }),
    family(
        "container_memory_usage_bytes",
        GAUGE,
        "Current memory usage in bytes, including all memory.",
        |s| get(&s.memory.as_ref()?.usage_bytes),
    ),
    family("container_memory_rss", GAUGE, "Size of RSS in bytes.", |s| get(&s.memory.as_ref()?.rss_bytes)),
    family("container_memory_swap", GAUGE, "Container swap usage in bytes.", |s| {
        get(&s.swap.as_ref()?.swap_usage_bytes)
    }),
    family("container_fs_usage_bytes", GAUGE, "Number of bytes that are consumed on the filesystem.", |s| {
        get(&s.writable_layer.as_ref()?.used_bytes)
    }),
    family("container_pressure_cpu_waiting_seconds_total", COUNTER, "Time tasks waited for cpu.", |s| {
        Some(seconds(s.cpu.as_ref()?.psi.as_ref()?.some.as_ref()?.total as f64))
    }),
    family(
        "container_pressure_memory_waiting_seconds_total",
        COUNTER,
        "Time tasks waited for memory.",
        |s| Some(seconds(s.memory.as_ref()?.psi.as_ref()?.some.as_ref()?.total as f64)),
    ),
];

/// Families of pod network interfaces.
pub const INTERFACE: [Family<cri::NetworkInterfaceUsage>; 4] = [
    family("container_network_receive_bytes_total", COUNTER, "Cumulative count of bytes received", |i| {
        get(&i.rx_bytes)
    }),
    family("container_network_transmit_bytes_total", COUNTER, "Cumulative count of bytes transmitted", |i| {
        get(&i.tx_bytes)
    }),
    family(
        "container_network_receive_errors_total",
        COUNTER,
        "Cumulative count of errors while receiving",
        |i| get(&i.rx_errors),
    ),
    family(
        "container_network_transmit_errors_total",
        COUNTER,
        "Cumulative count of errors while transmitting",
        |i| get(&i.tx_errors),
    ),
];
