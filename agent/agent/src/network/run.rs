//! The task that watches Nodes and applies the plan.

use coracle_cli::causes;
use coracle_cni::nft::Nft;
use coracle_cni::route::Cidr;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::apply::{NetworkError, OWNER, apply, ensure_tunnel};
use super::links::Links;
use super::masquerade;
use super::notifications::{Notifications, Watched};
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
    let mut watched = Watched { owner: OWNER, ..Watched::default() };
    let mut kernel = Kernel::open_with_retries().await;
    loop {
        if kernel.links.is_closed() {
            kernel = Kernel::open_with_retries().await;
        }
        let pause = match sync(&nodes, &config, &mut kernel, &mut written).await {
            Ok(links) => {
                watched.links = links;
                RESYNC
            }
            Err(error) => {
                tracing::warn!(error = %causes::chain(&error), "node network not updated, will retry");
                RETRY
            }
        };
        let own = [kernel.port];
        // Changes made meanwhile are returned at once.
        tokio::select! {
            _ = changes.next() => {}
            () = tokio::time::sleep(pause) => {}
            event = kernel.monitor.changed(&own) => {
                if event == TableEvent::Changed {
                    tracing::warn!(table = masquerade::TABLE.name, "another program changed the table, rebuilding it");
                    written = None;
                }
            }
            works = kernel.notifications.changed(&watched) => {
                if works {
                    tracing::debug!("the node network was changed, checking it");
                } else {
                    tracing::warn!("notifications about links and routes failed, will start them anew");
                }
                // Changes come in groups.
                tokio::time::sleep(RETRY).await;
                if !works {
                    kernel = Kernel::open_with_retries().await;
                }
            }
        }
    }
}

/// Connections to the kernel: for the network's nftables table and its changes by other programs, and for links and routes.
struct Kernel {
    nft: Nft,
    port: u32,
    monitor: NftMonitor,
    links: Links,
    notifications: Notifications,
}

impl Kernel {
    fn open() -> Result<Self, NetworkError> {
        let nft = Nft::open()?;
        Ok(Self {
            port: nft.port()?,
            nft,
            monitor: NftMonitor::open(masquerade::TABLE)?,
            links: Links::open()?,
            notifications: Notifications::open()?,
        })
    }

    async fn open_with_retries() -> Self {
        loop {
            match Self::open() {
                Ok(kernel) => return kernel,
                Err(error) => {
                    tracing::warn!(error = %causes::chain(&error), "node network not updated, will retry")
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

type Ranges = (Vec<Cidr>, BTreeSet<Cidr>);

/// Brings the node network up to date; the indexes of the links that it uses.
async fn sync(
    nodes: &Reflector<Node>,
    config: &NodeConfig,
    kernel: &mut Kernel,
    written: &mut Option<Ranges>,
) -> Result<Vec<u32>, NetworkError> {
    let all = nodes.all();
    let own_name = Name::new("", &config.name);
    let Some(own) = nodes.get(&own_name).filter(|own| !own.pod_ranges.is_empty()) else {
        return Ok(Vec::new());
    };
    let others: Vec<&Arc<Node>> = all.iter().filter(|(name, _)| *name != own_name).map(|(_, n)| n).collect();
    let others: Vec<&Node> = others.iter().map(|node| &***node).collect();
    let Some(ip) = config.ips.first().and_then(|ip| ip.parse().ok()) else { return Ok(Vec::new()) };
    let below = tokio::task::block_in_place(|| underlay(ip))?.ok_or(NetworkError::NoLink(ip))?;
    let (tunnel, created) = match config.network {
        Mode::Vxlan => {
            let (index, created) = ensure_tunnel(&kernel.links, &below).await?;
            (Some(index), created)
        }
        _ => (None, false),
    };
    let plan: Plan = plan(config.network, &own, &others, &below, tunnel.unwrap_or(below.link));
    let changes = apply(&kernel.links, &plan, tunnel).await?;
    if created || changes > 0 {
        kernel.notifications.ignore_own_changes();
    }
    if changes > 0 {
        tracing::info!(nodes = others.len(), changes, "node network updated");
    }
    let ranges: BTreeSet<Cidr> = all.iter().flat_map(|(_, node)| node.pod_ranges.iter().copied()).collect();
    let wanted = (own.pod_ranges.to_vec(), ranges);
    let nft = &mut kernel.nft;
    tokio::task::block_in_place(|| {
        if written.as_ref() != Some(&wanted) || !masquerade::is_there(nft, &wanted.0) {
            masquerade::write(nft, &wanted.0, &wanted.1)?;
            *written = Some(wanted);
        }
        Ok::<_, NetworkError>(())
    })?;
    Ok(tunnel.into_iter().chain([below.link]).collect())
}
