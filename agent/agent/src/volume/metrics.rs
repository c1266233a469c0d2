//! Series about volumes: calls of storage drivers, mounts and unmounts, and how many volumes there are.

use coracle_csi::Observer;
use coracle_proto::exposition::{Histogram, Page};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;

/// Those of the kubelet.
const BOUNDS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
/// Pods name drivers: more series than this of a family are not counted.
const MAX_SERIES: usize = 1024;
/// No plugin of Kubernetes' own has become a driver here.
const MIGRATED: (&str, &str) = ("migrated", "false");

/// What is done with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// It is made for a pod.
    Mount,
    /// It is removed after the end of a pod.
    Unmount,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Mount => "volume_mount",
            Self::Unmount => "volume_unmount",
        }
    }
}

/// Plugins of a pod's volumes.
#[derive(Default)]
struct PodVolumes {
    wanted: Vec<String>,
    mounted: Vec<String>,
}

#[derive(Default)]
struct Inner {
    /// By driver, name of the call, and code.
    calls: Mutex<BTreeMap<(String, &'static str, &'static str), Histogram>>,
    /// By plugin, operation, and whether it succeeded.
    operations: Mutex<BTreeMap<(String, Operation, bool), Histogram>>,
    /// By uid of the pod.
    pods: Mutex<BTreeMap<String, PodVolumes>>,
}

/// The series.
#[derive(Clone, Default)]
pub struct VolumeMetrics(Arc<Inner>);

/// The plugin of volumes of a storage driver.
pub fn plugin_of_driver(driver: &str) -> String {
    format!("kubernetes.io/csi:{driver}")
}

impl VolumeMetrics {
    /// Counts the calls of a driver.
    pub fn observer(&self, driver: &str) -> Observer {
        let (metrics, driver) = (self.clone(), driver.to_owned());
        Arc::new(move |call: &'static str, took: Duration, code: Code| {
            observe(&metrics.0.calls, (driver.clone(), call, name_of(code)), took);
        })
    }

    /// Counts an operation.
    pub fn operation(&self, plugin: &str, operation: Operation, succeeded: bool, took: Duration) {
        observe(&self.0.operations, (plugin.to_owned(), operation, succeeded), took);
    }

    /// Plugins of the volumes that a pod has, and of those that are made.
    pub fn set(&self, uid: &str, wanted: Vec<String>, mounted: Vec<String>) {
        self.0.pods.lock().insert(uid.to_owned(), PodVolumes { wanted, mounted });
    }

    /// The volumes of a pod are gone.
    pub fn remove(&self, uid: &str) {
        self.0.pods.lock().remove(uid);
    }

    /// All series.
    pub fn render(&self, out: &mut Page) {
        let name = "csi_operations_seconds";
        let help = "[ALPHA] Container Storage Interface operation duration with gRPC error code status total";
        out.family(name, "histogram", help);
        for ((driver, call, code), histogram) in self.0.calls.lock().iter() {
            let method = format!("/csi.v1.Node/{call}");
            let labels = [
                ("driver_name", driver.as_str()),
                ("grpc_status_code", *code),
                ("method_name", method.as_str()),
                MIGRATED,
            ];
            out.histogram(name, &labels, histogram);
        }
        let name = "storage_operation_duration_seconds";
        out.family(name, "histogram", "[ALPHA] Storage operation duration");
        for ((plugin, operation, succeeded), histogram) in self.0.operations.lock().iter() {
            let status = if *succeeded { "success" } else { "fail-unknown" };
            let operation = operation.as_str();
            let labels = [
                MIGRATED,
                ("operation_name", operation),
                ("status", status),
                ("volume_plugin", plugin.as_str()),
            ];
            out.histogram(name, &labels, histogram);
        }
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let pods = self.0.pods.lock();
        for pod in pods.values() {
            let states = [("actual_state_of_world", &pod.mounted), ("desired_state_of_world", &pod.wanted)];
            for (state, plugins) in states {
                for plugin in plugins {
                    *counts.entry((plugin.as_str(), state)).or_default() += 1;
                }
            }
        }
        let name = "volume_manager_total_volumes";
        out.family(name, "gauge", "[ALPHA] Number of volumes in Volume Manager");
        for ((plugin, state), count) in counts {
            out.value(name, &[("plugin_name", plugin), ("state", state)], count);
        }
    }
}

fn observe<K: Ord>(series: &Mutex<BTreeMap<K, Histogram>>, key: K, took: Duration) {
    let mut series = series.lock();
    if series.len() < MAX_SERIES || series.contains_key(&key) {
        series.entry(key).or_insert_with(|| Histogram::new(BOUNDS)).observe(took.as_secs_f64());
    }
}

/// A code as Go writes it.
fn name_of(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::exposition::Form;

    fn page(metrics: &VolumeMetrics) -> String {
        let mut out = Page::new(Form::Prometheus);
        metrics.render(&mut out);
        out.finish()
    }

    #[test]
    fn calls_operations_and_volumes_are_counted_by_plugin() {
        let metrics = VolumeMetrics::default();
        let observer = metrics.observer("disk.example");
        observer("NodeStageVolume", Duration::from_millis(200), Code::Ok);
        observer("NodeStageVolume", Duration::from_millis(50), Code::Ok);
        observer("NodeStageVolume", Duration::from_secs(2), Code::Cancelled);
        let plugin = plugin_of_driver("disk.example");
        metrics.operation(&plugin, Operation::Mount, false, Duration::from_secs(1));
        metrics.set("u", vec![plugin.clone(), "kubernetes.io/secret".into()], vec![plugin.clone()]);
        metrics.set("v", vec![plugin.clone()], vec![plugin]);
        let text = page(&metrics);
        for line in [
            r#"csi_operations_seconds_bucket{driver_name="disk.example",grpc_status_code="OK",method_name="/csi.v1.Node/NodeStageVolume",migrated="false",le="0.1"} 1"#,
            r#"csi_operations_seconds_count{driver_name="disk.example",grpc_status_code="OK",method_name="/csi.v1.Node/NodeStageVolume",migrated="false"} 2"#,
            r#"csi_operations_seconds_count{driver_name="disk.example",grpc_status_code="Canceled",method_name="/csi.v1.Node/NodeStageVolume",migrated="false"} 1"#,
            r#"storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",status="fail-unknown",volume_plugin="kubernetes.io/csi:disk.example"} 1"#,
            r#"volume_manager_total_volumes{plugin_name="kubernetes.io/csi:disk.example",state="actual_state_of_world"} 2"#,
            r#"volume_manager_total_volumes{plugin_name="kubernetes.io/secret",state="desired_state_of_world"} 1"#,
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in {text}");
        }
        metrics.remove("u");
        metrics.remove("v");
        assert!(!page(&metrics).contains("volume_manager_total_volumes{"));
    }

    #[test]
    fn names_that_pods_choose_do_not_fill_the_memory() {
        let metrics = VolumeMetrics::default();
        for number in 0..2 * MAX_SERIES {
            let plugin = plugin_of_driver(&number.to_string());
            metrics.operation(&plugin, Operation::Unmount, true, Duration::ZERO);
        }
        metrics.operation(&plugin_of_driver("0"), Operation::Unmount, true, Duration::ZERO);
        let text = page(&metrics);
        assert_eq!(text.matches("duration_seconds_count{").count(), MAX_SERIES);
        assert!(text.contains("volume_plugin=\"kubernetes.io/csi:0\"} 2"), "{text}");
    }
}
