//! A container's volume mounts as the runtime's.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::subpath::{self, SubPathError};
use crate::config::NodeConfig;
use crate::pod::env::expand;
use crate::pod::spec;

/// Where a volume's content is.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A path of the host.
    Path {
        /// The path.
        path: PathBuf,
        /// Never writable, whatever the mount says.
        read_only: bool,
    },
    /// A block device of the host.
    Device {
        /// The device.
        path: PathBuf,
        /// Never writable.
        read_only: bool,
    },
    /// The content of an image.
    Image(cri::ImageSpec),
}

/// Why a container cannot have its mounts.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The pod has no such volume, or none that this node makes.
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    NoVolume {
        /// Name of the volume.
        volume: String,
        /// Name of the container.
        container: String,
    },
    /// A block device is to be mounted as a directory, or the other way round.
    #[error("volume {volume:?} of container {container:?} is not {wanted}")]
    OtherMode {
        /// Name of the volume.
        volume: String,
        /// Name of the container.
        container: String,
        /// What the container wants.
        wanted: &'static str,
    },
    /// A `subPathExpr` with a variable that the container does not have.
    #[error("missing value for {expression:?}")]
    Expression {
        /// The expression as given.
        expression: String,
    },
    /// A part of a volume.
    #[error(transparent)]
    SubPath(#[from] SubPathError),
}

/// The mounts of a container; pins sub-paths on the way.
pub fn mounts(
    config: &NodeConfig,
    pod: &Pod,
    container: &Container,
    volumes: &HashMap<String, Source>,
    env: &BTreeMap<String, String>,
) -> Result<Vec<cri::Mount>, MountError> {
    let mut all = Vec::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let source = find(volumes, &mount.name, container)?;
        let sub_path = sub_path(mount, env)?;
        all.push(match source {
            Source::Device { .. } => return Err(other_mode(&mount.name, container, "a file system")),
            Source::Image(image) => cri::Mount {
                container_path: mount.mount_path.clone(),
                readonly: true,
                image: Some(image.clone()),
                image_sub_path: sub_path,
                ..cri::Mount::default()
            },
            Source::Path { path, read_only } => {
                let mut host = path.clone();
                if !sub_path.is_empty() {
                    let pins = config.pod_dir(spec::uid(pod)).join("volume-subpaths");
                    let pin = pins.join(&mount.name).join(&container.name).join(index.to_string());
                    host = subpath::pin(path, &sub_path, &pin)?;
                }
                let readonly = *read_only || mount.read_only == Some(true);
                cri::Mount {
                    container_path: absolute(&mount.mount_path),
                    host_path: host.to_string_lossy().into_owned(),
                    readonly,
                    propagation: propagation(mount),
                    selinux_relabel: is_own(config, pod, path),
                    recursive_read_only: readonly && mount.recursive_read_only.as_deref() == Some("Enabled"),
                    ..cri::Mount::default()
                }
            }
        });
    }
    Ok(all)
}

/// The block devices of a container.
pub fn devices(
    container: &Container,
    volumes: &HashMap<String, Source>,
) -> Result<Vec<cri::Device>, MountError> {
    let wanted = container.volume_devices.iter().flatten();
    wanted
        .map(|device| match find(volumes, &device.name, container)? {
            Source::Device { path, read_only } => Ok(cri::Device {
                container_path: device.device_path.clone(),
                host_path: path.to_string_lossy().into_owned(),
                permissions: if *read_only { "r" } else { "mrw" }.to_owned(),
            }),
            _ => Err(other_mode(&device.name, container, "a block device")),
        })
        .collect()
}

fn find<'a>(
    volumes: &'a HashMap<String, Source>,
    volume: &str,
    container: &Container,
) -> Result<&'a Source, MountError> {
    volumes
        .get(volume)
        .ok_or_else(|| MountError::NoVolume { volume: volume.to_owned(), container: container.name.clone() })
}

fn other_mode(volume: &str, container: &Container, wanted: &'static str) -> MountError {
    MountError::OtherMode { volume: volume.to_owned(), container: container.name.clone(), wanted }
}

/// Whether a volume is the pod's own, so that it may have the pod's SELinux label; paths of the host keep theirs.
fn is_own(config: &NodeConfig, pod: &Pod, path: &Path) -> bool {
    let uid = spec::uid(pod);
    let (disk, memory) = (config.pod_dir(uid), config.memory_dir.join(uid));
    // Servers do not know labels.
    if path.starts_with(disk.join("volumes/kubernetes.io~nfs")) {
        return false;
    }
    [&disk, &memory].into_iter().chain(&config.storage_dirs).any(|dir| path.starts_with(dir))
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn sub_path(mount: &VolumeMount, env: &BTreeMap<String, String>) -> Result<String, MountError> {
    if let Some(path) = mount.sub_path.as_ref().filter(|path| !path.is_empty()) {
        return Ok(path.clone());
    }
    let Some(expression) = mount.sub_path_expr.as_ref().filter(|expression| !expression.is_empty()) else {
        return Ok(String::new());
    };
    let missing = std::cell::Cell::new(false);
    let path = expand(expression, |name| {
        let value = env.get(name).cloned();
        missing.set(missing.get() || value.is_none());
        value
    });
    if missing.get() {
        return Err(MountError::Expression { expression: expression.clone() });
    }
    subpath::validate(&path)?;
    Ok(path)
}

fn propagation(mount: &VolumeMount) -> i32 {
    match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => cri::MountPropagation::PropagationHostToContainer as i32,
        Some("Bidirectional") => cri::MountPropagation::PropagationBidirectional as i32,
        _ => cri::MountPropagation::PropagationPrivate as i32,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn devices_are_for_volumes_that_are_devices() {
        let container: Container = serde_json::from_value(json!({"name": "c",
            "volumeDevices": [{"name": "raw", "devicePath": "/dev/xvda"}]}))
        .unwrap();
        let raw = |source| HashMap::from([("raw".to_owned(), source)]);
        for (read_only, permissions) in [(false, "mrw"), (true, "r")] {
            let found = devices(&container, &raw(Source::Device { path: "/d".into(), read_only })).unwrap();
            assert_eq!((found[0].container_path.as_str(), found[0].host_path.as_str()), ("/dev/xvda", "/d"));
            assert_eq!(found[0].permissions, permissions);
        }
        let directory = devices(&container, &raw(Source::Path { path: "/d".into(), read_only: false }));
        assert_eq!(
            directory.unwrap_err().to_string(),
            "volume \"raw\" of container \"c\" is not a block device"
        );
        assert!(matches!(devices(&container, &HashMap::new()), Err(MountError::NoVolume { .. })));
    }

    #[test]
    fn sub_path_expressions() {
        let env = BTreeMap::from([
            ("POD".to_owned(), "p".to_owned()),
            ("UP".to_owned(), "..".to_owned()),
            ("ABS".to_owned(), "/x".to_owned()),
        ]);
        for (expression, want) in
            [("$(POD)/x", Some("p/x")), ("$(NOPE)", None), ("$(UP)", None), ("$(ABS)", None)]
        {
            let mount: VolumeMount =
                serde_json::from_value(json!({"name": "v", "mountPath": "/m", "subPathExpr": expression}))
                    .unwrap();
            assert_eq!(sub_path(&mount, &env).ok().as_deref(), want, "{expression}");
        }
    }
}
