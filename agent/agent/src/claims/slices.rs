//! ResourceSlices of drivers that are gone: nobody can use their devices, so that the scheduler must not see them.

use coracle_cli::causes;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

use super::drivers::Drivers;

/// How long a driver may need to come back, such as for an update.
const GRACE: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(10);

/// Removes slices of drivers that do not run on this node.
#[derive(Clone)]
pub struct Slices {
    api: Api<ResourceSlice>,
    node: String,
    drivers: Drivers,
}

impl Slices {
    /// Of this node.
    pub fn new(client: kube::Client, node: &str, drivers: Drivers) -> Self {
        Self { api: Api::all(client), node: node.to_owned(), drivers }
    }

    /// Follows drivers for ever. A driver that has slices has the usual time to register, also after a start of the agent.
    pub async fn run(self) {
        let mut missing: BTreeMap<String, Instant> = BTreeMap::new();
        loop {
            let changed = self.drivers.changed.notified();
            let next = match self.check(&mut missing).await {
                Ok(next) => next,
                Err(error) => {
                    tracing::warn!(node = self.node, error = %causes::chain(&error), "ResourceSlices of the node not checked, will retry");
                    Some(Instant::now() + RETRY)
                }
            };
            match next {
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Deletes what is due; when to look again.
    async fn check(&self, missing: &mut BTreeMap<String, Instant>) -> Result<Option<Instant>, kube::Error> {
        let own = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let found = self.api.list(&own).await?;
        let gone: Vec<String> = found
            .items
            .into_iter()
            .map(|slice| slice.spec.driver)
            .filter(|driver| self.drivers.get(driver).is_none())
            .collect();
        missing.retain(|driver, _| gone.contains(driver));
        let now = Instant::now();
        for driver in gone {
            let due = *missing.entry(driver.clone()).or_insert(now + GRACE);
            if due <= now {
                let fields = format!("spec.nodeName={},spec.driver={driver}", self.node);
                self.api
                    .delete_collection(&DeleteParams::default(), &ListParams::default().fields(&fields))
                    .await?;
                tracing::info!(driver, "ResourceSlices of a driver that is gone deleted");
                missing.remove(&driver);
            }
        }
        Ok(missing.values().min().copied())
    }
}
