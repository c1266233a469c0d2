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
use coracle_engine::others::{Heard, Others};

/// Somebody may have removed routes of ours: looked at this often, besides every change of a node.
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
    let mut tables = loop {
        match Tables::open() {
            Ok(tables) => break tables,
            Err(error) => tracing::warn!(%error, "nodes are not joined, will retry"),
        }
        tokio::time::sleep(RETRY).await;
    };
    loop {
        let synced = tokio::task::block_in_place(|| sync(&nodes, &config, &mut tables.nft, &mut written));
        let pause = match synced {
            Ok(()) => RESYNC,
            Err(error) => {
                tracing::warn!(%error, "nodes are not joined, will retry");
                RETRY
            }
        };
        let own = [tables.port];
        // Changes while this was done are there at once.
        tokio::select! {
            _ = changes.next() => {}
            () = tokio::time::sleep(pause) => {}
            heard = tables.others.change(&own) => {
                if heard == Heard::Change {
                    tracing::warn!(table = masquerade::TABLE.name, "somebody changed the table, it is written anew");
                    written = None;
                }
            }
        }
    }
}

/// The kernel's tables: ours, and what others do to it.
struct Tables {
    nft: Nft,
    port: u32,
    others: Others,
}

impl Tables {
    fn open() -> Result<Self, NetworkError> {
        let nft = Nft::open()?;
        Ok(Tables { port: nft.port()?, nft, others: Others::at(masquerade::TABLE)? })
    }
}

type Ranges = (Vec<Cidr>, BTreeSet<Cidr>);

fn sync(
    nodes: &View<Node>,
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
        tracing::info!(nodes = others.len(), changes, "nodes joined");
    }
    let ranges: BTreeSet<Cidr> = all.iter().flat_map(|(_, node)| node.pod_ranges.iter().copied()).collect();
    let wanted = (own.pod_ranges.to_vec(), ranges);
    if written.as_ref() != Some(&wanted) || !masquerade::is_there(nft, &wanted.0) {
        masquerade::write(nft, &wanted.0, &wanted.1)?;
        *written = Some(wanted);
    }
    Ok(())
}
