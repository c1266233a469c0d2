//! Preparing claims for pods, and undoing it after the last pod.

use coracle_devices::dra;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::allocated::{self, PodClaim};
use super::drivers::Drivers;
use super::error::ClaimError;
use super::records::{PreparedDevice, Record, Records, State};
use crate::locks::Locks;
use crate::pod::spec;

/// An API server that does not answer must not hold a pod for ever.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The claims of the pods of this node.
#[derive(Clone)]
pub struct Claims {
    client: kube::Client,
    drivers: Drivers,
    records: Arc<Records>,
    /// By uid of the claim.
    locks: Arc<Locks>,
}

impl Claims {
    /// Loads what an earlier agent has prepared.
    pub fn open(kubelet_dir: &Path, client: kube::Client, drivers: Drivers) -> Self {
        let records = Arc::new(Records::load(&kubelet_dir.join("dra_manager_state")));
        Self { client, drivers, records, locks: Arc::default() }
    }

    /// Prepares all claims of a pod; those that are prepared stay so.
    pub async fn prepare(&self, pod: &Pod) -> Result<(), ClaimError> {
        let known = self.records.of_pod(spec::uid(pod));
        for of in allocated::claims(pod)? {
            // A container that is started again needs no API server.
            if known.iter().any(|(_, record)| record.name == of.claim && record.is_complete) {
                continue;
            }
            let found = self.get(spec::namespace(pod), &of.claim).await?;
            let uid = found.metadata.uid.clone().unwrap_or_default();
            let _alone = self.locks.lock(&uid).await;
            self.prepare_one(pod, &of, &found, &uid).await?;
        }
        Ok(())
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ClaimError> {
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        match tokio::time::timeout(REQUEST_TIMEOUT, api.get(name)).await {
            Ok(Ok(claim)) => Ok(claim),
            Ok(Err(source)) => Err(ClaimError::Api { claim: name.to_owned(), source }),
            Err(_) => Err(ClaimError::Timeout { claim: name.to_owned() }),
        }
    }

    async fn prepare_one(
        &self,
        pod: &Pod,
        of: &PodClaim,
        claim: &ResourceClaim,
        uid: &str,
    ) -> Result<(), ClaimError> {
        let (namespace, name) = (spec::namespace(pod).to_owned(), of.claim.clone());
        for driver in allocated::drivers(pod, of, claim)? {
            let known = self.records.get(uid);
            let is_prepared = known
                .as_ref()
                .is_some_and(|record| matches!(record.drivers.get(&driver), Some(State::Prepared(_))));
            let has_pod = known.as_ref().is_some_and(|record| record.pods.contains(spec::uid(pod)));
            if is_prepared && has_pod {
                continue;
            }
            let Some(plugin) = self.drivers.get(&driver) else {
                return Err(ClaimError::NoDriver { claim: name, driver });
            };
            self.records.change(uid, |record| {
                record.namespace.clone_from(&namespace);
                record.name.clone_from(&name);
                record.pods.insert(spec::uid(pod).to_owned());
                record.drivers.entry(driver.clone()).or_insert(State::Called);
            })?;
            if is_prepared {
                continue;
            }
            let request =
                dra::Claim { namespace: namespace.clone(), uid: uid.to_owned(), name: name.clone() };
            let devices = plugin.prepare(request).await.map_err(|source| ClaimError::Driver {
                claim: name.clone(),
                driver: driver.clone(),
                source,
            })?;
            let devices = devices.into_iter().map(PreparedDevice::from).collect();
            self.records
                .change(uid, |record| drop(record.drivers.insert(driver, State::Prepared(devices))))?;
        }
        Ok(self.records.change(uid, |record| record.is_complete = !record.pods.is_empty())?)
    }

    /// CDI devices of a container.
    pub fn cdi_devices(&self, pod: &Pod, container: &Container) -> Result<Vec<String>, ClaimError> {
        let records = self.records.of_pod(spec::uid(pod));
        Ok(allocated::cdi_devices(pod, &allocated::claims(pod)?, container, &records))
    }

    /// Prepared claims of a pod.
    pub fn of_pod(&self, uid: &str) -> Vec<Record> {
        self.records.of_pod(uid).into_iter().map(|(_, record)| record).collect()
    }

    /// The pod has ended: undoes what was prepared for it alone.
    pub async fn unprepare(&self, pod: &str) -> Result<(), ClaimError> {
        for (uid, _) in self.records.of_pod(pod) {
            let _alone = self.locks.lock(&uid).await;
            let Some(record) = self.records.get(&uid) else { continue };
            if record.pods.iter().all(|other| other == pod) {
                self.unprepare_one(&uid, &record).await?;
            }
            self.records.change(&uid, |record| {
                record.pods.remove(pod);
            })?;
        }
        Ok(())
    }

    async fn unprepare_one(&self, uid: &str, record: &Record) -> Result<(), ClaimError> {
        self.records.change(uid, |record| record.is_complete = false)?;
        for driver in record.drivers.keys() {
            let claim = record.name.clone();
            let Some(plugin) = self.drivers.get(driver) else {
                return Err(ClaimError::NoDriver { claim, driver: driver.clone() });
            };
            let (namespace, name) = (record.namespace.clone(), record.name.clone());
            let request = dra::Claim { namespace, uid: uid.to_owned(), name };
            let failed = |source| ClaimError::Driver { claim, driver: driver.clone(), source };
            plugin.unprepare(request).await.map_err(failed)?;
            self.records.change(uid, |record| drop(record.drivers.remove(driver)))?;
        }
        Ok(())
    }
}
