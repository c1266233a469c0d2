//! A cluster for unit tests: the real API on an embedded store in a temporary directory, the controllers that a test starts,
//! and simulated nodes that run every pod at once.
//!
//! Only ever a dev-dependency. May depend on `coracle-apiserver`, `coracle-client`, `coracle-kinds`, `coracle-pki`,
//! `coracle-store` and `coracle-trace`, but not on `coracle-informer`, `coracle-controllers` or `coracle-scheduler`: their
//! tests use this crate.

#![forbid(unsafe_code)]

// What a cluster has recorded.
mod records;
// What controllers may write.
mod default_roles;
#[cfg(test)]
mod trace_tests;

pub use records::Recorded;

use coracle_apiserver::actions::{self, Needs, components::LoopPlacement};
use coracle_apiserver::admission::plugins;
use coracle_apiserver::admission::resource_quota::PendingCharges;
use coracle_apiserver::api::Api;
use coracle_apiserver::authz::rbac::Rbac;
use coracle_apiserver::authz::{Always, Authorizer};
use coracle_apiserver::conversion::Converter;
use coracle_apiserver::in_process::InProcess;
use coracle_apiserver::node_ports::StoredNodePorts;
use coracle_apiserver::objects::Objects;
use coracle_apiserver::pending_initializers::WaitingCreates;
use coracle_cli::causes;
use coracle_cli::health::Checks;
use coracle_cli::supervise::Supervisor;
use coracle_client::Client;
use coracle_client::node_ports::NodePorts;
use coracle_client::options::DeleteOptions;
use coracle_client::patch::Patch;
use coracle_client::user::User;
use coracle_fields::core::v1::{Binding, Node, NodeCondition, Pod, PodCondition, PodIP, PodSpec};
use coracle_fields::{Made, Schema as _, View, make};
use coracle_kinds::object::{Name, Object};
use coracle_kinds::registry::index::Registry;
use coracle_kinds::watch::cache::Cache;
use coracle_kinds::watch::reflector::Reflector;
use coracle_pki::Pki;
use coracle_pki::service_account::Keys;
use coracle_store::{Datastore, Opening};
use coracle_trace::Recorder;
use default_roles::{CheckedWrites, DeniedWrites};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Timers of at least this length are off in tests: [`Cluster::until`] waits for longer, so that slow machines pass, and a
/// lost event must not be made up for meanwhile.
pub const FALLBACK: Duration = Duration::from_secs(10);

/// What controllers are started with.
pub struct Parts {
    /// The server's own client; controllers take identities from it. A test fails whose controllers write what no default
    /// role of a cluster allows.
    pub client: Client,
    /// The keys of service-account tokens.
    pub keys: Arc<Keys>,
    /// What admission charged to quotas.
    pub quota_charges: Arc<PendingCharges>,
    /// The node ports that are taken.
    pub node_ports: Arc<StoredNodePorts>,
}

/// A cluster; it ends when it is dropped.
pub struct Cluster {
    /// The server.
    pub api: Arc<Api>,
    /// A client that may do everything.
    pub client: Client,
    /// Records what the cluster does.
    pub recorder: Recorder,
    _controllers: JoinSet<()>,
    kubelet: JoinSet<()>,
    _directory: tempfile::TempDir,
    _denied: DeniedWrites,
}

impl Cluster {
    /// A cluster without controllers, whose pods stay pending.
    pub async fn bare() -> Self {
        let cluster = Self::build(|_| JoinSet::new()).await;
        cluster.create("", "serviceaccounts", "default", json!({"metadata": {"name": "default"}})).await;
        cluster
    }

    /// A cluster with controllers, whose pods stay pending; its namespaces have accounts.
    pub async fn with(start: impl FnOnce(&Parts) -> JoinSet<()>) -> Self {
        let cluster = Self::build(start).await;
        // Pods are taken once their account is there.
        let account = Name::new("default", "default");
        cluster.until("an account", |c| !c.get("serviceaccounts", &account).is_null()).await;
        cluster
    }

    /// The same whose pods start and become ready by themselves.
    #[must_use]
    pub fn running_pods(mut self) -> Self {
        self.kubelet.spawn(run_pods(self.client.clone()));
        self
    }

    async fn build(start: impl FnOnce(&Parts) -> JoinSet<()>) -> Self {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        let directory = tempfile::tempdir().expect("a directory");
        let pki =
            Pki::ensure(&directory.path().join("pki"), &["localhost".to_owned()], Duration::from_secs(3600))
                .expect("keys");
        let keys = Arc::new(Keys::from_pem(&pki.service_account_key).expect("a key"));
        let registry = Arc::new(Registry::builtin());
        let recorder = records::recorder();
        let (supervisor, data_dir) = (&Supervisor::default(), directory.path());
        let opening = Opening { datastore: &Datastore::Embedded, data_dir, supervisor, recorder };
        let store = opening.open().await.expect("a store");
        let reflector = Arc::new(Reflector::start(store.clone(), registry.all()).await.expect("a reflector"));
        let objects = Arc::new(Objects::new(registry.clone(), store.clone(), reflector.clone()));
        let authz: Arc<dyn Authorizer> = Arc::new(Always(true));
        let chain = plugins::Needs {
            authz: authz.clone(),
            roles: Arc::new(Rbac::new(objects.clone())),
            quota_charges: Arc::default(),
            dialer: Arc::default(),
            usage_history: None,
        };
        let needs = Needs {
            keys: keys.clone(),
            authn: Arc::default(),
            authz,
            usage: Arc::default(),
            loops: LoopPlacement::Here,
            checks: Checks::default(),
        };
        let actions = Arc::new(actions::actions(&registry, &needs));
        let api = Arc::new(Api {
            hooks: actions::hooks(&registry, "10.43.0.0/16").expect("hooks"),
            converter: Converter::new(registry, reflector, chain.dialer.clone()),
            objects,
            store,
            admission: plugins::chain(&chain, &plugins::Options::default()).expect("a chain"),
            recorder,
            trace_annotations: false,
            metrics: Arc::default(),
            waiting_creates: WaitingCreates::default(),
        });
        let in_process = || InProcess { api: api.clone(), actions: actions.clone(), audit: Arc::default() };
        let client = Client::new(Arc::new(in_process()), User::server());
        let (checked, denied) = CheckedWrites::new(in_process());
        let node_ports = Arc::new(StoredNodePorts(api.store.clone()));
        let parts = Parts {
            client: Client::new(Arc::new(checked), User::server()),
            keys,
            quota_charges: chain.quota_charges.clone(),
            node_ports,
        };
        let cluster = Self {
            api,
            client,
            recorder,
            _controllers: start(&parts),
            kubelet: JoinSet::new(),
            _directory: directory,
            _denied: denied,
        };
        for name in ["default", "kube-system"] {
            cluster.create("", "namespaces", "", json!({"metadata": {"name": name}})).await;
        }
        cluster
    }

    /// The node ports that are taken.
    pub fn node_ports(&self) -> Arc<dyn NodePorts> {
        Arc::new(StoredNodePorts(self.api.store.clone()))
    }

    /// Takes what was recorded since the last call, oldest first.
    pub fn records(&self) -> Vec<Recorded> {
        records::take(self.recorder)
    }

    fn split(resource: &str) -> (&str, &str) {
        resource.split_once('/').unwrap_or(("", resource))
    }

    fn cache(&self, group: &str, plural: &str) -> Arc<Cache> {
        self.client.cache(&self.client.kind(group, plural))
    }

    /// Creates an object of `group` and `plural`.
    pub async fn create(&self, group: &str, plural: &str, namespace: &str, body: Value) -> Arc<Object> {
        let result = self.client.create(&self.client.kind(group, plural), namespace, body).await;
        result.unwrap_or_else(|e| panic!("create {plural}: {e}"))
    }

    /// A node that is ready.
    pub async fn node(&self, name: &str, labels: Value) {
        let node = self.create("", "nodes", "", json!({"metadata": {"name": name, "labels": labels}})).await;
        let kind = self.client.kind("", "nodes");
        let ready = |value: &mut Value| {
            let ready = make!(part NodeCondition { type_: "Ready", status: "True" });
            Node::edit(value).status().conditions().set([ready]);
        };
        let result = self.client.modify(&kind, "", &node.meta.name, "status", ready).await;
        result.unwrap_or_else(|e| panic!("node {name}: {e}"));
    }

    /// Changes an object of `group/plural`.
    pub async fn patch(&self, resource: &str, name: &Name, change: Value) {
        let (group, plural) = Self::split(resource);
        let kind = self.client.kind(group, plural);
        let result = self.client.patch(&kind, &name.namespace, &name.name, "", Patch::Merge(change)).await;
        result.unwrap_or_else(|e| panic!("patch {name}: {e}"));
    }

    /// Deletes an object of `group/plural`.
    pub async fn delete(&self, resource: &str, name: &Name, policy: &str) {
        let (group, plural) = Self::split(resource);
        let options = DeleteOptions { propagation_policy: Some(policy.into()), ..DeleteOptions::default() };
        let kind = self.client.kind(group, plural);
        let result = self.client.delete(&kind, &name.namespace, &name.name, options).await;
        result.unwrap_or_else(|e| panic!("delete {name}: {e}"));
    }

    /// An object of `group/plural`, or null.
    pub fn get(&self, resource: &str, name: &Name) -> Value {
        let (group, plural) = Self::split(resource);
        self.cache(group, plural).get(&name.namespace, &name.name).map_or(Value::Null, |o| o.value())
    }

    /// All objects of `group/plural` in a namespace; without a namespace, those of the cluster.
    pub fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let (group, plural) = Self::split(resource);
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        self.cache(group, plural).list(namespace).iter().map(|o| o.value()).collect()
    }

    /// Waits until something holds; panics with what there is when it does not for a minute.
    pub async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..6000 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let pods: Vec<Value> = self.list("pods", "default");
        let brief = |p: &Value| {
            format!("{} {} {}", p["metadata"]["name"], p["status"], p["metadata"]["deletionTimestamp"])
        };
        let pods: Vec<String> = pods.iter().map(brief).collect();
        let others = ["apps/deployments", "apps/replicasets"].map(|kind| self.list(kind, "default"));
        let namespaces = self.cache("", "namespaces").list(None).into_iter().map(|n| n.value());
        let others: Vec<String> =
            others.iter().flatten().map(brief).chain(namespaces.map(|n| n.to_string())).collect();
        panic!("never: {what}; pods: {pods:#?}, others: {others:#?}");
    }
}

/// Binds pods to `node-1`, runs them, and lets them go when they are deleted.
async fn run_pods(client: Client) {
    let kind = client.kind("", "pods");
    let cache = client.cache(&kind);
    let (pods, _, mut cursor) = cache.list_and_watch(None);
    for pod in pods {
        run_pod(&client, &pod).await;
    }
    while let Ok(event) = cursor.next().await {
        if let Some(pod) = cache.get(&event.object.meta.namespace, &event.object.meta.name) {
            run_pod(&client, &pod).await;
        }
    }
}

async fn run_pod(client: &Client, pod: &Arc<Object>) {
    let kind = client.kind("", "pods");
    let (namespace, name) = (&pod.meta.namespace, &pod.meta.name);
    let mut value = Made::<Pod>::new(pod.value());
    if pod.meta.deletion_timestamp.is_some() {
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        let _ = client.delete(&kind, namespace, name, options).await;
        return;
    }
    if !value.view().spec().node_name().is_set() {
        let node = pinned_node(value.view().spec()).unwrap_or("node-1");
        let binding = make!(Binding {
            metadata: { name, namespace },
            target: { api_version: "v1", kind: "Node", name: node },
        });
        if let Err(error) = client.call(&kind, namespace, name, "binding", binding.into_value()).await {
            tracing::warn!(error = %causes::chain(&error), "bind");
        }
        return;
    }
    let annotations = value.view().metadata().annotations();
    if value.view().status().phase() == "Pending" && !annotations.key("test/hold").is_set() {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ends = annotations.key("test/ends").get().map(str::to_owned);
        let hash = name.bytes().fold(7u32, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
        let ip = format!("10.42.{}.{}", hash / 256 % 256, hash % 256);
        let ready = make!(part PodCondition {
            type_: "Ready",
            status: if ends.is_none() { "True" } else { "False" },
            last_transition_time: now,
        });
        let mut edit = value.edit();
        let mut status = edit.status();
        status.phase().set(ends.as_deref().unwrap_or("Running"));
        status.pod_ip().set(&ip);
        status.pod_ips().set([make!(part PodIP { ip })]);
        status.conditions().set([ready]);
        let _ = client.update(&kind, namespace, name, "status", value.into_value()).await;
    }
}

/// The node that a pod's affinity names, as DaemonSets write it.
fn pinned_node(spec: View<'_, PodSpec>) -> Option<&str> {
    let required = spec.affinity().node_affinity().required_during_scheduling_ignored_during_execution();
    let mut fields = required.node_selector_terms().items().flat_map(|term| term.match_fields().items());
    fields.find_map(|field| field.values().first().filter(|_| field.key() == "metadata.name")?.get())
}
