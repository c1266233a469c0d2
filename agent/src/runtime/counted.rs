//! A runtime that counts what is asked of it, as the kubelet shows it to Prometheus.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use coracle_proto::cri;
use coracle_proto::exposition::{Histogram, Page};
use futures::stream::BoxStream;
use parking_lot::Mutex;

use super::{Duplex, Result, Runtime, Session};

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

/// How often each verb was asked for, how long it took and how often it failed.
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

    /// All of them.
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

/// Counts what goes through.
pub struct Counted {
    inner: Arc<dyn Runtime>,
    operations: Arc<Operations>,
}

impl Counted {
    /// Around another runtime.
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

#[async_trait]
impl Runtime for Counted {
    async fn version(&self) -> Result<cri::VersionResponse> {
        self.time("version", self.inner.version()).await
    }

    async fn status(&self, verbose: bool) -> Result<cri::StatusResponse> {
        self.time("status", self.inner.status(verbose)).await
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> Result<()> {
        self.time("update_runtime_config", self.inner.update_runtime_config(pod_cidr)).await
    }

    async fn run_pod_sandbox(&self, config: cri::PodSandboxConfig, handler: &str) -> Result<String> {
        self.time("run_podsandbox", self.inner.run_pod_sandbox(config, handler)).await
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        self.time("stop_podsandbox", self.inner.stop_pod_sandbox(id)).await
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        self.time("remove_podsandbox", self.inner.remove_pod_sandbox(id)).await
    }

    async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<cri::PodSandboxStatusResponse> {
        self.time("podsandbox_status", self.inner.pod_sandbox_status(id, verbose)).await
    }

    async fn list_pod_sandboxes(
        &self,
        filter: Option<cri::PodSandboxFilter>,
    ) -> Result<Vec<cri::PodSandbox>> {
        self.time("list_podsandbox", self.inner.list_pod_sandboxes(filter)).await
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: Option<cri::LinuxContainerResources>,
        resources: Option<cri::LinuxContainerResources>,
    ) -> Result<()> {
        let work = self.inner.update_pod_sandbox_resources(id, overhead, resources);
        self.time("update_podsandbox_resources", work).await
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
    ) -> Result<String> {
        self.time("create_container", self.inner.create_container(sandbox, config, sandbox_config)).await
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        self.time("start_container", self.inner.start_container(id)).await
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        self.time("stop_container", self.inner.stop_container(id, grace)).await
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        self.time("remove_container", self.inner.remove_container(id)).await
    }

    async fn list_containers(&self, filter: Option<cri::ContainerFilter>) -> Result<Vec<cri::Container>> {
        self.time("list_containers", self.inner.list_containers(filter)).await
    }

    async fn container_status(&self, id: &str, verbose: bool) -> Result<cri::ContainerStatusResponse> {
        self.time("container_status", self.inner.container_status(id, verbose)).await
    }

    async fn update_container_resources(
        &self,
        id: &str,
        resources: cri::LinuxContainerResources,
    ) -> Result<()> {
        self.time("update_container", self.inner.update_container_resources(id, resources)).await
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        self.time("reopen_container_log", self.inner.reopen_container_log(id)).await
    }

    async fn checkpoint_container(&self, id: &str, to: &Path, timeout: Duration) -> Result<()> {
        self.time("checkpoint_container", self.inner.checkpoint_container(id, to, timeout)).await
    }

    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<cri::ExecSyncResponse> {
        self.time("exec_sync", self.inner.exec_sync(id, command, timeout)).await
    }

    async fn exec(&self, request: cri::ExecRequest) -> Result<Session> {
        self.time("exec", self.inner.exec(request)).await
    }

    async fn attach(&self, request: cri::AttachRequest) -> Result<Session> {
        self.time("attach", self.inner.attach(request)).await
    }

    async fn port_forward(&self, sandbox: &str, port: u16) -> Result<Box<dyn Duplex>> {
        self.time("port_forward", self.inner.port_forward(sandbox, port)).await
    }

    async fn container_stats(&self, id: &str) -> Result<cri::ContainerStats> {
        self.time("container_stats", self.inner.container_stats(id)).await
    }

    async fn list_container_stats(
        &self,
        filter: Option<cri::ContainerStatsFilter>,
    ) -> Result<Vec<cri::ContainerStats>> {
        self.time("list_container_stats", self.inner.list_container_stats(filter)).await
    }

    async fn pod_sandbox_stats(&self, id: &str) -> Result<cri::PodSandboxStats> {
        self.time("podsandbox_stats", self.inner.pod_sandbox_stats(id)).await
    }

    async fn list_pod_sandbox_stats(
        &self,
        filter: Option<cri::PodSandboxStatsFilter>,
    ) -> Result<Vec<cri::PodSandboxStats>> {
        self.time("list_podsandbox_stats", self.inner.list_pod_sandbox_stats(filter)).await
    }

    async fn events(&self) -> Result<BoxStream<'static, cri::ContainerEventResponse>> {
        self.time("get_container_events", self.inner.events()).await
    }

    async fn pull_image(
        &self,
        image: cri::ImageSpec,
        auth: Option<cri::AuthConfig>,
        sandbox_config: Option<cri::PodSandboxConfig>,
    ) -> Result<String> {
        self.time("pull_image", self.inner.pull_image(image, auth, sandbox_config)).await
    }

    async fn list_images(&self, filter: Option<cri::ImageSpec>) -> Result<Vec<cri::Image>> {
        self.time("list_images", self.inner.list_images(filter)).await
    }

    async fn image_status(&self, image: cri::ImageSpec) -> Result<Option<cri::Image>> {
        self.time("image_status", self.inner.image_status(image)).await
    }

    async fn remove_image(&self, image: cri::ImageSpec) -> Result<()> {
        self.time("remove_image", self.inner.remove_image(image)).await
    }

    async fn image_fs_info(&self) -> Result<cri::ImageFsInfoResponse> {
        self.time("image_fs_info", self.inner.image_fs_info()).await
    }
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
