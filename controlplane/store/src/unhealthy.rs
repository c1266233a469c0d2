//! Failures that make a store unavailable.

/// Why a store cannot be written, or not be trusted, at the moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unhealthy {
    /// No space, or no quota, is left.
    #[error("the disk of the store is full: {detail}")]
    DiskFull {
        /// What the operating system says.
        detail: String,
    },
    /// The file system does not take writes.
    #[error("the file system of the store is read-only: {detail}")]
    ReadOnly {
        /// What the operating system says.
        detail: String,
    },
    /// Reading, writing or syncing failed.
    #[error("the disk of the store fails: {detail}")]
    Io {
        /// What the operating system says.
        detail: String,
    },
    /// Files do not hold what was written to them.
    #[error("the store is damaged: {detail}")]
    Damaged {
        /// Which file, where, and what is wrong.
        detail: String,
    },
    /// The writer thread has stopped.
    #[error("the writer of the store has stopped")]
    Stopped,
    /// The writer waits for the disk.
    #[error("the writer of the store has not answered for {seconds} seconds")]
    Stuck {
        /// How long it was asked for.
        seconds: u64,
    },
    /// etcd has reached its space quota.
    #[error("etcd does not take writes: {detail}")]
    Quota {
        /// Which member, and what it says.
        detail: String,
    },
    /// The store is elsewhere and does not answer.
    #[error("{detail}")]
    Unreachable {
        /// What the client says.
        detail: String,
    },
}
