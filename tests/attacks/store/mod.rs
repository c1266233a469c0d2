//! Disks that fail and bytes that flip under the store.

// One changed byte in a file.
mod flips;
// Writes and syncs that fail.
mod faults;
