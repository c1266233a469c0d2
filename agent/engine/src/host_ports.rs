//! Restores host port mappings of pods that another program removed from nftables.

use coracle_cli::causes;
use coracle_cni::portmap::TABLE;
use std::sync::Arc;
use std::time::Duration;

use super::pod_network::PodNetwork;
use crate::nft_monitor::NftMonitor;

/// A program that changes the table usually makes several changes in a row.
const DEBOUNCE: Duration = Duration::from_millis(100);
const RETRY: Duration = Duration::from_secs(1);

/// Restores missing ports now and after every change of the table, until the process ends. Changes by our own plugins
/// are seen too and need no repair.
pub(crate) async fn restore_host_ports(network: Arc<PodNetwork>) {
    let mut monitor = NftMonitor::open(TABLE)
        .inspect_err(|error| {
            tracing::warn!(
                error = %causes::chain(error),
                "nftables notifications are not available: removed host ports are not restored"
            );
        })
        .ok();
    loop {
        match network.restore_ports().await {
            Ok(0) => {}
            Ok(pods) => {
                tracing::warn!(
                    table = TABLE.name,
                    pods,
                    "another program removed host ports, they were restored"
                );
            }
            Err(error) => {
                tracing::warn!(error = %causes::chain(&error), "host ports not restored, will retry");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        }
        let Some(monitor) = &mut monitor else { return };
        monitor.changed(&[]).await;
        tokio::time::sleep(DEBOUNCE).await;
    }
}
