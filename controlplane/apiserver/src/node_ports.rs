//! Node ports that are taken for Services: a key in the store per port, with the name of the Service.

use crate::objects::store_failed;
use async_trait::async_trait;
use coracle_client::node_ports::{NodePorts, TakenPort};
use coracle_proto::status::ApiError;
use coracle_store::{Durability, Store, StoreError, Write};
use std::sync::Arc;

const PREFIX: &str = "/registry/ranges/servicenodeports/";

/// The key of a port.
pub fn key(port: u16) -> String {
    format!("{PREFIX}{port}")
}

/// The ports in a store.
pub struct StoredNodePorts(pub Arc<dyn Store>);

impl StoredNodePorts {
    /// Writes a key that has the revision (0: is not there); `false` when it has another.
    async fn write(&self, port: u16, expect: u64, value: Option<bytes::Bytes>) -> Result<bool, ApiError> {
        // Without a fence: what was decided holds for the revision, whoever leads by now.
        let write = Write { key: key(port), expect, value, durability: Durability::Sync, fence: None };
        match self.0.write(write).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict(_)) => Ok(false),
            Err(error) => Err(store_failed(error)),
        }
    }
}

#[async_trait]
impl NodePorts for StoredNodePorts {
    async fn taken(&self) -> Result<Vec<TakenPort>, ApiError> {
        let (keys, _) = self.0.range(PREFIX, None).await.map_err(store_failed)?;
        let port = |key: &str| key.strip_prefix(PREFIX)?.parse().ok();
        let taken = keys
            .iter()
            .filter_map(|kept| Some(TakenPort { port: port(&kept.key)?, revision: kept.modified }));
        Ok(taken.collect())
    }

    async fn take(&self, port: u16, service: &str) -> Result<bool, ApiError> {
        self.write(port, 0, Some(service.to_owned().into())).await
    }

    async fn free(&self, taken: &TakenPort) -> Result<(), ApiError> {
        self.write(taken.port, taken.revision, None).await.map(|_| ())
    }
}
