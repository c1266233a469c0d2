//! All sandboxes and containers, in memory and as records on disk.

// A sandbox.
mod sandbox;
// A container.
mod container;

pub(crate) use container::{Container, Gate, PrecreatedProcess, WaitsAt};
pub(crate) use sandbox::{Sandbox, reserved_name};

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::boot;
use crate::error::internal;
use crate::paths::Paths;
use crate::record::{ContainerPhase, ContainerRecord, Records, SandboxPhase, SandboxRecord};
use crate::run_lock::RunLock;
use crate::runtime::{Result, RuntimeError};

#[derive(Default)]
struct Tables {
    sandboxes: HashMap<String, Arc<Sandbox>>,
    containers: HashMap<String, Arc<Container>>,
}

/// The sandboxes and containers of the engine. Every change of a record is written to disk.
pub(crate) struct Objects {
    tables: Mutex<Tables>,
    sandbox_records: Records,
    container_records: Records,
    /// The records belong to one engine, for as long as anything in this process uses them.
    _run_lock: RunLock,
}

impl Objects {
    /// Loads the records of the earlier engine.
    pub(crate) fn load(paths: &Paths, run_lock: RunLock) -> Result<Self> {
        let sandbox_records = Records::new(paths.sandbox_records());
        let container_records = Records::new(paths.container_records());
        let mut sandboxes: HashMap<String, SandboxRecord> =
            sandbox_records.load().map_err(internal("sandbox records"))?;
        let mut containers: HashMap<String, ContainerRecord> =
            container_records.load().map_err(internal("container records"))?;
        if boot::has_rebooted(paths) {
            // Start times are relative to the boot: after a reboot another process may have the same pid and start time.
            sandboxes.values_mut().for_each(|record| record.pid = 0);
            containers.values_mut().for_each(|record| record.pid = 0);
        }
        let tables = Tables {
            sandboxes: sandboxes.into_iter().map(|(id, r)| (id, Sandbox::new(r))).collect(),
            containers: containers.into_iter().map(|(id, r)| (id, Container::new(r))).collect(),
        };
        Ok(Self { tables: Mutex::new(tables), sandbox_records, container_records, _run_lock: run_lock })
    }

    /// Finds a sandbox by its id or a unique prefix of it.
    pub(crate) fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>> {
        by_prefix(&self.tables.lock().sandboxes, id).ok_or_else(|| {
            RuntimeError::NotFound(format!("an error occurred when try to find sandbox: {id:?}: not found"))
        })
    }

    /// Finds a container by its id or a unique prefix of it.
    pub(crate) fn container(&self, id: &str) -> Result<Arc<Container>> {
        by_prefix(&self.tables.lock().containers, id).ok_or_else(|| {
            RuntimeError::NotFound(format!("an error occurred when try to find container {id:?}: not found"))
        })
    }

    /// The sandbox or the container with exactly this id.
    pub(crate) fn with_id(&self, id: &str) -> (Option<Arc<Sandbox>>, Option<Arc<Container>>) {
        let tables = self.tables.lock();
        (tables.sandboxes.get(id).cloned(), tables.containers.get(id).cloned())
    }

    pub(crate) fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.tables.lock().sandboxes.values().cloned().collect()
    }

    pub(crate) fn containers(&self) -> Vec<Arc<Container>> {
        self.tables.lock().containers.values().cloned().collect()
    }

    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        self.tables.lock().containers.values().filter(|c| c.sandbox == sandbox).cloned().collect()
    }

    /// Ids of all sandboxes and containers that have not been removed.
    pub(crate) fn live_ids(&self) -> BTreeSet<String> {
        let tables = self.tables.lock();
        tables.sandboxes.keys().chain(tables.containers.keys()).cloned().collect()
    }

    /// Adds a sandbox, which has this name for itself, and writes its first record.
    pub(crate) fn add_sandbox(&self, record: SandboxRecord, name: &str) -> Result<Arc<Sandbox>> {
        let sandbox = Sandbox::new(record);
        {
            let mut tables = self.tables.lock();
            let taken = tables.sandboxes.values().find(|s| {
                let record = s.record.lock();
                record.phase != SandboxPhase::Removing
                    && reserved_name(&record.config).is_some_and(|n| n == name)
            });
            if let Some(taken) = taken {
                return Err(RuntimeError::AlreadyExists(format!(
                    "failed to reserve sandbox name {name:?}: name {name:?} is reserved for {:?}",
                    taken.id
                )));
            }
            tables.sandboxes.insert(sandbox.id.clone(), sandbox.clone());
        }
        if let Err(error) = self.change_sandbox(&sandbox, |_| ()) {
            self.tables.lock().sandboxes.remove(&sandbox.id);
            return Err(error);
        }
        Ok(sandbox)
    }

    /// Adds a container, whose metadata no other container of its sandbox has, and writes its first record.
    pub(crate) fn add_container(&self, record: ContainerRecord) -> Result<Arc<Container>> {
        let meta = record.config.metadata.clone();
        let container = Container::new(record);
        {
            let mut tables = self.tables.lock();
            let taken = tables.containers.values().find(|c| {
                let record = c.record.lock();
                let same = record.config.metadata == meta;
                same && record.sandbox == container.sandbox && record.phase != ContainerPhase::Removing
            });
            if let Some(taken) = taken {
                let meta = meta.unwrap_or_default();
                return Err(RuntimeError::AlreadyExists(format!(
                    "failed to reserve container name \"{}_{}\": name is reserved for {:?}",
                    meta.name, meta.attempt, taken.id
                )));
            }
            tables.containers.insert(container.id.clone(), container.clone());
        }
        if let Err(error) = self.change_container(&container, |_| ()) {
            self.withdraw_container(&container.id);
            return Err(error);
        }
        Ok(container)
    }

    /// Takes back a container that was just added.
    pub(crate) fn withdraw_container(&self, id: &str) {
        self.tables.lock().containers.remove(id);
        let _ = self.container_records.remove(id);
    }

    /// Changes a sandbox's record and writes it to disk.
    pub(crate) fn change_sandbox<T>(
        &self,
        sandbox: &Sandbox,
        change: impl FnOnce(&mut SandboxRecord) -> T,
    ) -> Result<T> {
        let mut record = sandbox.record.lock();
        let result = change(&mut record);
        self.sandbox_records.put(&sandbox.id, &*record).map_err(internal("sandbox record"))?;
        Ok(result)
    }

    /// Changes a container's record and writes it to disk.
    pub(crate) fn change_container<T>(
        &self,
        container: &Container,
        change: impl FnOnce(&mut ContainerRecord) -> T,
    ) -> Result<T> {
        let mut record = container.record.lock();
        let result = change(&mut record);
        self.container_records.put(&container.id, &*record).map_err(internal("container record"))?;
        Ok(result)
    }

    /// Removes a sandbox and its record; after an error both are still there.
    pub(crate) fn remove_sandbox(&self, id: &str) -> Result<()> {
        self.sandbox_records.remove(id).map_err(internal("sandbox record"))?;
        self.tables.lock().sandboxes.remove(id);
        Ok(())
    }

    /// Removes a container and its record; after an error both are still there.
    pub(crate) fn remove_container(&self, id: &str) -> Result<()> {
        self.container_records.remove(id).map_err(internal("container record"))?;
        self.tables.lock().containers.remove(id);
        Ok(())
    }
}

fn by_prefix<T>(map: &HashMap<String, Arc<T>>, id: &str) -> Option<Arc<T>> {
    if let Some(found) = map.get(id) {
        return Some(found.clone());
    }
    if id.is_empty() {
        return None;
    }
    let mut fitting = map.iter().filter(|(full, _)| full.starts_with(id)).map(|(_, object)| object);
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Some(only.clone()),
        _ => None,
    }
}
