//! Ports of the node that lead to pods stay in the kernel: whatever somebody else removes of them is put back.

use coracle_cni::portmap::TABLE;
use std::time::Duration;

use super::Engine;
use crate::others::Others;

/// What changes the table mostly does more than one thing to it.
const BREATH: Duration = Duration::from_millis(100);
const RETRY: Duration = Duration::from_secs(1);

impl Engine {
    /// Looks after the ports, for ever: now, and after every change of the table. Plugins change it too; what they did is
    /// found in place.
    pub(super) async fn keep_ports(self) {
        let mut others = Others::at(TABLE)
            .inspect_err(|error| tracing::warn!(%error, "host ports that somebody removes are not put back"))
            .ok();
        loop {
            match self.inner.network.mend_ports().await {
                Ok(0) => {}
                Ok(pods) => {
                    tracing::warn!(
                        table = TABLE.name,
                        pods,
                        "somebody removed host ports, they are put back"
                    );
                }
                Err(error) => {
                    let error = coracle_proto::causes::chain(&error);
                    tracing::warn!(error, "host ports are not put back, will retry");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
            let Some(others) = &mut others else { return };
            others.change(&[]).await;
            tokio::time::sleep(BREATH).await;
        }
    }
}
