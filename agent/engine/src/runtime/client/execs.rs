//! Exec, attach and port-forward in another CRI runtime.

use std::time::Duration;

use async_trait::async_trait;
use coracle_proto::cri;

use super::{CriRuntime, READ_TIMEOUT, request};
use crate::runtime::{Duplex, Execs, Result, Session, streaming_client};

#[async_trait]
impl Execs for CriRuntime {
    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<cri::ExecSyncResponse> {
        let message = cri::ExecSyncRequest {
            container_id: id.into(),
            cmd: command,
            timeout: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        };
        // The runtime enforces the timeout; ours only covers a runtime that does not answer.
        if timeout.is_zero() {
            return Ok(self.runtime.clone().exec_sync(message).await?.into_inner());
        }
        Ok(call!(self.runtime.exec_sync(message), timeout.saturating_add(READ_TIMEOUT)))
    }

    async fn exec(&self, message: cri::ExecRequest) -> Result<Session> {
        let wanted = streaming_client::RequestedStreams::from(&message);
        streaming_client::session(&call!(self.runtime.exec(message), READ_TIMEOUT).url, wanted).await
    }

    async fn attach(&self, message: cri::AttachRequest) -> Result<Session> {
        let wanted = streaming_client::RequestedStreams::from(&message);
        streaming_client::session(&call!(self.runtime.attach(message), READ_TIMEOUT).url, wanted).await
    }

    async fn port_forward(&self, sandbox: &str, port: u16) -> Result<Box<dyn Duplex>> {
        let message = cri::PortForwardRequest { pod_sandbox_id: sandbox.into(), port: vec![port.into()] };
        streaming_client::port(&call!(self.runtime.port_forward(message), READ_TIMEOUT).url, port).await
    }
}
