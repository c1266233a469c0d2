//! A sandbox in memory.

use std::sync::Arc;

use coracle_proto::cri;
use parking_lot::Mutex;

use crate::keeper::TaskFds;
use crate::record::{SandboxPhase, SandboxRecord};

/// A sandbox in memory.
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) record: Mutex<SandboxRecord>,
    pub(crate) held: Mutex<TaskFds>,
    /// Serializes operations on this sandbox.
    pub(crate) verb: tokio::sync::Mutex<()>,
}

impl Sandbox {
    pub(super) fn new(record: SandboxRecord) -> Arc<Self> {
        Arc::new(Self {
            id: record.id.clone(),
            record: Mutex::new(record),
            held: Mutex::default(),
            verb: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn phase(&self) -> SandboxPhase {
        self.record.lock().phase
    }
}

/// The name that a sandbox reserves; none without metadata.
pub(crate) fn reserved_name(config: &cri::PodSandboxConfig) -> Option<String> {
    let meta = config.metadata.as_ref()?;
    Some(format!("{}_{}_{}_{}", meta.name, meta.namespace, meta.uid, meta.attempt))
}
