//! A [`Runtime`] wrapper with the kubelet's Prometheus metrics of runtime operations.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use coracle_proto::cri;
use coracle_proto::exposition::{Histogram, Page};
use futures::stream::BoxStream;
use parking_lot::Mutex;

use super::{Containers, Duplex, Execs, FirstContainer, Images, Result, Runtime, Sandboxes, Session, Stats};

/// Upper bounds, in seconds: upstream's.
const BUCKETS: [f64; 14] = [
    0.005,
    0.0125,
    0.03125,
    0.078125,
    0.1953125,
    0.48828125,
    1.220703125,
    3.0517578125,
    7.62939453125,
    19.073486328125,
    47.6837158203125,
    119.20928955078125,
    298.0232238769531,
    745.0580596923828,
];

#[derive(Clone)]
struct Operation {
    times: Histogram,
    errors: u64,
}

/// Count, duration and errors of each operation.
#[derive(Default)]
pub struct Operations(Mutex<BTreeMap<&'static str, Operation>>);

impl Operations {
    fn count(&self, name: &'static str, took: Duration, failed: bool) {
        let mut all = self.0.lock();
        let fresh = || Operation { times: Histogram::new(&BUCKETS), errors: 0 };
        let operation = all.entry(name).or_insert_with(fresh);
        operation.times.observe(took.as_secs_f64());
        operation.errors += u64::from(failed);
    }

    /// Writes the metrics.
    pub fn render(&self, page: &mut Page) {
        let all = self.0.lock().clone();
        let name = "kubelet_runtime_operations_total";
        page.family(name, "counter", "Cumulative number of runtime operations by operation type.");
        for (of, operation) in &all {
            page.value(name, &[("operation_type", of)], operation.times.count());
        }
        let name = "kubelet_runtime_operations_errors_total";
        page.family(name, "counter", "Cumulative number of runtime operation errors by operation type.");
        for (of, operation) in all.iter().filter(|(_, operation)| operation.errors > 0) {
            page.value(name, &[("operation_type", of)], operation.errors);
        }
        let name = "kubelet_runtime_operations_duration_seconds";
        page.family(name, "histogram", "Duration in seconds of runtime operations.");
        for (of, operation) in &all {
            page.histogram(name, &[("operation_type", of)], &operation.times);
        }
    }
}

/// Forwards calls to another runtime and records metrics.
pub struct InstrumentedRuntime {
    inner: Arc<dyn Runtime>,
    operations: Arc<Operations>,
}

impl InstrumentedRuntime {
    /// Wraps a runtime.
    pub fn new(inner: Arc<dyn Runtime>, operations: Arc<Operations>) -> Self {
        Self { inner, operations }
    }

    async fn time<T>(&self, name: &'static str, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let begun = Instant::now();
        let result = work.await;
        self.operations.count(name, begun.elapsed(), result.is_err());
        result
    }
}

/// Implements a trait: forwards each method and records it under the kubelet's operation name.
macro_rules! count {
    (
        $noun:ident:
        $($name:literal $verb:ident($($argument:ident: $of:ty),*) -> $answer:ty;)*
        $({ $($more:tt)* })?
    ) => {
        #[async_trait]
        impl $noun for InstrumentedRuntime {
            $(async fn $verb(&self, $($argument: $of),*) -> Result<$answer> {
                self.time($name, self.inner.$verb($($argument),*)).await
            })*
            $($($more)*)?
        }
    };
}

count! {
    Runtime:
    "version" version() -> cri::VersionResponse;
    "status" status(verbose: bool) -> cri::StatusResponse;
    "update_runtime_config" update_runtime_config(pod_cidr: &str) -> ();
    "get_container_events" events() -> BoxStream<'static, cri::ContainerEventResponse>;
}

count! {
    Sandboxes:
    "run_podsandbox" run_pod_sandbox(config: cri::PodSandboxConfig, handler: &str) -> String;
    "stop_podsandbox" stop_pod_sandbox(id: &str) -> ();
    "remove_podsandbox" remove_pod_sandbox(id: &str) -> ();
    "podsandbox_status" pod_sandbox_status(id: &str, verbose: bool) -> cri::PodSandboxStatusResponse;
    "list_podsandbox" list_pod_sandboxes(filter: Option<cri::PodSandboxFilter>) -> Vec<cri::PodSandbox>;
    "update_podsandbox_resources" update_pod_sandbox_resources(
        id: &str,
        overhead: Option<cri::LinuxContainerResources>,
        resources: Option<cri::LinuxContainerResources>
    ) -> ();
    {
        fn can_precreate(&self) -> bool {
            self.inner.can_precreate()
        }

        // Two operations in parallel: both are recorded with the total duration.
        async fn run_pod_sandbox_precreating(
            &self,
            config: cri::PodSandboxConfig,
            handler: &str,
            first: FirstContainer,
        ) -> Result<(String, Option<String>)> {
            let begun = Instant::now();
            let work = self.inner.run_pod_sandbox_precreating(config, handler, first);
            let made = self.time("run_podsandbox", work).await?;
            if made.1.is_some() {
                self.operations.count("create_container", begun.elapsed(), false);
            }
            Ok(made)
        }
    }
}

count! {
    Containers:
    "create_container" create_container(
        sandbox: &str,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig
    ) -> String;
    "start_container" start_container(id: &str) -> ();
    "stop_container" stop_container(id: &str, grace: Duration) -> ();
    "remove_container" remove_container(id: &str) -> ();
    "list_containers" list_containers(filter: Option<cri::ContainerFilter>) -> Vec<cri::Container>;
    "container_status" container_status(id: &str, verbose: bool) -> cri::ContainerStatusResponse;
    "update_container" update_container_resources(id: &str, resources: cri::LinuxContainerResources) -> ();
    "reopen_container_log" reopen_container_log(id: &str) -> ();
    "checkpoint_container" checkpoint_container(id: &str, to: &Path, timeout: Duration) -> ();
}

count! {
    Execs:
    "exec_sync" exec_sync(id: &str, command: Vec<String>, timeout: Duration) -> cri::ExecSyncResponse;
    "exec" exec(request: cri::ExecRequest) -> Session;
    "attach" attach(request: cri::AttachRequest) -> Session;
    "port_forward" port_forward(sandbox: &str, port: u16) -> Box<dyn Duplex>;
}

count! {
    Stats:
    "container_stats" container_stats(id: &str) -> cri::ContainerStats;
    "list_container_stats" list_container_stats(filter: Option<cri::ContainerStatsFilter>)
        -> Vec<cri::ContainerStats>;
    "podsandbox_stats" pod_sandbox_stats(id: &str) -> cri::PodSandboxStats;
    "list_podsandbox_stats" list_pod_sandbox_stats(filter: Option<cri::PodSandboxStatsFilter>)
        -> Vec<cri::PodSandboxStats>;
}

count! {
    Images:
    "pull_image" pull_image(
        image: cri::ImageSpec,
        auth: Option<cri::AuthConfig>,
        sandbox_config: Option<cri::PodSandboxConfig>
    ) -> String;
    "list_images" list_images(filter: Option<cri::ImageSpec>) -> Vec<cri::Image>;
    "image_status" image_status(image: cri::ImageSpec) -> Option<cri::Image>;
    "image_status" image_details(image: cri::ImageSpec) -> serde_json::Value;
    "remove_image" remove_image(image: cri::ImageSpec) -> ();
    "image_fs_info" image_fs_info() -> cri::ImageFsInfoResponse;
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::exposition::Form;

    #[test]
    fn operations_are_shown_with_their_errors() {
        let operations = Operations::default();
        operations.count("exec_sync", Duration::from_millis(10), false);
        operations.count("exec_sync", Duration::from_millis(10), true);
        operations.count("status", Duration::ZERO, false);
        let mut page = Page::new(Form::Prometheus);
        operations.render(&mut page);
        let text = page.finish();
        for line in [
            "kubelet_runtime_operations_total{operation_type=\"exec_sync\"} 2\n",
            "kubelet_runtime_operations_errors_total{operation_type=\"exec_sync\"} 1\n",
            "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"exec_sync\",le=\"0.0125\"} 2\n",
            "kubelet_runtime_operations_total{operation_type=\"status\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(!text.contains("errors_total{operation_type=\"status\"}"));
    }
}
