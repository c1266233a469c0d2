//! Builds the parts of the node, in the order in which they need each other.

use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;

use crate::api::containers::Containers;
use crate::api::metrics::Metrics;
use crate::api::pod_resources::PodResourcesApi;
use crate::claims::slices::Slices;
use crate::claims::{self, Claims};
use crate::cluster::{AwaitedNames, Cluster, Heard, Make};
use crate::config::NodeConfig;
use crate::devices::Devices;
use crate::devices::registration::PluginRegistration;
use crate::events;
use crate::image::Images;
use crate::image::gc::ages::ImageAges;
use crate::image::records::PullRecords;
use crate::lifecycle::execute::Executor;
use crate::lifecycle::network::PodNetwork;
use crate::lifecycle::resources::NodeResources;
use crate::lifecycle::table::{Message, PodTable};
use crate::lifecycle::worker::{WorkerParts, Workers};
use crate::node::machine::Machine;
use crate::node::object;
use crate::node::reconcile::NodeParts;
use crate::node::shutdown::NodeShutdown;
use crate::node::status::allocatable;
use crate::objects::{Objects, Wake};
use crate::pod::node_facts::{Confinement, NodeFacts, Pressure, SharedFacts};
use crate::policy::Policies;
use crate::probe::schedule::Probes;
use crate::source::mirror::Mirrors;
use crate::status::report::Reporter;
use crate::trace::NodeTrace;
use crate::usage::Usage;
use crate::volume::csi::CsiVolumes;
use crate::volume::csi::attachments::Attachments;
use crate::volume::csi::drivers::Drivers;
use crate::volume::csi::names::Paths;
use crate::volume::csi::node_object::NodeObject;
use crate::volume::csi::records::Records;
use crate::volume::csi::registration::Registration;
use crate::volume::token::Tokens;
use crate::volume::usage::VolumeUsage;
use crate::volume::volumes::Volumes;
use coracle_cli::feature_gates::in_force;
use coracle_cli::supervise::Supervisor;
use coracle_engine::runtime::Runtime;
use coracle_engine::runtime::instrumented::{InstrumentedRuntime, Operations};

/// A background task: its name and its factory.
pub type Task = (String, Make);

/// The parts of the node, each with what it needs.
pub struct Node {
    /// Settings.
    pub config: Arc<NodeConfig>,
    /// The container runtime, with its operations counted.
    pub runtime: Arc<dyn Runtime>,
    /// Watched state of the cluster.
    pub cluster: Cluster,
    /// Services whose first DNS answer is awaited.
    pub awaited: Arc<AwaitedNames>,
    /// Workers of pods.
    pub workers: Workers,
    /// Mirror pods.
    pub mirrors: Mirrors,
    /// The Node object.
    pub status: NodeParts,
    /// Shutdown of the machine.
    pub shutdown: NodeShutdown,
    /// Pods as the node API shows them.
    pub containers: Containers,
    /// Metrics of the node API.
    pub metrics: Metrics,
}

/// Builds the node; the caller must spawn the tasks.
pub fn assemble(
    config: NodeConfig,
    (client, trace): (kube::Client, NodeTrace),
    (runtime, runtime_name): (Arc<dyn Runtime>, String),
    machine: &Machine,
    supervisor: &Supervisor,
) -> (Node, Vec<Task>) {
    let config = Arc::new(config);
    let operations = Arc::new(Operations::default());
    let runtime: Arc<dyn Runtime> = Arc::new(InstrumentedRuntime::new(runtime, operations.clone()));
    let pods = PodTable::default();
    let facts = facts(&config, machine);
    let (events, record) = events::recorder(client.clone(), config.name.clone());
    let awaited = Arc::new(AwaitedNames::new(trace.recorder));
    let names = awaited.clone();
    let heard =
        config.service_proxy.then(|| -> Heard { Box::new(move |name, origin| names.add(name, origin)) });
    let (cluster, follow) = Cluster::new(&client, supervisor, heard);
    let (policies, enforce) = policies(&config, &client, &events, &cluster, supervisor);
    let verdicts_changed = wake(&pods, || Message::Verdicts);
    let probes = Probes::new(runtime.clone(), events.clone(), verdicts_changed, supervisor.clone());
    let reporter = Reporter::new(client.clone(), trace.clone());
    let objects_changed = wake(&pods, || Message::Objects);
    let changed = Arc::new(Notify::new());
    let tokens = Arc::new(Tokens::new(client.clone()));
    let attachments = Arc::new(Attachments::new(changed.clone()));
    let devices_changed = wake(&pods, || Message::Verdicts);
    let devices = Devices::open(&config.kubelet_dir, changed.clone(), devices_changed);
    let plugins = PluginRegistration::new(devices.clone());
    let claim_drivers = claims::Drivers::default();
    let others = (plugins.clone(), claim_drivers.clone());
    let api = (&client, &events);
    let (csi, register) = storage_drivers(&config, api, attachments.clone(), (&tokens, machine), others);
    let (volume_usage, mounts) = (VolumeUsage::default(), csi.metrics().clone());
    let measure = (volume_usage.clone(), csi.clone(), events.clone());
    let measure: Make = Box::new(move || {
        let (usage, csi, events) = measure.clone();
        Box::pin(usage.run(csi, events))
    });
    let objects = Arc::new(Objects::new(client.clone(), objects_changed, supervisor));
    let images = Arc::new(Images::new(
        runtime.clone(),
        events.clone(),
        config.verification.clone(),
        PullRecords::new(config.image_pulls_dir()),
        trace.metrics.clone(),
    ));
    let executor = Executor {
        config: config.clone(),
        client: client.clone(),
        runtime: runtime.clone(),
        events: events.clone(),
        resources: NodeResources::open(config.clone(), facts.clone(), pods.clone()),
        devices: devices.clone(),
        claims: Claims::open(&config.kubelet_dir, client.clone(), claim_drivers.clone()),
        volumes: Volumes::new(
            config.clone(),
            client.clone(),
            objects.clone(),
            (tokens, csi),
            (facts.clone(), volume_usage.clone()),
        ),
        objects,
        images: images.clone(),
        network: PodNetwork::new(config.name.clone(), policies.clone(), cluster.services.clone()),
        metrics: trace.metrics.clone(),
    };
    let executor = Arc::new(executor);
    let pod_resources = PodResourcesApi::new(&config.kubelet_dir, pods.clone(), executor.clone());
    let workers = Workers::new(WorkerParts {
        pods: pods.clone(),
        executor: executor.clone(),
        reporter: reporter.clone(),
        probes: probes.clone(),
        trace: trace.clone(),
        supervisor: supervisor.clone(),
        runtime_name,
    });
    let run_probes = probes.clone();
    let run_probes: Make = Box::new(move || Box::pin(run_probes.clone().run()));
    let mut tasks: Vec<Task> = vec![("events".to_owned(), record), ("probes".to_owned(), run_probes)];
    tasks.push(register);
    tasks.push(("volume usage".to_owned(), measure));
    let plugins: Make = Box::new(move || Box::pin(plugins.clone().run()));
    tasks.push(("device plugins".to_owned(), plugins));
    let slices = Slices::new(client.clone(), &config.name, claim_drivers);
    let slices: Make = Box::new(move || Box::pin(slices.clone().run()));
    tasks.push(("ResourceSlices".to_owned(), slices));
    let pod_resources: Make = Box::new(move || Box::pin(pod_resources.clone().run()));
    tasks.push(("PodResources".to_owned(), pod_resources));
    tasks.extend(follow);
    tasks.extend(enforce);
    let node = Node {
        workers,
        cluster,
        awaited,
        mirrors: Mirrors {
            client: client.clone(),
            node: config.name.clone(),
            pods: pods.clone(),
            reporter: reporter.clone(),
        },
        shutdown: NodeShutdown {
            node: config.name.clone(),
            facts: facts.clone(),
            changed: changed.clone(),
            pods: pods.clone(),
            reporter: reporter.clone(),
        },
        metrics: Metrics {
            node: config.name.clone(),
            features: in_force(config.gates),
            usage: Usage::default(),
            volumes: volume_usage,
            mounts,
            probes,
            operations,
            durations: trace.metrics.clone(),
            spool: None,
            supervisor: supervisor.clone(),
        },
        containers: Containers { pods: pods.clone(), runtime: runtime.clone(), reporter },
        status: NodeParts {
            config: config.clone(),
            client,
            runtime: runtime.clone(),
            events,
            facts,
            images,
            ages: ImageAges::new(Instant::now()),
            policies,
            attachments,
            pods,
            devices,
            changed,
        },
        runtime,
        config,
    };
    (node, tasks)
}

/// What is known of the node before its Node object is read.
fn facts(config: &NodeConfig, machine: &Machine) -> SharedFacts {
    Arc::new(RwLock::new(NodeFacts {
        allocatable: allocatable(config, machine),
        memory: machine.capacity.get("memory").copied().unwrap_or(0),
        labels: object::labels(config, &machine.hostname),
        taints: vec![],
        pressure: Pressure::default(),
        confinement: Confinement::of_host(),
        shutting_down: false,
    }))
}

/// Volumes of storage drivers, and the task that registers drivers.
fn storage_drivers(
    config: &NodeConfig,
    (client, events): (&kube::Client, &events::Recorder),
    attachments: Arc<Attachments>,
    (tokens, machine): (&Arc<Tokens>, &Machine),
    (device_plugins, claim_drivers): (PluginRegistration, claims::Drivers),
) -> (CsiVolumes, Task) {
    let (paths, drivers) = (Paths::new(&config.kubelet_dir), Drivers::default());
    let object = NodeObject::new(client.clone(), &config.name);
    let own = (drivers.clone(), object.clone());
    let registration = Registration::new(paths.clone(), own, device_plugins, claim_drivers);
    let register: Make = Box::new(move || Box::pin(registration.clone().run()));
    let records = Records::load(paths.clone(), machine.info.boot_id.clone());
    let records = (paths, records);
    let volumes = CsiVolumes::new(object, records, events.clone(), drivers, attachments, tokens.clone());
    (volumes, ("storage drivers".to_owned(), register))
}

/// Network policies and their tasks, where the node enforces them.
fn policies(
    config: &NodeConfig,
    client: &kube::Client,
    events: &events::Recorder,
    cluster: &Cluster,
    supervisor: &Supervisor,
) -> (Option<Policies>, Vec<Task>) {
    if !config.policies {
        return (None, vec![]);
    }
    let dns = config.cluster.servers.iter().filter(|_| config.serves_dns);
    let dns = dns.filter_map(|server| server.parse().ok()).collect();
    let namespaces = cluster.namespaces.clone();
    let (policies, tasks) =
        Policies::new(&config.name, client.clone(), events.clone(), namespaces, dns, supervisor);
    (Some(policies), tasks)
}

/// Sends a message to the worker of a pod, by uid.
fn wake(pods: &PodTable, message: fn() -> Message) -> Wake {
    let pods = pods.clone();
    Arc::new(move |uid: &str| {
        pods.send(uid, message());
    })
}
