//! Settings of the engine.

use std::path::PathBuf;

use super::cdi;
use super::cni::NetworkDirs;

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// Persistent data: records, images, writable layers.
    pub root: PathBuf,
    /// Data until the next reboot: namespaces, bundles, sockets.
    pub run: PathBuf,
    /// Executable of the keeper.
    pub keeper: PathBuf,
    /// Executable of the OCI runtime.
    pub runtime: PathBuf,
    /// Mount point of cgroup2.
    pub cgroup_root: PathBuf,
    /// Cgroup of sandboxes that name no parent.
    pub cgroup_parent: String,
    /// CNI directories.
    pub cni: NetworkDirs,
    /// Registry mirrors and credentials (`registries.yaml`).
    pub registries: Option<PathBuf>,
    /// Directories of CDI spec files; of a device in several the last one counts.
    pub cdi_dirs: Vec<PathBuf>,
    /// Directory of `localhostProfile` seccomp profiles, for CRI clients that pass a relative name.
    pub seccomp_profiles: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            root: "/var/lib/coracle/engine".into(),
            run: "/run/coracle".into(),
            keeper: beside_us("coracle-keeper"),
            runtime: "runc".into(),
            cgroup_root: "/sys/fs/cgroup".into(),
            cgroup_parent: "/coracle".into(),
            cni: NetworkDirs {
                conf: "/etc/cni/net.d".into(),
                bin: vec!["/opt/cni/bin".into()],
                cache: "/var/lib/cni".into(),
            },
            registries: None,
            cdi_dirs: cdi::DIRECTORIES.map(PathBuf::from).to_vec(),
            seccomp_profiles: "/var/lib/kubelet/seccomp".into(),
        }
    }
}

/// Path of a program in the directory of this one.
fn beside_us(name: &str) -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(name)));
    beside.filter(|path| path.exists()).unwrap_or_else(|| name.into())
}
