//! Sizes of the volumes of this node, as far as it knows them.

use parking_lot::Mutex;
use std::collections::HashMap;

/// What this node knows of the sizes of its volumes.
#[derive(Default)]
pub(super) struct Sizes(Mutex<HashMap<String, Size>>);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Of the file system, in bytes.
    pub(super) bytes: i64,
    /// The driver cannot expand it to this size while it is in use.
    pub(super) refused: i64,
}

impl Sizes {
    pub(super) fn forget(&self, volume: &str) {
        self.0.lock().remove(volume);
    }

    /// The size that is known; at first that of the volume.
    pub(super) fn of(&self, volume: &str, bytes: i64) -> Size {
        *self.0.lock().entry(volume.to_owned()).or_insert(Size { bytes, refused: 0 })
    }

    pub(super) fn change(&self, volume: &str, change: impl FnOnce(&mut Size)) {
        change(self.0.lock().entry(volume.to_owned()).or_default());
    }
}
