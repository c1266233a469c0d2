//! Settings of the engine.

use std::path::{Path, PathBuf};

use super::cdi;
use super::cni::NetworkDirs;
use super::oci_implementation::Implementation;

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
    /// Executable of our own OCI runtime, which RuntimeClasses can choose by the handler `coracle`.
    pub own_runtime: Option<PathBuf>,
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
            own_runtime: beside("coracle-runtime"),
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

impl Options {
    /// The executable that `--runtime` names: `coracle` is our own.
    pub fn runtime_named(&self, name: &Path) -> PathBuf {
        match &self.own_runtime {
            Some(own) if name == Path::new(Implementation::Coracle.handler()) => own.clone(),
            _ => name.to_owned(),
        }
    }
}

/// Path of a program in the directory of this one; its name, to be searched for, if it is not there.
fn beside_us(name: &str) -> PathBuf {
    beside(name).unwrap_or_else(|| name.into())
}

/// Path of a program in the directory of this one, if it is there.
fn beside(name: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.parent()?.join(name);
    path.exists().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_runtime_has_a_short_name() {
        let options = Options { own_runtime: Some("/opt/coracle-runtime".into()), ..Options::default() };
        assert_eq!(options.runtime_named(Path::new("coracle")), Path::new("/opt/coracle-runtime"));
        assert_eq!(options.runtime_named(Path::new("crun")), Path::new("crun"));
    }
}
