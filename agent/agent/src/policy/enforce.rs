//! Enforces network policies: compiles them on every change of policies or pods and applies the difference in one
//! transaction.

use coracle_cli::causes;
use coracle_cli::supervise::Supervisor;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::bisect::RejectedPolicies;
use super::br_netfilter;
use super::compile::Compiled;
use super::events;
use super::kernel::{Kernel, KernelError};
use super::model::{Pod, Policy, name_server};
use super::ruleset::TABLE;
use super::snapshot::Snapshot;
use crate::cluster::{Changes, Make, Name, Namespace, Reflector};
use crate::events::Recorder;
use coracle_engine::nft_monitor::{NftMonitor, TableEvent};

/// How long a pod waits for the first list of policies: an unavailable API server must not block restarts.
const FIRST_LIST: Duration = Duration::from_secs(2);
/// How long a pod waits for its rules to be applied.
const RULES_TIMEOUT: Duration = Duration::from_secs(10);
/// First and longest delay after a failure; doubles each time.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(16));
/// Pause after every change: a minimum, and a multiple of the time the change took. Bounds the CPU time in a busy cluster.
const CHANGE_PAUSE: (Duration, u32) = (Duration::from_millis(10), 4);

/// Why a pod must not start yet; retried.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PolicyError {
    /// Not everything is known that the rules are made from.
    #[error("network policies are not in place yet: waiting for the API server")]
    Waiting,
    /// The API server does not tell this node what the rules are made from.
    #[error("network policies are not in place yet: this node may not read all pods and namespaces")]
    Forbidden,
    /// The last change of the rules failed.
    #[error("network policies are not in place yet: {0}")]
    Kernel(#[source] Arc<KernelError>),
}

/// The policies of this node's pods.
#[derive(Clone)]
pub struct Policies(Arc<Inner>);

struct Inner {
    node: String,
    client: kube::Client,
    events: Recorder,
    policies: Reflector<Policy>,
    namespaces: Reflector<Namespace>,
    /// Addresses of the cluster's DNS, where this node answers.
    dns: Vec<IpAddr>,
    /// Pods that start or run here, with addresses that the API server may not know yet.
    local: Mutex<HashMap<Name, (String, Pod)>>,
    /// Counts changes of `local`.
    wanted: AtomicU64,
    wake: Notify,
    /// The count that the kernel's rules have reached, and why they have not reached a higher one.
    reached: watch::Sender<(u64, PolicyError)>,
    supervisor: Supervisor,
}

/// What the kernel has, what it refused, and what people have been told.
#[derive(Default)]
struct Enforced {
    kernel: Kernel,
    refusals: RejectedPolicies,
    /// Policies that people have been told are too large.
    too_large: BTreeSet<Name>,
}

/// The watch that only runs while there is a policy.
struct Watches {
    pods: Reflector<Pod>,
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
        namespaces: Reflector<Namespace>,
        dns: Vec<IpAddr>,
        supervisor: &Supervisor,
    ) -> (Self, Vec<(String, Make)>) {
        let (policies, follow) = Reflector::follow(client.clone(), supervisor);
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
            reached: watch::Sender::new((0, PolicyError::Waiting)),
            supervisor: supervisor.clone(),
        };
        let policies = Policies(Arc::new(inner));
        let keeper = policies.0.clone();
        let keep: Make = Box::new(move || Box::pin(keeper.clone().run()));
        (policies, vec![("watch networkpolicies".to_owned(), follow), ("network policies".to_owned(), keep)])
    }

    /// Returns once the rules for a pod that is about to start are in place; at once where the API server does not let
    /// this node read policies.
    pub async fn wait_enforced(&self, uid: &str, name: Name, pod: Pod) -> Result<(), PolicyError> {
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
        match tokio::time::timeout(RULES_TIMEOUT, reached.wait_for(|(count, _)| *count >= goal)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(inner.reached.borrow().1.clone()),
        }
    }

    /// Whether the API server lets this node read policies; where it does not, pods start without them. `None` until it
    /// has said so.
    pub fn may_read(&self) -> Option<bool> {
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
            events::not_enforced(&self.events, &self.node);
            self.policies.synced().await;
        }
        let mut policy_changes = self.policies.changes();
        let mut watches: Option<Watches> = None;
        let mut enforced = Enforced::default();
        let mut monitor = NftMonitor::open(TABLE)
            .inspect_err(|error| tracing::warn!(error = %causes::chain(error), "nftables notifications are not available: removed policy rules are not restored"))
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
                    tracing::warn!(error = %causes::chain(&error), "policy rules not removed, will retry");
                }
                self.reached.send_replace((goal, PolicyError::Waiting));
            } else {
                let watches = watches.get_or_insert_with(|| self.watch());
                if watches.pods.is_synced() && self.namespaces.is_synced() {
                    let snapshot = self.snapshot(watches);
                    match self.enforce(snapshot, &mut enforced).await {
                        Ok(()) => {
                            failures = 0;
                            due = enforced.refusals.due();
                            self.reached.send_replace((goal, PolicyError::Waiting));
                        }
                        Err(error) => {
                            let pause = RETRY.0.saturating_mul(1 << failures.min(10)).min(RETRY.1);
                            failures = failures.saturating_add(1);
                            tracing::warn!(error = %causes::chain(&error), ?pause, "policy rules not changed, will retry");
                            let error = PolicyError::Kernel(Arc::new(error));
                            self.reached.send_modify(|reached| reached.1 = error);
                            tokio::time::sleep(pause).await;
                            continue;
                        }
                    }
                } else if watches.pods.is_refused() || self.namespaces.is_refused() {
                    self.reached.send_modify(|reached| reached.1 = PolicyError::Forbidden);
                }
            }
            tokio::time::sleep(CHANGE_PAUSE.0.max(begun.elapsed() * CHANGE_PAUSE.1)).await;
            let event = tokio::select! {
                () = self.change(&mut policy_changes, watches.as_mut()) => None,
                () = until(due) => None,
                event = table_event(monitor.as_mut(), enforced.kernel.port()) => Some(event),
            };
            let touched = match event {
                None => false,
                Some(TableEvent::Changed) => true,
                Some(TableEvent::Overflow) => !self.policies.is_empty() && !enforced.kernel.has_rules().await,
            };
            if touched {
                tracing::warn!(
                    table = TABLE.name,
                    "another program changed the policy rules, rebuilding them"
                );
                enforced.kernel.forget();
            }
        }
    }

    /// Applies the rules of all policies, without those that the kernel rejects.
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
                    tracing::debug!(error = %causes::chain(&error), without = refused.len(), "policy rules refused");
                    search.answer(Err(error))?;
                }
                Err(error) => return Err(error),
            }
        }
        large.difference(too_large).for_each(|policy| events::too_large(&self.events, policy));
        *too_large = large;
        if search.undecided() > 0 {
            let policies = search.undecided();
            tracing::warn!(
                policies,
                "kernel rejected rules, these policies allow nothing until they are retried"
            );
        }
        for (policy, error) in refusals.finish(search, snapshot.policies, Instant::now()) {
            events::refused(&self.events, &self.node, &policy, &error);
        }
        Ok(())
    }

    fn watch(&self) -> Watches {
        if let Err(error) = br_netfilter::ensure_filtered() {
            tracing::warn!(error = %causes::chain(&error), "policies between pods of this node are not enforced: br_netfilter is needed");
        }
        let (pods, follow_pods) = Reflector::follow(self.client.clone(), &self.supervisor);
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

/// Sleeps until a time; forever without one.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

async fn table_event(monitor: Option<&mut NftMonitor>, own: u32) -> TableEvent {
    match monitor {
        Some(monitor) => monitor.changed(&[own]).await,
        None => std::future::pending().await,
    }
}

/// The pod as policies see it, with the addresses it was just given.
pub fn pod_with_addresses(pod: &k8s_openapi::api::core::v1::Pod, ips: &[String], node: &str) -> Pod {
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
