//! Node ports that are taken for Services, as the server writes them down.

use async_trait::async_trait;
use coracle_proto::status::ApiError;

/// The ports that Services may have.
pub const PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// A port that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenPort {
    /// Its number.
    pub port: u16,
    /// When it was taken: the revision of the store.
    pub revision: u64,
}

/// The ports that are taken.
#[async_trait]
pub trait NodePorts: Send + Sync {
    /// All of them.
    async fn taken(&self) -> Result<Vec<TakenPort>, ApiError>;

    /// Takes a port for the Service `namespace/name`; `false` when it is taken.
    async fn take(&self, port: u16, service: &str) -> Result<bool, ApiError>;

    /// Gives a port back, unless it was given back and taken again since.
    async fn free(&self, taken: &TakenPort) -> Result<(), ApiError>;
}
