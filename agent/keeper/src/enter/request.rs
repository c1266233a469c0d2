//! What is asked: a process as a container's own configuration says, with another command.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One process to start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The container's first process: its namespaces are joined.
    pub pid: i32,
    /// Start time of that process, to know it from another with its pid.
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
    /// Rights.
    pub capabilities: Capabilities,
    /// Set-user-id programs give no rights.
    pub no_new_privileges: bool,
    /// How likely the kernel ends it when memory runs out.
    pub oom_score_adj: Option<i32>,
    /// Name of the container's session keyring; a fresh one without a name.
    pub keyring: Option<String>,
    /// A file with the system call filter, as the kernel takes it.
    pub filter: Option<PathBuf>,
    /// AppArmor profile.
    #[serde(default)]
    pub apparmor: Option<String>,
    /// SELinux label.
    #[serde(default)]
    pub selinux: Option<String>,
}

/// Sets of capabilities, a bit for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// What exec may ever give.
    pub bounding: u64,
    /// What it may use.
    pub effective: u64,
    /// What it may take up.
    pub permitted: u64,
    /// What may pass through exec of programs with file capabilities.
    pub inheritable: u64,
    /// What passes through exec of any program.
    pub ambient: u64,
}
