//! Exec, attach and port-forward of the engine.

use std::time::Duration;

use async_trait::async_trait;
use coracle_proto::cri;

use crate::Engine;
use crate::runtime::{Duplex, Execs, Result, Session};

#[async_trait]
impl Execs for Engine {
    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<cri::ExecSyncResponse> {
        self.execs.exec_sync(id, command, timeout).await
    }

    async fn exec(&self, request: cri::ExecRequest) -> Result<Session> {
        self.execs.exec(request).await
    }

    async fn attach(&self, request: cri::AttachRequest) -> Result<Session> {
        self.execs.attach(request).await
    }

    async fn port_forward(&self, sandbox: &str, port: u16) -> Result<Box<dyn Duplex>> {
        self.execs.port_forward(sandbox, port).await
    }
}
