//! The request file: the container's process configuration with another command.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One process to start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The container's first process: its namespaces are joined.
    pub pid: i32,
    /// Start time of that process; detects a reused pid.
    pub start_time: u64,
    /// The container's cgroup directory.
    pub cgroup: Option<PathBuf>,
    /// Command and arguments.
    pub args: Vec<String>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// Working directory in the container.
    pub cwd: String,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplemental groups.
    pub groups: Vec<u32>,
    /// Capability sets.
    pub capabilities: Capabilities,
    /// `no_new_privs`.
    pub no_new_privileges: bool,
    /// `oom_score_adj`.
    pub oom_score_adj: Option<i32>,
    /// Name of the container's session keyring; none for a new one.
    pub keyring: Option<String>,
    /// Join the container's user namespace, if it has one. Without it, such a container is refused.
    #[serde(default)]
    pub user_namespace: bool,
    /// File mode creation mask, 022 by default.
    #[serde(default)]
    pub umask: Option<u32>,
    /// File with the seccomp filter as BPF instructions.
    pub filter: Option<PathBuf>,
    /// AppArmor profile.
    #[serde(default)]
    pub apparmor: Option<String>,
    /// SELinux label.
    #[serde(default)]
    pub selinux: Option<String>,
}

/// Capability sets as bit masks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Bounding set.
    pub bounding: u64,
    /// Effective set.
    pub effective: u64,
    /// Permitted set.
    pub permitted: u64,
    /// Inheritable set.
    pub inheritable: u64,
    /// Ambient set.
    pub ambient: u64,
}
