//! The task that watches Nodes and applies the plan.

use coracle_cli::causes;
use coracle_cni::nft::Nft;
use coracle_cni::route::{Cidr, Route};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::apply::{NetworkError, apply, ensure_tunnel};
use super::masquerade;
use super::plan::{Plan, plan};
use super::underlay::underlay;
use crate::cluster::{Name, Node, Reflector};
use crate::config::{NetworkMode as Mode, NodeConfig};
use coracle_engine::nft_monitor::{NftMonitor, TableEvent};

/// Interval of full checks: another program may have removed our routes.
const RESYNC: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_secs(1);

/// Connects this node's pods to those of other nodes, until the process ends. Nothing is removed before all nodes are listed.
pub async fn follow(nodes: Reflector<Node>, config: NodeConfig) {
    if config.network == Mode::None {
        return;
    }
    nodes.synced().await;
    let mut changes = nodes.changes();
    let mut written = None;
    let mut tables = loop {
        match Tables::open() {
            Ok(tables) => break tables,
            Err(error) => {
                tracing::warn!(error = %causes::chain(&error), "node network not updated, will retry")
            }
        }
        tokio::time::sleep(RETRY).await;
    };
    loop {
        let synced = tokio::task::block_in_place(|| sync(&nodes, &config, &mut tables.nft, &mut written));
        let pause = match synced {
            Ok(()) => RESYNC,
            Err(error) => {
                tracing::warn!(error = %causes::chain(&error), "node network not updated, will retry");
                RETRY
            }
        };
        let own = [tables.port];
        // Changes made meanwhile are returned at once.
        tokio::select! {
            _ = changes.next() => {}
            () = tokio::time::sleep(pause) => {}
            event = tables.monitor.changed(&own) => {
                if event == TableEvent::Changed {
                    tracing::warn!(table = masquerade::TABLE.name, "another program changed the table, rebuilding it");
                    written = None;
                }
            }
        }
    }
}

/// The network's nftables table, and the monitor for changes by other programs.
struct Tables {
    nft: Nft,
    port: u32,
    monitor: NftMonitor,
}

impl Tables {
    fn open() -> Result<Self, NetworkError> {
        let nft = Nft::open()?;
        Ok(Tables { port: nft.port()?, nft, monitor: NftMonitor::open(masquerade::TABLE)? })
    }
}

type Ranges = (Vec<Cidr>, BTreeSet<Cidr>);

fn sync(
    nodes: &Reflector<Node>,
    config: &NodeConfig,
    nft: &mut Nft,
    written: &mut Option<Ranges>,
) -> Result<(), NetworkError> {
    let all = nodes.all();
    let own_name = Name::new("", &config.name);
    let Some(own) = nodes.get(&own_name).filter(|own| !own.pod_ranges.is_empty()) else { return Ok(()) };
    let others: Vec<&Arc<Node>> = all.iter().filter(|(name, _)| *name != own_name).map(|(_, n)| n).collect();
    let others: Vec<&Node> = others.iter().map(|node| &***node).collect();
    let Some(ip) = config.ips.first().and_then(|ip| ip.parse().ok()) else { return Ok(()) };
    let below = underlay(ip)?.ok_or(NetworkError::NoLink(ip))?;
    let mut route = Route::here()?;
    let tunnel = match config.network {
        Mode::Vxlan => Some(ensure_tunnel(&mut route, &below)?),
        _ => None,
    };
    let plan: Plan = plan(config.network, &own, &others, &below, tunnel.unwrap_or(below.link));
    let changes = apply(&mut route, &plan, tunnel)?;
    if changes > 0 {
        tracing::info!(nodes = others.len(), changes, "node network updated");
    }
    let ranges: BTreeSet<Cidr> = all.iter().flat_map(|(_, node)| node.pod_ranges.iter().copied()).collect();
    let wanted = (own.pod_ranges.to_vec(), ranges);
    if written.as_ref() != Some(&wanted) || !masquerade::is_there(nft, &wanted.0) {
        masquerade::write(nft, &wanted.0, &wanted.1)?;
        *written = Some(wanted);
    }
    Ok(())
}
