//! Use of the file system that images are on.

use std::{io, os::fd::AsFd};

/// The file system of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes a non-root process could still write.
    pub available: u64,
    /// Files in all.
    pub inodes: u64,
    /// Files that could still be made.
    pub inodes_free: u64,
}

impl DiskUse {
    /// The use of the file system that something is on.
    pub(super) fn of(place: impl AsFd) -> io::Result<Self> {
        let stat = nix::sys::statvfs::fstatvfs(place)?;
        Ok(DiskUse {
            capacity: stat.blocks() * stat.fragment_size(),
            available: stat.blocks_available() * stat.fragment_size(),
            inodes: stat.files(),
            inodes_free: stat.files_available(),
        })
    }

    /// Space that images must leave free: 2 %, at most 512 MiB.
    pub(super) fn reserve(&self) -> u64 {
        (self.capacity / 50).min(512 << 20)
    }

    /// Whether the space for images is exhausted.
    pub(super) fn is_full(&self) -> bool {
        // File systems without a fixed number of files say zero.
        self.available < self.reserve() || (self.inodes > 0 && self.inodes_free < self.inodes / 50)
    }
}
