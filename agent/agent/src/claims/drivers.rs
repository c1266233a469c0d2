//! Drivers by name.

use coracle_devices::Driver;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Notify;

/// The drivers that are registered now.
#[derive(Clone, Default)]
pub struct Drivers {
    all: Arc<RwLock<BTreeMap<String, Driver>>>,
    /// A driver came or went.
    pub(super) changed: Arc<Notify>,
}

impl Drivers {
    /// The driver of this name.
    pub fn get(&self, name: &str) -> Option<Driver> {
        self.all.read().get(name).cloned()
    }

    /// Adds a driver, or replaces the one of the same name.
    pub fn insert(&self, name: &str, socket: &Path) {
        self.all.write().insert(name.to_owned(), Driver::new(socket));
        self.changed.notify_one();
    }

    /// Removes a driver, unless another plugin has registered one of the same name since.
    pub fn remove(&self, name: &str, socket: &Path) {
        let mut all = self.all.write();
        if all.get(name).is_some_and(|driver| driver.socket() == socket) {
            all.remove(name);
            self.changed.notify_one();
        }
    }
}
