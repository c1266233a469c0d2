//! Keeping the kernel's rules right: from watches and from the pods that start here, only what changed, in one
//! transaction at a time.

use coracle_cli::supervise::Supervisor;
use coracle_cni::netlink::Error as NetlinkError;
use coracle_cni::nft::{Batch, Nft};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::bridged;
use super::compile::{Compiled, Known, compile};
use super::model::{Pod, Policy, name_server};
use super::ruleset::{self, Ruleset, TABLE};
use crate::cluster::{Changes, Make, Name, Namespace, View};
use crate::events::{Kind, Recorder};
use crate::others::{Heard, Others};

/// How long a pod waits to learn whether there are policies at all; a server that is away must not hold restarts.
const FIRST_LIST: Duration = Duration::from_secs(2);
/// How long a pod waits for its rules.
const PATIENCE: Duration = Duration::from_secs(10);
/// A pause after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// The least pause after every change, and how many times longer than the change took it is: a busy cluster is
/// followed in steps, at a bounded cost.
const BREATH: (Duration, u32) = (Duration::from_millis(10), 4);

/// What people are told where policies cannot be read.
pub const NOT_ENFORCED: &str = "The API server does not let this node read network policies: its pods start without them. \
    The group system:nodes needs the role coracle:node-network.";

/// What people are told about a policy that is too large.
const TOO_LARGE: &str = "The policy, or all policies of its namespace together, have too many peers, exceptions and ports \
    for a node: the pods that it selects are isolated, but nothing that it allows is let through.";

/// Why a pod must not start yet; retry.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The rules are not in place.
    #[error("network policies are not in place yet: {}", .0.as_deref().unwrap_or("waiting for the API server"))]
    NotInPlace(Option<String>),
}

/// The policies of this node's pods.
#[derive(Clone)]
pub struct Policies(Arc<Inner>);

struct Inner {
    node: String,
    client: kube::Client,
    events: Recorder,
    policies: View<Policy>,
    namespaces: View<Namespace>,
    /// Addresses of the cluster's DNS, where this node answers.
    dns: Vec<IpAddr>,
    /// Pods that start or run here, with addresses that the API server may not know yet.
    local: Mutex<HashMap<Name, (String, Pod)>>,
    /// Counts changes of `local`.
    wanted: AtomicU64,
    wake: Notify,
    /// The count that the kernel's rules have reached, or why they have not.
    reached: watch::Sender<(u64, Option<String>)>,
    supervisor: Supervisor,
}

/// The watch that only runs while there is a policy.
struct Watches {
    pods: View<Pod>,
    pod_changes: Changes,
    namespace_changes: Changes,
    task: AbortHandle,
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Policies {
    /// The policies of a node that answers at `dns`, and the tasks that keep them.
    pub fn new(
        node: &str,
        client: kube::Client,
        events: Recorder,
        namespaces: View<Namespace>,
        dns: Vec<IpAddr>,
        supervisor: &Supervisor,
    ) -> (Self, Vec<(String, Make)>) {
        let (policies, follow) = View::follow(client.clone(), supervisor);
        let inner = Inner {
            node: node.to_owned(),
            client,
            events,
            policies,
            namespaces,
            dns,
            local: Mutex::default(),
            wanted: AtomicU64::new(0),
            wake: Notify::new(),
            reached: watch::Sender::new((0, None)),
            supervisor: supervisor.clone(),
        };
        let policies = Policies(Arc::new(inner));
        let keeper = policies.0.clone();
        let keep: Make = Box::new(move || Box::pin(keeper.clone().run()));
        (policies, vec![("watch networkpolicies".to_owned(), follow), ("network policies".to_owned(), keep)])
    }

    /// Returns once the rules for a pod that is about to start are in place; at once where the API server does not let
    /// this node read policies.
    pub async fn settle(&self, uid: &str, name: Name, pod: Pod) -> Result<(), PolicyError> {
        let inner = &self.0;
        let goal = {
            let mut local = inner.local.lock();
            let known = local.get(&name).is_some_and(|(of, old)| of == uid && *old == pod);
            if !known {
                local.insert(name, (uid.to_owned(), pod));
                inner.wanted.fetch_add(1, Ordering::SeqCst);
            }
            inner.wanted.load(Ordering::SeqCst)
        };
        inner.wake.notify_one();
        let _ = tokio::time::timeout(FIRST_LIST, inner.policies.answered()).await;
        if inner.policies.is_empty() {
            return Ok(());
        }
        let mut reached = inner.reached.subscribe();
        match tokio::time::timeout(PATIENCE, reached.wait_for(|(count, _)| *count >= goal)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(PolicyError::NotInPlace(inner.reached.borrow().1.clone())),
        }
    }

    /// Whether the API server lets this node read policies; where it does not, pods start without them. `None` until it
    /// has said so.
    pub fn are_read(&self) -> Option<bool> {
        let policies = &self.0.policies;
        if policies.is_refused() { Some(false) } else { policies.is_synced().then_some(true) }
    }

    /// The pod's network is gone.
    pub fn forget(&self, uid: &str) {
        let mut local = self.0.local.lock();
        let before = local.len();
        local.retain(|_, (of, _)| of != uid);
        if local.len() != before {
            self.0.wanted.fetch_add(1, Ordering::SeqCst);
            self.0.wake.notify_one();
        }
    }
}

impl Inner {
    async fn run(self: Arc<Self>) {
        self.policies.answered().await;
        if self.policies.is_refused() {
            self.tell_refused();
            self.policies.synced().await;
        }
        let mut policy_changes = self.policies.changes();
        let mut watches: Option<Watches> = None;
        let mut kernel = Kernel::default();
        let mut others = Others::at(TABLE)
            .inspect_err(|error| tracing::warn!(%error, "rules that somebody removes are not made again"))
            .ok();
        // What the kernel has; `None` when that is not known.
        let mut current: Option<Ruleset> = None;
        // Policies that people have been told are too large.
        let mut told: BTreeSet<Name> = BTreeSet::new();
        loop {
            let goal = self.wanted.load(Ordering::SeqCst);
            let begun = Instant::now();
            if self.policies.is_empty() {
                watches = None;
                told.clear();
                if current.as_ref() != Some(&Ruleset::default()) {
                    match kernel.apply(ruleset::clear()).await {
                        Ok(()) => current = Some(Ruleset::default()),
                        Err(error) => tracing::warn!(%error, "policy rules not removed, will retry"),
                    }
                }
                self.reached.send_replace((goal, None));
            } else {
                let watches = watches.get_or_insert_with(|| self.watch());
                if watches.pods.is_synced() && self.namespaces.is_synced() {
                    let empty = current.as_ref().is_none_or(|current| *current == Ruleset::default());
                    let Compiled { rules: wanted, denied } = self.compile(watches).await;
                    self.tell_denied(&denied, &told);
                    told = denied;
                    let batch = match &current {
                        Some(current) if !empty => ruleset::update(current, &wanted),
                        _ => ruleset::rebuild(&wanted),
                    };
                    match kernel.apply(batch).await {
                        Ok(()) => {
                            current = Some(wanted);
                            self.reached.send_replace((goal, None));
                        }
                        Err(error) => {
                            tracing::warn!(%error, "policy rules not changed, will retry");
                            self.reached.send_modify(|reached| reached.1 = Some(error));
                            current = None;
                            tokio::time::sleep(RETRY).await;
                            continue;
                        }
                    }
                } else if watches.pods.is_refused() || self.namespaces.is_refused() {
                    let why = "this node may not read all pods and namespaces".to_owned();
                    self.reached.send_modify(|reached| reached.1 = Some(why));
                }
            }
            tokio::time::sleep(BREATH.0.max(begun.elapsed() * BREATH.1)).await;
            let heard = tokio::select! {
                () = self.change(&mut policy_changes, watches.as_mut()) => None,
                heard = hear(others.as_mut(), kernel.port) => Some(heard),
            };
            let touched = match heard {
                None => false,
                Some(Heard::Change) => true,
                Some(Heard::TooMuch) => !self.policies.is_empty() && !kernel.has_rules().await,
            };
            if touched {
                tracing::warn!(table = TABLE.name, "somebody changed the policy rules; they are made again");
                current = None;
            }
        }
    }

    fn tell_refused(&self) {
        let metadata = ObjectMeta { name: Some(self.node.clone()), ..ObjectMeta::default() };
        let node = Node { metadata, ..Node::default() };
        self.events.node(&node, Kind::Warning, "NetworkPoliciesNotEnforced", NOT_ENFORCED);
    }

    /// Names the policies that are too large, once for each.
    fn tell_denied(&self, denied: &BTreeSet<Name>, told: &BTreeSet<Name>) {
        for policy in denied.difference(told) {
            tracing::warn!(%policy, "network policy is too large and allows nothing");
            let about = ObjectReference {
                kind: Some("NetworkPolicy".into()),
                api_version: Some("networking.k8s.io/v1".into()),
                namespace: Some(policy.namespace.to_string()),
                name: Some(policy.name.to_string()),
                ..ObjectReference::default()
            };
            self.events.record(about, Kind::Warning, "NetworkPolicyTooLarge", TOO_LARGE);
        }
    }

    fn watch(&self) -> Watches {
        if let Err(error) = bridged::ensure_filtered() {
            tracing::warn!(%error, "packets between pods of this node pass their policies: br_netfilter is needed");
        }
        let (pods, follow_pods) = View::follow(self.client.clone(), &self.supervisor);
        let task = self.supervisor.spawn("watch pods of other nodes", follow_pods).abort_handle();
        let (pod_changes, namespace_changes) = (pods.changes(), self.namespaces.changes());
        Watches { pods, pod_changes, namespace_changes, task }
    }

    /// Waits for anything to change.
    async fn change(&self, policies: &mut Changes, watches: Option<&mut Watches>) {
        match watches {
            None => tokio::select! {
                _ = policies.next() => {}
                () = self.wake.notified() => {}
            },
            Some(watches) => tokio::select! {
                _ = policies.next() => {}
                _ = watches.pod_changes.next() => {}
                _ = watches.namespace_changes.next() => {}
                () = self.wake.notified() => {}
            },
        }
    }

    async fn compile(&self, watches: &Watches) -> Compiled {
        let policies = self.policies.all();
        let namespaces = self.namespaces.all();
        let mut pods: BTreeMap<Name, Pod> =
            watches.pods.all().into_iter().map(|(name, pod)| (name, (*pod).clone())).collect();
        let mut here: BTreeSet<Name> =
            pods.iter().filter(|(_, pod)| *pod.node == *self.node).map(|(name, _)| name.clone()).collect();
        for (name, (_, pod)) in self.local.lock().iter() {
            here.insert(name.clone());
            match pods.get_mut(name) {
                // Labels may have changed since it was started; addresses are known here first.
                Some(known) => known.ips = pod.ips.clone(),
                None => {
                    pods.insert(name.clone(), pod.clone());
                }
            }
        }
        if !self.dns.is_empty() {
            pods.extend([name_server(&self.dns)]);
        }
        let known = Known {
            policies: &policies.iter().map(|(name, policy)| (name.clone(), &**policy)).collect(),
            pods: &pods.iter().map(|(name, pod)| (name.clone(), pod)).collect(),
            local: &here,
            namespaces: &namespaces.iter().map(|(name, namespace)| (name.clone(), &**namespace)).collect(),
            dns: &self.dns,
        };
        compile(&known)
    }
}

async fn hear(others: Option<&mut Others>, own: u32) -> Heard {
    match others {
        Some(others) => others.change(&[own]).await,
        None => std::future::pending().await,
    }
}

/// nftables, spoken to where waiting for it holds nobody up; always by one socket, so that our own changes are known.
#[derive(Default)]
struct Kernel {
    nft: Option<Nft>,
    port: u32,
}

impl Kernel {
    async fn apply(&mut self, batch: Batch) -> Result<(), String> {
        self.ask(move |nft| nft.apply(batch)).await
    }

    async fn has_rules(&mut self) -> bool {
        self.ask(|nft| nft.rule_count(TABLE, "entering")).await.is_ok_and(|count| count > 0)
    }

    async fn ask<T: Send + 'static>(
        &mut self,
        question: impl FnOnce(&mut Nft) -> Result<T, NetlinkError> + Send + 'static,
    ) -> Result<T, String> {
        let mut nft = match self.nft.take() {
            Some(nft) => nft,
            None => {
                let nft = Nft::open().map_err(|error| error.to_string())?;
                self.port = nft.port().map_err(|error| error.to_string())?;
                nft
            }
        };
        let work = move || (question(&mut nft), nft);
        let (result, nft) = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?;
        self.nft = Some(nft);
        result.map_err(|error| error.to_string())
    }
}

/// The pod as policies see it, with the addresses it was just given.
pub fn starting(pod: &k8s_openapi::api::core::v1::Pod, ips: &[String], node: &str) -> Pod {
    let containers =
        pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let ports = containers.flat_map(|container| container.ports.iter().flatten()).filter_map(|port| {
        let protocol = match port.protocol.as_deref() {
            Some("UDP") => crate::cluster::Protocol::Udp,
            Some("SCTP") => crate::cluster::Protocol::Sctp,
            _ => crate::cluster::Protocol::Tcp,
        };
        let (name, number) = (port.name.as_deref()?.into(), u16::try_from(port.container_port).ok()?);
        Some(super::model::NamedPort { name, protocol, number })
    });
    Pod {
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        ips: ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok()).collect(),
        ports: ports.collect(),
        node: node.into(),
    }
}
