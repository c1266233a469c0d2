//! Hears when somebody else changes a table of ours in nftables.

use coracle_cni::netlink;
use coracle_cni::nft::{Monitor, Seen, Table};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Pause after the kernel's notifications could not be read.
const RETRY: Duration = Duration::from_secs(1);

/// Changes by others cannot be heard of.
#[derive(Debug, thiserror::Error)]
pub enum OthersError {
    /// The kernel cannot be spoken to.
    #[error("nftables")]
    Nft(#[from] netlink::Error),
    /// Its notifications cannot be waited for.
    #[error("notifications of nftables")]
    Notifications(#[source] std::io::Error),
}

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Somebody changed the table.
    Change,
    /// So much was said that some of it was lost: look whether the table is whole.
    TooMuch,
}

/// Everybody but us, at one table.
#[derive(Debug)]
pub struct Others {
    monitor: AsyncFd<Monitor>,
    table: Table,
}

impl Others {
    /// Listens from now on, in the network namespace of this thread.
    pub fn at(table: Table) -> Result<Self, OthersError> {
        Ok(Others { monitor: register(Monitor::open(table)?)?, table })
    }

    /// Waits until somebody else changed the table; `own` are the ports of our own sockets.
    ///
    /// Nothing is lost when it is not waited for to the end. Without notifications it waits for ever.
    pub async fn change(&mut self, own: &[u32]) -> Heard {
        loop {
            let Ok(mut ready) = self.monitor.readable_mut().await else {
                return std::future::pending().await;
            };
            let seen = ready.get_inner_mut().look(own);
            ready.clear_ready();
            match seen {
                Ok(Seen::Nothing) => {}
                Ok(Seen::Change) => return Heard::Change,
                Ok(Seen::Lost) => return Heard::TooMuch,
                Err(error) => {
                    tracing::warn!(table = self.table.name, %error, "changes of the table are not heard of");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

#[allow(unsafe_code)]
fn register(monitor: Monitor) -> Result<AsyncFd<Monitor>, OthersError> {
    // SAFETY: the monitor owns its socket and has the same one for all its life.
    let registered = unsafe { AsyncFd::register_with_interest(monitor, Interest::READABLE) };
    registered.map_err(|error| OthersError::Notifications(error.into_parts().1))
}
