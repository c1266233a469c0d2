//! Keeping the kernel's rules right: from watches and from the pods that start here, only what changed, in one
//! transaction at a time.

use coracle_cli::supervise::Supervisor;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::bridged;
use super::compile::Compiled;
use super::kernel::{Kernel, KernelError};
use super::model::{Pod, Policy, name_server};
use super::refusal::Refusals;
use super::ruleset::TABLE;
use super::snapshot::Snapshot;
use super::tell;
use crate::cluster::{Changes, Make, Name, Namespace, View};
use crate::events::Recorder;
use coracle_engine::others::{Heard, Others};

/// How long a pod waits to learn whether there are policies at all; a server that is away must not hold restarts.
const FIRST_LIST: Duration = Duration::from_secs(2);
/// How long a pod waits for its rules.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after the first failure, doubled with each further one, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(16));
/// The least pause after every change, and how many times longer than the change took it is: a busy cluster is
/// followed in steps, at a bounded cost.
const BREATH: (Duration, u32) = (Duration::from_millis(10), 4);

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

/// What the kernel has, what it refused, and what people have been told.
#[derive(Default)]
struct Enforced {
    kernel: Kernel,
    refusals: Refusals,
    /// Policies that people have been told are too large.
    too_large: BTreeSet<Name>,
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
            tell::not_enforced(&self.events, &self.node);
            self.policies.synced().await;
        }
        let mut policy_changes = self.policies.changes();
        let mut watches: Option<Watches> = None;
        let mut enforced = Enforced::default();
        let mut others = Others::at(TABLE)
            .inspect_err(|error| tracing::warn!(%error, "rules that somebody removes are not made again"))
            .ok();
        let mut failures: u32 = 0;
        loop {
            let goal = self.wanted.load(Ordering::SeqCst);
            let begun = Instant::now();
            // When policies that the kernel refused are tried again.
            let mut due = None;
            if self.policies.is_empty() {
                watches = None;
                enforced = Enforced { kernel: enforced.kernel, ..Enforced::default() };
                if let Err(error) = enforced.kernel.clear().await {
                    tracing::warn!(%error, "policy rules not removed, will retry");
                }
                self.reached.send_replace((goal, None));
            } else {
                let watches = watches.get_or_insert_with(|| self.watch());
                if watches.pods.is_synced() && self.namespaces.is_synced() {
                    let snapshot = self.snapshot(watches);
                    match self.enforce(snapshot, &mut enforced).await {
                        Ok(()) => {
                            failures = 0;
                            due = enforced.refusals.due();
                            self.reached.send_replace((goal, None));
                        }
                        Err(error) => {
                            let pause = RETRY.0.saturating_mul(1 << failures.min(10)).min(RETRY.1);
                            failures = failures.saturating_add(1);
                            tracing::warn!(%error, ?pause, "policy rules not changed, will retry");
                            self.reached.send_modify(|reached| reached.1 = Some(error.to_string()));
                            tokio::time::sleep(pause).await;
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
                () = until(due) => None,
                heard = hear(others.as_mut(), enforced.kernel.port()) => Some(heard),
            };
            let touched = match heard {
                None => false,
                Some(Heard::Change) => true,
                Some(Heard::TooMuch) => !self.policies.is_empty() && !enforced.kernel.has_rules().await,
            };
            if touched {
                tracing::warn!(table = TABLE.name, "somebody changed the policy rules; they are made again");
                enforced.kernel.forget();
            }
        }
    }

    /// Gives the kernel the rules of all policies or, where it refuses them, of all but the refused ones.
    async fn enforce(&self, snapshot: Snapshot, enforced: &mut Enforced) -> Result<(), KernelError> {
        let Enforced { kernel, refusals, too_large } = enforced;
        let mut search = refusals.begin(&snapshot.policies, Instant::now());
        let mut large = BTreeSet::new();
        while let Some(refused) = search.attempt() {
            let Compiled { rules, denied } = snapshot.compile(&self.dns, &refused);
            match kernel.replace(rules).await {
                Ok(()) => {
                    large = denied;
                    search.answer(Ok(()))?;
                }
                Err(error) if error.is_refusal() => {
                    tracing::debug!(%error, without = refused.len(), "policy rules refused");
                    search.answer(Err(error))?;
                }
                Err(error) => return Err(error),
            }
        }
        large.difference(too_large).for_each(|policy| tell::too_large(&self.events, policy));
        *too_large = large;
        if search.undecided() > 0 {
            let policies = search.undecided();
            tracing::warn!(
                policies,
                "the kernel refuses rules; these policies allow nothing until they are tried"
            );
        }
        for (policy, error) in refusals.finish(search, snapshot.policies, Instant::now()) {
            tell::refused(&self.events, &self.node, &policy, &error);
        }
        Ok(())
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

    fn snapshot(&self, watches: &Watches) -> Snapshot {
        let mut pods: BTreeMap<Name, Pod> =
            watches.pods.all().into_iter().map(|(name, pod)| (name, (*pod).clone())).collect();
        let mut local: BTreeSet<Name> =
            pods.iter().filter(|(_, pod)| *pod.node == *self.node).map(|(name, _)| name.clone()).collect();
        for (name, (_, pod)) in self.local.lock().iter() {
            local.insert(name.clone());
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
        Snapshot {
            policies: self.policies.all().into_iter().collect(),
            pods,
            local,
            namespaces: self.namespaces.all().into_iter().collect(),
        }
    }
}

/// Waits for a moment; for ever without one.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

async fn hear(others: Option<&mut Others>, own: u32) -> Heard {
    match others {
        Some(others) => others.change(&[own]).await,
        None => std::future::pending().await,
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
