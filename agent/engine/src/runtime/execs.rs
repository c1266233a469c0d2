//! Verbs on commands in containers, and on ports of sandboxes.

use std::time::Duration;

use async_trait::async_trait;
use coracle_proto::cri;

use super::error::Result;
use super::session::{Duplex, Session};

/// Commands in containers, and connections into sandboxes.
#[async_trait]
pub trait Execs: Send + Sync {
    /// Runs a command to its end; a zero `timeout` is none.
    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<cri::ExecSyncResponse>;
    /// Starts a command with its streams.
    async fn exec(&self, request: cri::ExecRequest) -> Result<Session>;
    /// Joins the streams of a running container.
    async fn attach(&self, request: cri::AttachRequest) -> Result<Session>;
    /// Connects to a port on the sandbox's loopback.
    async fn port_forward(&self, sandbox: &str, port: u16) -> Result<Box<dyn Duplex>>;
}
