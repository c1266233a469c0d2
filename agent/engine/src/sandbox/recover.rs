//! Recovers sandboxes after a restart of the engine.

use super::Sandboxes;
use crate::error::internal;
use crate::namespace::{is_host, namespace_options, user_maps};
use crate::objects::Sandbox;
use crate::record::SandboxPhase;
use crate::runtime::Result;
use crate::sandbox_files;
use crate::tasks::RecordedProcess;
use coracle_keeper::wire::Task;

impl Sandboxes {
    /// Adopts a sandbox whose `pause` runs; marks one whose `pause` has exited.
    pub(crate) async fn recover(&self, sandbox: &Sandbox, task: Option<&Task>) -> Result<()> {
        if sandbox.phase() != SandboxPhase::Ready {
            return Ok(());
        }
        let record = sandbox.record.lock().clone();
        let process = RecordedProcess { id: &record.id, pid: record.pid, start_time: record.start_time };
        let Some(held) = self.tasks.descriptors(process, task, None).await else {
            tracing::info!(sandbox = record.id, "pause has exited, sandbox is not ready");
            return self.objects.change_sandbox(sandbox, |record| record.phase = SandboxPhase::NotReady);
        };
        *sandbox.held.lock() = held;
        // The mount namespace may differ from the old engine's: pins the namespaces again.
        let options = namespace_options(&record.config);
        let user = user_maps(&options).is_some();
        let net = !is_host(options.network());
        let ipc = !is_host(options.ipc());
        for (kind, wanted) in [("net", net), ("uts", net), ("ipc", ipc), ("user", user)] {
            if wanted {
                let path = self.paths.namespace(&sandbox.id, kind);
                sandbox_files::pin(record.pid, kind, &path).map_err(internal("pinning a namespace"))?;
            }
        }
        Ok(())
    }
}
