//! PodResources v1 on a socket of the node: which devices and cpus pods have, for monitoring agents.

use coracle_cli::causes;
use coracle_devices::podresources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use coracle_devices::podresources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, CdiDevice, ClaimResource, ContainerDevices,
    ContainerResources, DynamicResource, GetPodResourcesRequest, GetPodResourcesResponse,
    ListPodResourcesRequest, ListPodResourcesResponse, NumaNode, PodResources, TopologyInfo,
};
use coracle_engine::serve::{self, ServeError};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::rate_limit::RateLimit;
use crate::claims::allocated;
use crate::claims::records::{Record, State};
use crate::lifecycle::execute::Executor;
use crate::lifecycle::table::PodTable;
use crate::pod::spec::{self, Role};

/// The kubelet's limits: requests per second, at once, and the largest answer.
const PER_SECOND: u32 = 100;
const BURST: u32 = 10;
const MAX_ANSWER: usize = 16 << 20;
/// Requests have two names at most.
const MAX_REQUEST: usize = 64 << 10;
const RETRY: Duration = Duration::from_secs(2);

/// The service.
#[derive(Clone)]
pub struct PodResourcesApi {
    socket: PathBuf,
    pods: PodTable,
    executor: Arc<Executor>,
    limit: Arc<RateLimit>,
}

impl PodResourcesApi {
    /// Served below the kubelet's directory.
    pub fn new(kubelet_dir: &Path, pods: PodTable, executor: Arc<Executor>) -> Self {
        let limit = Arc::new(RateLimit::new(PER_SECOND, BURST, Instant::now()));
        Self { socket: kubelet_dir.join("pod-resources/kubelet.sock"), pods, executor, limit }
    }

    /// Serves for ever.
    pub async fn run(self) {
        loop {
            if let Err(error) = self.serve().await {
                tracing::warn!(socket = %self.socket.display(), error = %causes::chain(&error), "PodResources not served, will retry");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn serve(&self) -> Result<(), ServeError> {
        let listener = serve::listen(&self.socket).await?;
        let service = PodResourcesListerServer::new(self.clone())
            .max_decoding_message_size(MAX_REQUEST)
            .max_encoding_message_size(MAX_ANSWER);
        let server = tonic::transport::Server::builder().add_service(service);
        Ok(server.serve_with_incoming(UnixListenerStream::new(listener)).await?)
    }

    fn check_rate(&self) -> Result<(), Status> {
        if self.limit.allows(Instant::now()) {
            return Ok(());
        }
        Err(Status::resource_exhausted("rejected by rate limit"))
    }

    fn of_pod(&self, pod: &Pod) -> PodResources {
        let spec = spec::spec(pod);
        // Init containers have given back what they had, or have not begun.
        let lasting =
            spec::containers(&spec).filter(|(role, _)| matches!(role, Role::Sidecar | Role::Regular));
        let containers = lasting.map(|(_, container)| self.of_container(pod, &container));
        PodResources {
            name: spec::name(pod).to_owned(),
            namespace: spec::namespace(pod).to_owned(),
            containers: containers.collect(),
        }
    }

    fn of_container(&self, pod: &Pod, container: &Container) -> ContainerResources {
        let (uid, name) = (spec::uid(pod), container.name.as_str());
        let own = self.executor.devices.of(uid, name).into_iter();
        let devices = own.flat_map(|(resource, allocation)| {
            allocation.devices.into_iter().map(move |(id, numa)| device(resource.clone(), id, &numa))
        });
        ContainerResources {
            name: name.to_owned(),
            devices: devices.collect(),
            cpu_ids: self.executor.resources.exclusive_cpus(uid, name),
            dynamic_resources: self.claims_of(pod, container),
            ..ContainerResources::default()
        }
    }

    /// Prepared claims of a container.
    fn claims_of(&self, pod: &Pod, container: &Container) -> Vec<DynamicResource> {
        let wanted = allocated::wanted(pod, container);
        let mut known = allocated::claims(pod).unwrap_or_default();
        known.retain(|claim| wanted.iter().any(|(name, _)| *name == claim.name));
        let mut records = self.executor.claims.of_pod(spec::uid(pod));
        records.retain(|record| known.iter().any(|claim| claim.claim == record.name));
        records.into_iter().map(dynamic_resource).collect()
    }
}

fn dynamic_resource(record: Record) -> DynamicResource {
    let devices = record.drivers.into_iter().flat_map(|(driver, state)| {
        let devices = match state {
            State::Prepared(devices) => devices,
            State::Called => vec![],
        };
        devices.into_iter().map(move |device| ClaimResource {
            cdi_devices: device.cdi_devices.into_iter().map(|name| CdiDevice { name }).collect(),
            driver_name: driver.clone(),
            pool_name: device.pool,
            device_name: device.device,
            share_id: device.share,
        })
    });
    DynamicResource {
        claim_name: record.name,
        claim_namespace: record.namespace,
        claim_resources: devices.collect(),
    }
}

fn device(resource_name: String, id: String, numa: &[i64]) -> ContainerDevices {
    let topology = TopologyInfo { nodes: numa.iter().map(|id| NumaNode { id: *id }).collect() };
    ContainerDevices {
        resource_name,
        device_ids: vec![id],
        topology: Some(topology).filter(|topology| !topology.nodes.is_empty()),
    }
}

#[tonic::async_trait]
impl PodResourcesLister for PodResourcesApi {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.check_rate()?;
        let pod_resources = self.pods.admitted().iter().map(|pod| self.of_pod(pod)).collect();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        self.check_rate()?;
        let healthy = self.executor.devices.healthy().into_iter();
        let devices = healthy.map(|(resource, id, numa)| device(resource, id, &numa)).collect();
        let cpu_ids = self.executor.resources.allocatable_cpus();
        Ok(Response::new(AllocatableResourcesResponse { devices, cpu_ids, memory: vec![] }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        self.check_rate()?;
        let GetPodResourcesRequest { pod_name, pod_namespace } = request.into_inner();
        let Some(entry) = self.pods.find(&pod_namespace, &pod_name) else {
            let text = format!("pod {pod_name} in namespace {pod_namespace} not found");
            return Err(Status::not_found(text));
        };
        Ok(Response::new(GetPodResourcesResponse { pod_resources: Some(self.of_pod(&entry.pod)) }))
    }
}
