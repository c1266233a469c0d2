//! Allocation against plugins that are served here.

use coracle_devices::v1beta1::device_plugin_server::{DevicePlugin, DevicePluginServer};
use coracle_devices::v1beta1::*;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::sync::{Notify, watch};
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::registration::PluginRegistration;
use super::{AllocateError, Devices, Spare};
use crate::numa::{Hints, Nodes};
use crate::pod::spec::{self, Role};

const GPU: &str = "vendor.example/gpu";

#[derive(Clone)]
struct FakePlugin {
    devices: watch::Sender<Vec<Device>>,
    calls: Arc<Mutex<Vec<String>>>,
    preferred: Vec<String>,
    fails: Arc<Mutex<bool>>,
    /// Ends the lists of devices.
    stop: CancellationToken,
}

type Lists = Pin<Box<dyn futures::Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for FakePlugin {
    type ListAndWatchStream = Lists;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions::default()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Lists>, Status> {
        let lists = WatchStream::new(self.devices.subscribe());
        let lists = lists.map(|devices| Ok(ListAndWatchResponse { devices }));
        Ok(Response::new(lists.take_until(self.stop.clone().cancelled_owned()).boxed()))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let one = ContainerPreferredAllocationResponse { device_i_ds: self.preferred.clone() };
        Ok(Response::new(PreferredAllocationResponse { container_responses: vec![one] }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let ids = request.into_inner().container_requests.remove(0).devices_ids.join(",");
        self.calls.lock().push(format!("allocate {ids}"));
        // Others get their turn while the plugin works.
        tokio::task::yield_now().await;
        if *self.fails.lock() {
            return Err(Status::internal("broken"));
        }
        let envs = [("GPUS".to_owned(), ids)].into();
        let one = ContainerAllocateResponse { envs, ..ContainerAllocateResponse::default() };
        Ok(Response::new(AllocateResponse { container_responses: vec![one] }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        self.calls.lock().push(format!("prestart {}", request.into_inner().devices_ids.join(",")));
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

fn list(ids: &[(&str, bool)]) -> Vec<Device> {
    let device = |(id, healthy): &(&str, bool)| Device {
        id: (*id).to_owned(),
        health: if *healthy { "Healthy" } else { "Unhealthy" }.to_owned(),
        topology: None,
    };
    ids.iter().map(device).collect()
}

fn serve(dir: &Path, preferred: &[&str]) -> (FakePlugin, tokio::task::JoinHandle<()>) {
    let plugin = FakePlugin {
        devices: watch::Sender::new(list(&[("a", true), ("b", true), ("c", true), ("d", true)])),
        calls: Arc::default(),
        preferred: preferred.iter().map(|id| (*id).to_owned()).collect(),
        fails: Arc::default(),
        stop: CancellationToken::new(),
    };
    let _ = std::fs::remove_file(dir.join("gpu.sock"));
    let listener = UnixListener::bind(dir.join("gpu.sock")).unwrap();
    let server = tonic::transport::Server::builder().add_service(DevicePluginServer::new(plugin.clone()));
    let task = tokio::spawn(async move {
        server.serve_with_incoming(UnixListenerStream::new(listener)).await.unwrap();
    });
    (plugin, task)
}

fn open(dir: &Path) -> Devices {
    std::fs::create_dir_all(dir.join("device-plugins")).unwrap();
    Devices::open(dir, Arc::new(Notify::new()), Arc::new(|_: &str| {}))
}

async fn register(devices: &Devices, dir: &Path, options: DevicePluginOptions) {
    let registration = PluginRegistration::new(devices.clone());
    registration.add(GPU, dir.join("gpu.sock"), Some(options)).await.unwrap();
    until(|| devices.amounts().allocatable.get(GPU).is_some_and(|amount| *amount > 0)).await;
}

async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it did not happen within a minute");
}

fn container(name: &str, count: u32) -> Value {
    json!({"name": name, "resources": {"limits": {GPU: count.to_string()}, "requests": {GPU: count.to_string()}}})
}

fn pod(uid: &str, spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": spec}))
        .unwrap()
}

fn simple(uid: &str, count: u32) -> Pod {
    pod(uid, json!({"containers": [container("c", count)]}))
}

fn has(devices: &Devices, uid: &str, container: &str) -> Vec<String> {
    devices.of(uid, container).remove(GPU).unwrap_or_default().devices.into_keys().collect()
}

#[tokio::test]
async fn no_device_is_given_twice() {
    let temp = tempfile::tempdir().unwrap();
    let (_plugin, _served) = serve(temp.path(), &[]);
    let devices = open(temp.path());
    register(&devices, temp.path(), DevicePluginOptions::default()).await;
    // Six pods at once for four devices.
    let pods: Vec<Pod> = (0..6).map(|number| simple(&format!("u{number}"), 1)).collect();
    let results = futures::future::join_all(pods.iter().map(|pod| devices.allocate(pod, false))).await;
    let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert_eq!(failed.len(), 2);
    for error in failed {
        assert!(matches!(error, AllocateError::TooFew { requested: 1, available: 0, .. }), "{error}");
    }
    let given: Vec<String> = pods.iter().flat_map(|pod| has(&devices, spec::uid(pod), "c")).collect();
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), 4, "{given:?}");
    let owner = pods.iter().find(|pod| !has(&devices, spec::uid(pod), "c").is_empty()).unwrap();
    devices.release(spec::uid(owner));
    devices.allocate(&simple("late", 1), false).await.unwrap();
}

#[tokio::test]
async fn allocations_survive_restarts_of_agent_and_plugin() {
    let temp = tempfile::tempdir().unwrap();
    let (plugin, served) = serve(temp.path(), &[]);
    let devices = open(temp.path());
    register(&devices, temp.path(), DevicePluginOptions::default()).await;
    let first = simple("u", 2);
    devices.allocate(&first, false).await.unwrap();
    let own = has(&devices, "u", "c");
    assert_eq!(own, ["a", "b"]);
    drop(devices);

    // Another agent, before the plugin has registered with it.
    let devices = open(temp.path());
    assert_eq!(has(&devices, "u", "c"), own);
    assert_eq!(devices.amounts().allocatable[GPU], 0);
    let mut allocatable = std::collections::BTreeMap::new();
    devices.admit_with(&mut allocatable);
    assert_eq!(allocatable.get(GPU), None, "how many there are is not known yet");
    devices.allocate(&first, true).await.unwrap();
    tokio::time::pause();
    let error = devices.allocate(&first, false).await.unwrap_err();
    tokio::time::resume();
    assert!(matches!(error, AllocateError::NoHealthy { .. }), "the plugin does not come back: {error}");
    let options = devices.run_options(&first, &first.spec.as_ref().unwrap().containers[0]).await.unwrap();
    assert_eq!(options.envs["GPUS"], "a,b");

    register(&devices, temp.path(), DevicePluginOptions::default()).await;
    devices.allocate(&first, false).await.unwrap();
    devices.allocate(&simple("v", 2), false).await.unwrap();
    assert_eq!(has(&devices, "v", "c"), ["c", "d"]);
    assert_eq!(plugin.calls.lock().len(), 2, "a pod that has its devices is not asked for again");

    // Another plugin on the same socket.
    plugin.stop.cancel();
    served.abort();
    until(|| devices.amounts().allocatable[GPU] == 0).await;
    assert_eq!(devices.amounts().capacity[GPU], 4);
    devices.admit_with(&mut allocatable);
    assert_eq!(allocatable.get(GPU), None, "the agent started a moment ago: the plugin may register again");
    let (_plugin, _served) = serve(temp.path(), &[]);
    register(&devices, temp.path(), DevicePluginOptions::default()).await;
    assert_eq!(has(&devices, "u", "c"), own);
    let error = devices.allocate(&simple("w", 1), false).await.unwrap_err();
    assert!(matches!(error, AllocateError::TooFew { .. }), "{error}");
    let error = devices.allocate(&simple("u", 1), false).await.unwrap_err();
    assert!(
        error.to_string().contains("changed request for resource \"vendor.example/gpu\" from 2 to 1"),
        "{error}"
    );
    devices.retain(|uid| uid == "v");
    assert!(has(&devices, "u", "c").is_empty());
}

#[tokio::test]
async fn a_plugin_that_goes_before_it_has_listed_is_not_waited_for() {
    let temp = tempfile::tempdir().unwrap();
    let devices = open(temp.path());
    let plugin = coracle_devices::Plugin::new(&temp.path().join("gpu.sock"));
    let generation = devices.connect(GPU, plugin, DevicePluginOptions::default());
    let pod = simple("u", 1);
    let goes = async {
        tokio::task::yield_now().await;
        devices.disconnect(GPU, generation);
    };
    let both = async { tokio::join!(devices.allocate(&pod, false), goes) };
    let (allocated, ()) = tokio::time::timeout(std::time::Duration::from_secs(10), both).await.unwrap();
    let error = allocated.unwrap_err();
    assert!(matches!(error, AllocateError::NoHealthy { .. }), "{error}");
}

#[tokio::test]
async fn unhealthy_devices_are_not_given_and_pods_that_have_them_are_told() {
    let temp = tempfile::tempdir().unwrap();
    let (plugin, _served) = serve(temp.path(), &[]);
    let woken: Arc<Mutex<Vec<String>>> = Arc::default();
    let wake = woken.clone();
    std::fs::create_dir_all(temp.path().join("device-plugins")).unwrap();
    let devices = Devices::open(
        temp.path(),
        Arc::new(Notify::new()),
        Arc::new(move |uid: &str| wake.lock().push(uid.into())),
    );
    register(&devices, temp.path(), DevicePluginOptions::default()).await;
    devices.allocate(&simple("u", 1), false).await.unwrap();
    plugin.devices.send_replace(list(&[("a", false), ("b", true)]));
    until(|| devices.amounts().allocatable[GPU] == 1).await;
    assert_eq!(*woken.lock(), ["u"]);
    assert_eq!(devices.health("u")["c"][GPU]["a"].as_str(), "Unhealthy");
    devices.allocate(&simple("v", 1), false).await.unwrap();
    assert_eq!(has(&devices, "v", "c"), ["b"]);
    plugin.devices.send_replace(list(&[("a", false), ("b", false)]));
    until(|| devices.amounts().allocatable[GPU] == 0).await;
    let mut allocatable = std::collections::BTreeMap::new();
    devices.admit_with(&mut allocatable);
    assert_eq!(allocatable[GPU], 2, "a pod is not rejected for its own devices");
}

#[tokio::test]
async fn init_containers_leave_their_devices_and_sidecars_keep_them() {
    let temp = tempfile::tempdir().unwrap();
    let (_plugin, _served) = serve(temp.path(), &[]);
    let devices = open(temp.path());
    register(&devices, temp.path(), DevicePluginOptions::default()).await;
    let mut sidecar = container("side", 1);
    sidecar["restartPolicy"] = json!("Always");
    let spec = json!({"initContainers": [container("init", 2), sidecar], "containers": [container("c", 2)]});
    devices.allocate(&pod("u", spec), false).await.unwrap();
    assert_eq!(has(&devices, "u", "init"), ["a", "b"]);
    assert_eq!(has(&devices, "u", "side"), ["a"]);
    assert_eq!(has(&devices, "u", "c"), ["b", "c"]);
}

#[tokio::test]
async fn plugins_choose_fail_and_are_called_before_a_start() {
    let temp = tempfile::tempdir().unwrap();
    let (plugin, _served) = serve(temp.path(), &["d", "unknown", "b"]);
    let devices = open(temp.path());
    let options = DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };
    register(&devices, temp.path(), options).await;
    let first = simple("u", 2);
    devices.allocate(&first, false).await.unwrap();
    assert_eq!(has(&devices, "u", "c"), ["b", "d"]);
    assert!(devices.wants_pre_start(&first));
    devices.pre_start("u", "c").await.unwrap();
    assert_eq!(*plugin.calls.lock(), ["allocate b,d", "prestart b,d"]);

    *plugin.fails.lock() = true;
    let error = devices.allocate(&simple("v", 1), false).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "device plugin of vendor.example/gpu: Allocate: rpc error: code = Internal desc = broken"
    );
    *plugin.fails.lock() = false;
    devices.allocate(&simple("w", 2), false).await.unwrap();
    assert_eq!(has(&devices, "w", "c"), ["a", "c"], "a failed allocation holds nothing");
}

#[tokio::test]
async fn without_a_readable_record_nothing_is_allocated() {
    let temp = tempfile::tempdir().unwrap();
    let (_plugin, _served) = serve(temp.path(), &[]);
    let checkpoint = temp.path().join("device-plugins/kubelet_internal_checkpoint");
    std::fs::create_dir_all(checkpoint.parent().unwrap()).unwrap();
    std::fs::write(&checkpoint, "{").unwrap();
    let devices = open(temp.path());
    let registration = PluginRegistration::new(devices.clone());
    registration.add(GPU, temp.path().join("gpu.sock"), None).await.unwrap();
    until(|| devices.amounts().capacity.get(GPU) == Some(&4)).await;
    assert_eq!(devices.amounts().allocatable[GPU], 0);
    let error = devices.allocate(&simple("u", 1), false).await.unwrap_err();
    assert!(error.to_string().contains("kubelet_internal_checkpoint"), "{error}");
    assert_eq!(std::fs::read_to_string(&checkpoint).unwrap(), "{", "the damaged file is kept");
}

#[tokio::test]
async fn devices_come_from_the_nodes_of_the_hint() {
    let dir = tempfile::tempdir().unwrap();
    let devices = open(dir.path());
    let (plugin, server) = serve(dir.path(), &[]);
    let near = |id: &str, node: i64| Device {
        topology: Some(TopologyInfo { nodes: vec![NumaNode { id: node }] }),
        ..list(&[(id, true)]).remove(0)
    };
    plugin.devices.send_replace(vec![near("a", 0), near("b", 0), near("c", 1), near("d", 1)]);
    register(&devices, dir.path(), DevicePluginOptions::default()).await;
    let all = Nodes::of([0, 1]);
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [
        {"name": "one", "resources": {"limits": {GPU: "1"}}}, {"name": "two", "resources": {"limits": {GPU: "2"}}},
        {"name": "none"}]}}))
    .unwrap();
    let containers = spec::spec(&pod).containers.clone();
    let mut spare = Spare::default();
    let hints = |at: usize, spare: &Spare| devices.hints_of_container(&pod, &containers[at], spare, all);
    let nodes = |hints: Vec<Hints>| -> Vec<(String, bool)> {
        let hints = hints.into_iter().flatten().flatten();
        hints.map(|hint| (hint.nodes.unwrap().to_string(), hint.is_preferred)).collect()
    };
    let is = |list: &[(&str, bool)]| -> Vec<(String, bool)> {
        list.iter().map(|(set, preferred)| ((*set).to_owned(), *preferred)).collect()
    };
    assert!(hints(2, &spare).is_empty());
    assert_eq!(nodes(hints(0, &spare)), is(&[("0", true), ("1", true), ("0,1", false)]));
    assert_eq!(nodes(devices.hints_of_pod(&pod, all)), is(&[("0,1", true)]), "three devices");
    let one = (Role::Regular, &containers[0]);
    devices.allocate_container(&pod, one, &mut spare, false, Some(Nodes::of([1]))).await.unwrap();
    let ids = |name: &str| -> Vec<String> { devices.of("u", name)[GPU].devices.keys().cloned().collect() };
    assert_eq!(ids("one"), ["c"]);
    assert_eq!(nodes(hints(1, &spare)), is(&[("0", true), ("0,1", false)]), "one is left on the second node");
    let two = (Role::Regular, &containers[1]);
    devices.allocate_container(&pod, two, &mut spare, false, Some(Nodes::of([1]))).await.unwrap();
    assert_eq!(ids("two"), ["a", "d"], "what is near, then others");
    server.abort();
}
