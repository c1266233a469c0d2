//! A device plugin on this node.

use coracle_csi::{CallError, MAX_MESSAGE, answer, channel};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::v1beta1::device_plugin_client::DevicePluginClient;
use crate::v1beta1::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, Device, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreferredAllocationRequest,
};

/// For calls that only ask.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// For calls that prepare devices: the kubelet's for PreStartContainer.
const PREPARE_LIMIT: Duration = Duration::from_secs(30);

/// The API of a device plugin. Every call ends: with an answer, an error or a timeout.
///
/// ```no_run
/// # async fn example() -> Result<(), coracle_devices::CallError> {
/// use coracle_devices::Plugin;
/// use std::path::Path;
///
/// let plugin = Plugin::new(Path::new("/var/lib/kubelet/device-plugins/example.sock"));
/// let mut lists = plugin.devices().await?;
/// while let Some(devices) = lists.next().await? {
///     println!("{} devices", devices.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Plugin {
    socket: PathBuf,
    client: DevicePluginClient<Channel>,
}

impl Plugin {
    /// Connects on first use.
    pub fn new(socket: &Path) -> Self {
        let client =
            DevicePluginClient::new(channel(socket.to_owned())).max_decoding_message_size(MAX_MESSAGE);
        Self { socket: socket.to_owned(), client }
    }

    /// Where the plugin listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Which of the optional calls the plugin wants.
    pub async fn options(&self) -> Result<DevicePluginOptions, CallError> {
        let mut client = self.client.clone();
        let call = client.get_device_plugin_options(Empty {});
        answer("GetDevicePluginOptions", &self.socket, READ_LIMIT, call).await
    }

    /// Follows the plugin's devices. It may take any time until the first list.
    pub async fn devices(&self) -> Result<Devices, CallError> {
        let mut client = self.client.clone();
        match client.list_and_watch(Empty {}).await {
            Ok(response) => Ok(Devices { socket: self.socket.clone(), stream: response.into_inner() }),
            Err(status) => Err(CallError::new("ListAndWatch", &self.socket, &status)),
        }
    }

    /// Which of the available devices fit best.
    pub async fn preferred(
        &self,
        available: Vec<String>,
        must_include: Vec<String>,
        size: usize,
    ) -> Result<Vec<String>, CallError> {
        let mut client = self.client.clone();
        let request = ContainerPreferredAllocationRequest {
            available_device_i_ds: available,
            must_include_device_i_ds: must_include,
            allocation_size: i32::try_from(size).unwrap_or(i32::MAX),
        };
        let call =
            client.get_preferred_allocation(PreferredAllocationRequest { container_requests: vec![request] });
        let found = answer("GetPreferredAllocation", &self.socket, READ_LIMIT, call).await?;
        Ok(found.container_responses.into_iter().next().unwrap_or_default().device_i_ds)
    }

    /// What a container needs to use these devices; `None` if the plugin did not say.
    pub async fn allocate(&self, ids: Vec<String>) -> Result<Option<ContainerAllocateResponse>, CallError> {
        let mut client = self.client.clone();
        let request = ContainerAllocateRequest { devices_ids: ids };
        let call = client.allocate(AllocateRequest { container_requests: vec![request] });
        let found = answer("Allocate", &self.socket, PREPARE_LIMIT, call).await?;
        Ok(found.container_responses.into_iter().next())
    }

    /// Prepares devices for the start of a container.
    pub async fn pre_start(&self, ids: Vec<String>) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let call = client.pre_start_container(PreStartContainerRequest { devices_ids: ids });
        answer("PreStartContainer", &self.socket, PREPARE_LIMIT, call).await.map(drop)
    }
}

/// The lists of a plugin's devices, one after each change.
#[derive(Debug)]
pub struct Devices {
    socket: PathBuf,
    stream: Streaming<ListAndWatchResponse>,
}

impl Devices {
    /// The next list; `None` when the plugin has ended the stream.
    pub async fn next(&mut self) -> Result<Option<Vec<Device>>, CallError> {
        match self.stream.message().await {
            Ok(message) => Ok(message.map(|message| message.devices)),
            Err(status) => Err(CallError::new("ListAndWatch", &self.socket, &status)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_plugin_that_is_away_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let plugin = Plugin::new(&temp.path().join("gpu.sock"));
        let error = plugin.allocate(vec!["a".into()]).await.unwrap_err();
        assert!(matches!(&error, CallError::Unreachable { call: "Allocate", .. }), "{error}");
        assert!(error.to_string().contains("gpu.sock"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_does_not_answer_is_not_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("gpu.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = Plugin::new(&path).pre_start(vec![]).await.unwrap_err();
        assert!(matches!(&error, CallError::Timeout { call: "PreStartContainer", .. }), "{error}");
    }
}
