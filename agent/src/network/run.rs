//! The task: follows the nodes.

use coracle_cni::nft::Nft;
use coracle_cni::route::{Cidr, Route};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::apply::{NetworkError, apply, ensure_tunnel};
use super::plan::{Plan, plan};
use super::{Mode, masquerade, underlay};
use crate::cluster::{Name, Node, View};
use crate::config::NodeConfig;

/// Somebody may have removed what is ours: looked at this often, besides every change of a node.
const RESYNC: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_secs(1);

/// Joins this node's pods to those of other nodes, for ever. Until every node is known nothing is removed.
pub async fn follow(nodes: View<Node>, config: NodeConfig) {
    if config.network == Mode::None {
        return;
    }
    nodes.synced().await;
    let mut changes = nodes.changes();
    let mut written = None;
    loop {
        let pause = match tokio::task::block_in_place(|| sync(&nodes, &config, &mut written)) {
            Ok(()) => RESYNC,
            Err(error) => {
                tracing::warn!(%error, "nodes are not joined, will retry");
                RETRY
            }
        };
        // Changes while this was done are there at once.
        let _ = tokio::time::timeout(pause, changes.next()).await;
    }
}

type Ranges = (Vec<Cidr>, BTreeSet<Cidr>);

fn sync(nodes: &View<Node>, config: &NodeConfig, written: &mut Option<Ranges>) -> Result<(), NetworkError> {
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
        tracing::info!(nodes = others.len(), changes, "nodes joined");
    }
    let ranges: BTreeSet<Cidr> = all.iter().flat_map(|(_, node)| node.pod_ranges.iter().copied()).collect();
    let wanted = (own.pod_ranges.to_vec(), ranges);
    let mut nft = Nft::open()?;
    if written.as_ref() != Some(&wanted) || !masquerade::is_there(&mut nft, &wanted.0) {
        masquerade::write(&mut nft, &wanted.0, &wanted.1)?;
        *written = Some(wanted);
    }
    Ok(())
}
