//! A plugin that registers itself.

use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::transport::Channel;

use crate::CallError;
use crate::pluginregistration::registration_client::RegistrationClient;
use crate::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus};
use crate::socket::{MAX_MESSAGE, answer, channel};

const LIMIT: Duration = Duration::from_secs(10);

/// The registration socket of a plugin.
#[derive(Clone)]
pub struct Registrar {
    socket: PathBuf,
    client: RegistrationClient<Channel>,
}

impl Registrar {
    /// Connects on first use.
    pub fn new(socket: &Path) -> Self {
        let client =
            RegistrationClient::new(channel(socket.to_owned())).max_decoding_message_size(MAX_MESSAGE);
        Self { socket: socket.to_owned(), client }
    }

    /// What the plugin is.
    pub async fn info(&self) -> Result<PluginInfo, CallError> {
        let mut client = self.client.clone();
        answer("GetInfo", &self.socket, LIMIT, client.get_info(InfoRequest {})).await
    }

    /// Tells the plugin whether it is registered.
    pub async fn notify(&self, error: Option<String>) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let status =
            RegistrationStatus { plugin_registered: error.is_none(), error: error.unwrap_or_default() };
        let call = client.notify_registration_status(status);
        answer("NotifyRegistrationStatus", &self.socket, LIMIT, call).await.map(drop)
    }
}
