//! Inputs of the OCI configuration: features of the host, and values looked up for one container.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use oci_spec::runtime::LinuxNamespaceType;
use serde_json::Value;

use super::devices::Node;

/// Default contexts of the host's SELinux policy for containers, as `user:role:type:level`; empty if there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contexts {
    /// Of processes.
    pub process: String,
    /// Of files.
    pub file: String,
}

/// SELinux labels of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeLinux {
    /// Of its processes.
    pub process: String,
    /// Of its root filesystem and of volumes that are its own.
    pub mount: String,
}

/// Features of the host.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// Capabilities the engine itself may give, by number.
    pub capabilities: BTreeSet<u8>,
    /// The kernel filters system calls.
    pub seccomp: bool,
    /// The kernel has AppArmor on.
    pub apparmor: bool,
    /// Why the default AppArmor profile is not loaded.
    pub no_default_profile: Option<String>,
    /// The kernel has SELinux on, with this policy for containers.
    pub selinux: Option<Contexts>,
    /// Lowest oom_score_adj the engine may set.
    pub oom_score_adj_min: i64,
    /// Controllers of its cgroup hierarchy.
    pub controllers: BTreeSet<String>,
}

/// Namespaces that a container joins; none is a new one of its own.
#[derive(Debug, Clone, Default)]
pub struct Namespaces {
    /// Their paths.
    pub join: HashMap<LinuxNamespaceType, PathBuf>,
    /// Those it shares with the host.
    pub host: HashSet<LinuxNamespaceType>,
}

/// User of the container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplemental groups.
    pub groups: Vec<u32>,
}

/// Values looked up for one container.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Container id.
    pub id: String,
    /// Sandbox id.
    pub sandbox: String,
    /// Host name in the container.
    pub hostname: String,
    /// Directory with the sandbox's resolv.conf, hosts, hostname and shm.
    pub sandbox_dir: PathBuf,
    /// Cgroup, from the root of the hierarchy.
    pub cgroup: String,
    /// Resolved from the image's passwd and group files.
    pub user: User,
    /// Namespaces.
    pub namespaces: Namespaces,
    /// Directories for the image's volumes, by destination.
    pub volumes: BTreeMap<String, PathBuf>,
    /// Device nodes to make.
    pub devices: Vec<Node>,
    /// A profile file of the node, when the pod names one.
    pub seccomp: Option<Value>,
    /// SELinux labels.
    pub selinux: Option<SeLinux>,
}
