//! Drivers by name.

use coracle_csi::{Capabilities, Driver};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::volume::metrics::VolumeMetrics;

/// A registered driver.
#[derive(Clone)]
pub struct Registered {
    /// Its Node service.
    pub driver: Driver,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// The drivers that are registered now.
#[derive(Clone, Default)]
pub struct Drivers {
    all: Arc<RwLock<BTreeMap<String, Registered>>>,
    metrics: VolumeMetrics,
}

impl Drivers {
    /// Series about their calls, and about volumes.
    pub fn metrics(&self) -> &VolumeMetrics {
        &self.metrics
    }

    /// The driver of this name.
    pub fn get(&self, name: &str) -> Option<Registered> {
        self.all.read().get(name).cloned()
    }

    /// Adds a driver, or replaces the one of the same name.
    pub(super) fn insert(&self, name: &str, registered: Registered) {
        self.all.write().insert(name.to_owned(), registered);
    }

    /// Removes a driver, unless another plugin has registered one of the same name since.
    pub(super) fn remove(&self, name: &str, socket: &Path) -> bool {
        let mut all = self.all.write();
        let same = all.get(name).is_some_and(|registered| registered.driver.socket() == socket);
        if same {
            all.remove(name);
        }
        same
    }
}
