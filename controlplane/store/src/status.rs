//! The state of a store, for operators.

use crate::Revision;
use serde::{Deserialize, Serialize};

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// In the server's process.
    Embedded,
    /// etcd.
    Etcd,
}

/// The state of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreStatus {
    /// Which engine.
    pub engine: Engine,
    /// The newest revision.
    pub revision: Revision,
    /// Bytes on disk; of etcd those of the largest member.
    pub size: u64,
    /// Bytes of them that hold something; the rest is freed by defragmentation.
    pub in_use: u64,
    /// What is wrong.
    pub problems: Vec<String>,
    /// The members of etcd, as far as endpoints are known.
    pub members: Vec<MemberStatus>,
}

/// The state of a member of etcd.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Where it was asked.
    pub endpoint: String,
    /// Its identifier in hexadecimal; empty if it did not answer.
    pub id: String,
    /// Its version.
    pub version: String,
    /// Whether it leads.
    pub leader: bool,
    /// Whether it does not vote yet.
    pub learner: bool,
    /// Bytes on its disk.
    pub size: u64,
    /// Bytes of them that hold something.
    pub in_use: u64,
    /// How many log entries it is behind the newest member.
    pub behind: u64,
    /// What is wrong.
    pub problem: Option<String>,
}
