//! Watches an nftables table of ours for changes by other programs.

use coracle_cli::causes;
use coracle_cni::netlink;
use coracle_cni::nft::{Monitor, Table, TableChange};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Pause after the kernel's notifications could not be read.
const RETRY: Duration = Duration::from_secs(1);

/// The table cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum NftMonitorError {
    /// No netlink socket for nftables.
    #[error("nftables")]
    Nft(#[from] netlink::Error),
    /// The socket cannot be registered with the async runtime.
    #[error("notifications of nftables")]
    Notifications(#[source] std::io::Error),
}

/// A notification about the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableEvent {
    /// Another program changed the table.
    Changed,
    /// Notifications were lost: the caller must check whether the table is complete.
    Overflow,
}

/// Watches one table, asynchronously.
#[derive(Debug)]
pub struct NftMonitor {
    monitor: AsyncFd<Monitor>,
    table: Table,
}

impl NftMonitor {
    /// Subscribes in the network namespace of this thread.
    pub fn open(table: Table) -> Result<Self, NftMonitorError> {
        Ok(NftMonitor { monitor: register(Monitor::open(table)?)?, table })
    }

    /// Waits until another program changes the table; changes by sockets with the ports `own` are ignored.
    ///
    /// Cancel safe: a notification that was not returned is returned by the next call. If the socket fails, this waits
    /// forever.
    pub async fn changed(&mut self, own: &[u32]) -> TableEvent {
        loop {
            let Ok(mut ready) = self.monitor.readable_mut().await else {
                return std::future::pending().await;
            };
            let seen = ready.get_inner_mut().poll(own);
            ready.clear_ready();
            match seen {
                Ok(TableChange::Nothing) => {}
                Ok(TableChange::Changed) => return TableEvent::Changed,
                Ok(TableChange::Lost) => return TableEvent::Overflow,
                Err(error) => {
                    tracing::warn!(table = self.table.name, error = %causes::chain(&error), "table notifications not read, will retry");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

#[allow(unsafe_code)]
fn register(monitor: Monitor) -> Result<AsyncFd<Monitor>, NftMonitorError> {
    // SAFETY: the monitor owns its socket and has the same one for all its life.
    let registered = unsafe { AsyncFd::register_with_interest(monitor, Interest::READABLE) };
    registered.map_err(|error| NftMonitorError::Notifications(error.into_parts().1))
}
