//! A driver of dynamic resource allocation on this node.

use coracle_csi::{CallError, MAX_MESSAGE, answer, channel};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::transport::Channel;

use crate::dra::dra_plugin_client::DraPluginClient;
use crate::dra::{Claim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest};

/// The kubelet's limit.
const LIMIT: Duration = Duration::from_secs(45);
/// Longest part of a driver's message that is kept: it ends up in Events.
const MESSAGE: usize = 900;

/// A call to a driver that failed. It may have taken effect; repeat it.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The driver answered with an error for this claim.
    #[error("{call}: {message}")]
    Refused {
        /// Name of the call.
        call: &'static str,
        /// The driver's words, shortened.
        message: String,
    },
    /// The driver answered without a word about this claim.
    #[error("{call}: the answer does not have the claim")]
    NoAnswer {
        /// Name of the call.
        call: &'static str,
    },
}

/// The API of a driver. Every call ends: with an answer, an error or a timeout.
#[derive(Clone, Debug)]
pub struct Driver {
    socket: PathBuf,
    client: DraPluginClient<Channel>,
}

impl Driver {
    /// Connects on first use, and again after the driver was restarted.
    pub fn new(socket: &Path) -> Self {
        let client = DraPluginClient::new(channel(socket.to_owned())).max_decoding_message_size(MAX_MESSAGE);
        Self { socket: socket.to_owned(), client }
    }

    /// Where the driver listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Prepares a claim; the devices that pods get.
    pub async fn prepare(&self, claim: Claim) -> Result<Vec<Device>, DriverError> {
        const CALL: &str = "NodePrepareResources";
        let (uid, mut client) = (claim.uid.clone(), self.client.clone());
        let call = client.node_prepare_resources(NodePrepareResourcesRequest { claims: vec![claim] });
        let mut found = answer(CALL, &self.socket, LIMIT, call).await?;
        let own = found.claims.remove(&uid).ok_or(DriverError::NoAnswer { call: CALL })?;
        refused(CALL, &own.error)?;
        Ok(own.devices)
    }

    /// The reverse of [`Self::prepare`].
    pub async fn unprepare(&self, claim: Claim) -> Result<(), DriverError> {
        const CALL: &str = "NodeUnprepareResources";
        let (uid, mut client) = (claim.uid.clone(), self.client.clone());
        let call = client.node_unprepare_resources(NodeUnprepareResourcesRequest { claims: vec![claim] });
        let mut found = answer(CALL, &self.socket, LIMIT, call).await?;
        let own = found.claims.remove(&uid).ok_or(DriverError::NoAnswer { call: CALL })?;
        refused(CALL, &own.error)
    }
}

fn refused(call: &'static str, error: &str) -> Result<(), DriverError> {
    if error.is_empty() {
        return Ok(());
    }
    let mut message: String = error.chars().take(MESSAGE).collect();
    if message.len() < error.len() {
        message.push('…');
    }
    Err(DriverError::Refused { call, message })
}
