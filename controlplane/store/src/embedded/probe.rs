//! Finds out whether the disk takes writes.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

/// Bytes that must fit on the disk before it is used again: a table and a new journal.
const PROBE: usize = 1 << 20;

/// Writes and syncs a probe file in the directory of the store.
pub(super) fn probe(store: &Path) -> io::Result<()> {
    let path = store.join("probe");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&vec![0xa5; PROBE])?;
        file.sync_all()
    });
    let removed = std::fs::remove_file(&path);
    written.and(removed)
}
