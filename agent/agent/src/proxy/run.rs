//! The task: follows services and endpoints, and changes the table in one transaction at a time.

use coracle_cli::causes;
use coracle_cli::supervise::Supervisor;
use coracle_cni::conntrack::Conntrack;
use coracle_cni::netlink;
use coracle_cni::nft::{Element, Nft};
use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

use super::health::Health;
use super::healthz::ProxyHealth;
use super::live_servers;
use super::pick::NodeTopology;
use super::plan::{self, Plan};
use super::rules::{self, TABLE, TableConfig};
use super::state::{Change, State};
use super::sysctl;
use super::trace::{Kind, Pending, RulesTrace};
use crate::cluster::{Changed, Cluster, Name};
use crate::servers;
use coracle_engine::nft_monitor::{NftMonitor, NftMonitorError, TableEvent};

/// Pause after the kernel refused a change.
const RETRY: Duration = Duration::from_secs(1);

/// API servers that this node found dead, see [`crate::servers`].
type UnfitServers = watch::Receiver<Arc<BTreeSet<SocketAddr>>>;

/// The proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// No netlink socket for nftables.
    #[error("nftables")]
    Nft(#[from] netlink::Error),
    /// The table cannot be watched for changes by other programs.
    #[error("nftables monitor")]
    Monitor(#[from] NftMonitorError),
}

/// The service proxy of a node.
pub struct Proxy {
    cluster: Cluster,
    node: String,
    answers_itself: Vec<IpAddr>,
    unfit: UnfitServers,
    nft: Nft,
    monitor: NftMonitor,
    ground: TableConfig,
    zone: Box<str>,
    state: State,
    health: Health,
    own_health: ProxyHealth,
    trace: RulesTrace,
}

impl Proxy {
    /// Changes nothing yet: the rules of an earlier agent stay until everything is listed.
    pub fn new(
        cluster: Cluster,
        node: String,
        answers_itself: Vec<IpAddr>,
        unfit: UnfitServers,
        (supervisor, own_health): (Supervisor, ProxyHealth),
        trace: RulesTrace,
    ) -> Result<Self, ProxyError> {
        Ok(Proxy {
            cluster,
            node,
            answers_itself,
            unfit,
            nft: Nft::open()?,
            monitor: NftMonitor::open(TABLE)?,
            ground: TableConfig::default(),
            zone: Box::default(),
            state: State::default(),
            health: Health::new(supervisor, own_health.clone()),
            own_health,
            trace,
        })
    }

    /// Runs the proxy until the process ends. If the kernel rejects a change, the table is rebuilt.
    pub async fn run(mut self) {
        self.cluster.services.synced().await;
        self.cluster.slices.synced().await;
        self.ground.sees_bridge = sysctl::prepare();
        let mut services = self.cluster.services.changes();
        let mut slices = self.cluster.slices.changes();
        let mut nodes = self.cluster.nodes.changes();
        let mut unfit = self.unfit.clone();
        self.update_from_node();
        let mut whole = true;
        let mut pending = Pending::default();
        loop {
            if !whole {
                tokio::select! {
                    changed = services.next_caused() => pending.add(changed, Kind::Service),
                    changed = slices.next_caused() => pending.add(changed, Kind::Slice),
                    Ok(()) = unfit.changed() => {
                        pending.add(Changed::from([(servers::service(), None)]), Kind::Slice);
                    }
                    changed = nodes.next() => {
                        let own = Name::new("", &self.node);
                        whole = changed.contains(&own) && self.update_from_node();
                    }
                    seen = self.table_changed() => whole = seen,
                }
            }
            pending.add(services.take_caused(), Kind::Service);
            pending.add(slices.take_caused(), Kind::Slice);
            self.own_health.queued();
            let (begun, names) = (Instant::now(), pending.take_names());
            match tokio::task::block_in_place(|| self.apply(names, whole)) {
                Ok(elements) => {
                    whole = false;
                    self.own_health.updated();
                    self.trace.applied(&mut pending, begun, elements, &self.cluster);
                }
                Err(error) => {
                    tracing::warn!(error = %causes::chain(&error), "service rules not changed, will build them anew");
                    whole = true;
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Applies changes of this Node object; returns whether everything must be planned again.
    fn update_from_node(&mut self) -> bool {
        let Some(node) = self.cluster.nodes.get(&Name::new("", &self.node)) else { return false };
        let changed = *self.ground.pod_ranges != *node.pod_ranges || self.zone != node.zone;
        self.ground.pod_ranges = node.pod_ranges.to_vec();
        self.zone = node.zone.clone();
        changed
    }

    /// Waits until another program changes the table.
    async fn table_changed(&mut self) -> bool {
        let own = self.nft.port().unwrap_or(0);
        loop {
            match self.monitor.changed(&[own]).await {
                TableEvent::Overflow if self.is_whole() => {}
                TableEvent::Overflow => return true,
                TableEvent::Changed => {
                    tracing::warn!(table = TABLE.name, "another program changed the table, rebuilding it");
                    return true;
                }
            }
        }
    }

    fn is_whole(&mut self) -> bool {
        self.nft.rule_count(TABLE, "prerouting").is_ok_and(|count| count == self.ground.pod_ranges.len() + 2)
            && self.nft.rule_count(TABLE, "services").is_ok_and(|count| count > 0)
    }

    /// Changes the rules of these Services, or of all; returns how many elements were changed.
    fn apply(&mut self, names: HashSet<Name>, whole: bool) -> netlink::Result<usize> {
        let begun = Instant::now();
        let mut change = Change::default();
        if whole {
            let before = self.state.names();
            self.state = State::default();
            let mut all: HashSet<Name> =
                self.cluster.services.all().into_iter().map(|(name, _)| name).collect();
            all.extend(before);
            self.plan(all, &mut change);
        } else {
            self.plan(names, &mut change);
        }
        while !change.again.is_empty() {
            let again = std::mem::take(&mut change.again).into_iter().collect();
            self.plan(again, &mut change);
        }
        let (elements, stale) = (change.len(), std::mem::take(&mut change.stale));
        if whole {
            let affinity = self.affinity()?;
            self.nft.apply(change.into_new_table(&self.ground, &affinity))?;
            tracing::info!(elements, elapsed = ?begun.elapsed(), "service rules built");
        } else if elements > 0 {
            self.nft.apply(change.into_batch())?;
            tracing::debug!(elements, elapsed = ?begun.elapsed(), "service rules changed");
        }
        let may_stay = |element: &Element, v4: bool| self.state.may_stay(element, v4);
        let forgotten = stale.forget(&mut self.nft, may_stay);
        let forgotten = match whole {
            true => forgotten.and_then(|()| self.forget_misrouted()),
            false => forgotten,
        };
        if let Err(error) = forgotten {
            tracing::warn!(error = %causes::chain(&error), "stale conntrack entries not removed");
        }
        Ok(elements)
    }

    /// Removes conntrack entries of endpoints that disappeared while the agent was not running.
    fn forget_misrouted(&self) -> netlink::Result<()> {
        for v4 in [true, false] {
            Conntrack::open()?.remove(v4, |flow| self.state.is_misrouted(flow))?;
        }
        Ok(())
    }

    fn plan(&mut self, names: HashSet<Name>, change: &mut Change) {
        for name in names {
            let plan = self.plan_one(&name);
            self.health.update(&name, plan.health);
            self.state.update(&name, plan, change);
        }
    }

    fn plan_one(&self, name: &Name) -> Plan {
        let Some(service) = self.cluster.services.get(name) else { return Plan::default() };
        let mut slices = self.cluster.slices.group(name);
        if *name == servers::service() {
            slices = live_servers::without(slices, &self.unfit.borrow());
        }
        let slices: Vec<_> = slices.iter().map(|slice| &**slice).collect();
        let place = NodeTopology { node: &self.node, zone: &self.zone, answers_itself: &self.answers_itself };
        plan::plan_service(name, &service, &slices, &place)
    }

    /// Session affinity entries of the previous table whose endpoints still exist.
    fn affinity(&mut self) -> netlink::Result<Vec<(&'static str, Vec<Element>)>> {
        let mut all = Vec::new();
        for v4 in [true, false] {
            let set = rules::affinity(v4);
            let found = match self.nft.elements(TABLE, set) {
                Err(error) if error.errno() == Some(nix::errno::Errno::ENOENT) => continue,
                other => other?,
            };
            let valid = found.into_iter().filter(|element| self.state.may_stay(element, v4));
            all.push((set, valid.collect()));
        }
        Ok(all)
    }
}
