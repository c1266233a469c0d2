//! A container in memory.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use coracle_keeper::enter::Request;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::keeper::{Started, TaskFds};
use crate::record::{ContainerPhase, ContainerRecord};

/// Where the process of a created container waits to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// It writes to this FIFO of the container's state directory, as runc's does.
    Fifo(&'static str),
    /// It accepts a connection on this socket of the directory, as libcontainer's does.
    Socket(&'static str),
}

/// An OCI runtime whose containers can be started without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitsAt {
    pub(crate) program: PathBuf,
    pub(crate) gate: Gate,
}

/// A process of the OCI runtime that waits to exec the container's program.
#[derive(Debug)]
pub(crate) struct PrecreatedProcess {
    /// Generation of the keeper connection: a new keeper does not know the process.
    pub(crate) generation: u64,
    pub(crate) at: WaitsAt,
    pub(crate) started: Started,
}

/// A container in memory.
pub(crate) struct Container {
    pub(crate) id: String,
    /// Id of its sandbox.
    pub(crate) sandbox: String,
    /// Do not look up other objects while holding this lock: lookups lock records.
    pub(crate) record: Mutex<ContainerRecord>,
    pub(crate) held: Mutex<TaskFds>,
    /// Serializes operations on this container.
    pub(crate) verb: tokio::sync::Mutex<()>,
    /// Serializes the release of its processes, which both exit and removal call.
    pub(crate) releasing: tokio::sync::Mutex<()>,
    /// True once it has ended, and its hooks too: its exit is reported from then on.
    pub(crate) exited: watch::Sender<bool>,
    /// Its precreated process, until the container is started.
    pub(crate) waiting: Mutex<Option<PrecreatedProcess>>,
    /// Cached request for commands that enter it; none if only the OCI runtime can run them.
    pub(crate) enter_request: OnceLock<Option<Arc<Request>>>,
}

impl Container {
    pub(crate) fn new(record: ContainerRecord) -> Arc<Self> {
        let exited = record.phase == ContainerPhase::Exited && !record.releasing;
        Arc::new(Self {
            id: record.id.clone(),
            sandbox: record.sandbox.clone(),
            record: Mutex::new(record),
            held: Mutex::default(),
            verb: tokio::sync::Mutex::default(),
            releasing: tokio::sync::Mutex::default(),
            exited: watch::Sender::new(exited),
            waiting: Mutex::default(),
            enter_request: OnceLock::new(),
        })
    }

    /// Its name in the pod.
    pub(crate) fn name(&self) -> String {
        let record = self.record.lock();
        record.config.metadata.as_ref().map(|metadata| metadata.name.clone()).unwrap_or_default()
    }

    pub(crate) fn phase(&self) -> ContainerPhase {
        self.record.lock().phase
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.phase(), ContainerPhase::Starting | ContainerPhase::Running)
    }

    /// It has ended, and its exit is not reported yet.
    pub(crate) fn is_releasing(&self) -> bool {
        self.record.lock().releasing
    }
}
