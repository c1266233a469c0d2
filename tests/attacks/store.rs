//! Disks that fail and bytes that flip under the store.
