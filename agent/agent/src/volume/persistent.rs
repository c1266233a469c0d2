//! PersistentVolumeClaims onto volumes: paths and disks of this node (hostPath and local), NFS, and volumes of storage drivers.

use coracle_proto::local_path::{PROVISIONED_BY, PROVISIONER};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use nix::sys::stat::SFlag;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::claim_error::ClaimError;
use super::csi::CsiVolume;
use super::csi::expand::Claim;
use super::host_path;
use super::local_disk::LocalDisk;
use super::local_path;
use super::metrics::plugin_of_driver;
use super::mount_options;
use super::nfs::NfsSource;
use super::purpose::Purpose;
use crate::config::NodeConfig;
use crate::pod::{affinity, spec};

/// What a claim is bound to.
pub enum Claimed {
    /// A path of this node.
    Path(ClaimedPath),
    /// A block device of this node.
    Device {
        /// The device.
        path: PathBuf,
        /// The volume itself is read-only.
        read_only: bool,
    },
    /// A directory of this node that is mounted with options.
    Directory {
        /// Name of the PersistentVolume.
        name: String,
        /// The directory.
        path: PathBuf,
        /// The volume itself is read-only.
        read_only: bool,
        /// Mount options.
        options: Vec<String>,
    },
    /// A disk of this node with a file system.
    Disk {
        /// Name of the PersistentVolume.
        name: String,
        /// The disk.
        disk: LocalDisk,
    },
    /// A directory of an NFS server.
    Nfs {
        /// Name of the PersistentVolume.
        name: String,
        /// The directory.
        source: NfsSource,
    },
    /// A volume of a storage driver, and what its claim says of its size.
    Driver(Box<CsiVolume>, Box<Claim>),
}

impl Claimed {
    /// The plugin of Kubernetes for such volumes.
    pub fn plugin(&self) -> String {
        match self {
            Self::Path(path) if !path.takes_group => "kubernetes.io/host-path".to_owned(),
            Self::Path(_) | Self::Device { .. } | Self::Directory { .. } | Self::Disk { .. } => {
                "kubernetes.io/local-volume".to_owned()
            }
            Self::Nfs { .. } => "kubernetes.io/nfs".to_owned(),
            Self::Driver(volume, _) => plugin_of_driver(&volume.key.driver),
        }
    }
}

/// Where a claim's data is, and whether it is read-only.
pub struct ClaimedPath {
    /// Path on this node.
    pub path: PathBuf,
    /// The volume itself is read-only.
    pub read_only: bool,
    /// Whether a pod's group owns its files.
    pub takes_group: bool,
}

/// A claim that a pod has as a volume.
pub struct Wanted<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Name of the volume in the pod.
    pub volume: &'a str,
    /// Name of the claim.
    pub claim: &'a str,
    /// The claim is made for the pod, and only for it.
    pub ephemeral: bool,
}

/// What keeps a pod's containers from using a claim that is being deleted.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

impl Wanted<'_> {
    /// The name of the claim's volume, if the pod may use it.
    fn check_claim(&self, object: &PersistentVolumeClaim) -> Result<String, ClaimError> {
        let (namespace, claim) = (spec::namespace(self.pod).to_owned(), self.claim.to_owned());
        let is_protected = object.metadata.finalizers.iter().flatten().any(|name| name == PROTECTION);
        if object.metadata.deletion_timestamp.is_some() && !is_protected {
            return Err(ClaimError::Deleted { namespace, claim });
        }
        let mut owners = object.metadata.owner_references.iter().flatten();
        let is_owner = owners.any(|owner| owner.controller == Some(true) && owner.uid == spec::uid(self.pod));
        if self.ephemeral && !is_owner {
            return Err(ClaimError::NotOwner { namespace, claim, pod: spec::name(self.pod).to_owned() });
        }
        let is_bound = object.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
        let name = object.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        let name = name.filter(|name| !name.is_empty() && is_bound);
        name.ok_or(ClaimError::NotBound { namespace, claim })
    }

    /// Whether the volume is the claim's, and of a mode that the pod can use.
    fn check_volume(
        &self,
        object: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), ClaimError> {
        let spec = volume.spec.as_ref();
        let bound_to = spec.and_then(|spec| spec.claim_ref.as_ref()).and_then(|claim| claim.uid.as_ref());
        if bound_to != object.metadata.uid.as_ref() {
            return Err(ClaimError::OtherClaim {
                volume: volume.metadata.name.clone().unwrap_or_default(),
                namespace: spec::namespace(self.pod).to_owned(),
                claim: self.claim.to_owned(),
            });
        }
        let is_block = spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block");
        let pod = spec::spec(self.pod);
        let is_mounted = spec::containers(&pod).any(|(_, container)| {
            container.volume_mounts.iter().flatten().any(|mount| mount.name == self.volume)
        });
        let is_device = spec::containers(&pod).any(|(_, container)| {
            container.volume_devices.iter().flatten().any(|device| device.name == self.volume)
        });
        match (is_block, is_mounted, is_device) {
            (true, true, _) => Err(ClaimError::Block { volume: self.volume.to_owned() }),
            (false, _, true) => Err(ClaimError::Filesystem { volume: self.volume.to_owned() }),
            _ => Ok(()),
        }
    }
}

/// Follows a claim to its path.
pub async fn resolve(
    client: &kube::Client,
    wanted: &Wanted<'_>,
    node_labels: &BTreeMap<String, String>,
    node: &NodeConfig,
    purpose: Purpose,
) -> Result<Claimed, ClaimError> {
    let (namespace, claim) = (spec::namespace(wanted.pod), wanted.claim);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let object = claims
        .get_opt(claim)
        .await
        .map_err(|error| ClaimError::GetClaim {
            namespace: namespace.to_owned(),
            claim: claim.to_owned(),
            source: Box::new(error),
        })?
        .ok_or_else(|| ClaimError::NoClaim { claim: claim.to_owned() })?;
    let name = wanted.check_claim(&object)?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = volumes
        .get(&name)
        .await
        .map_err(|error| ClaimError::GetVolume { volume: name.clone(), source: Box::new(error) })?;
    wanted.check_volume(&object, &volume)?;
    let options = mount_options::of_volume(&volume);
    let spec = volume.spec.unwrap_or_default();
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    if let Some(required) = required
        && !affinity::matches(required, node_labels, &node.name)
    {
        return Err(ClaimError::NodeAffinity { volume: name });
    }
    let only_read =
        spec.access_modes.iter().flatten().all(|mode| mode == "ReadOnlyMany") && spec.access_modes.is_some();
    if let Some(source) = &spec.csi {
        let size = spec.capacity.as_ref().and_then(|all| all.get("storage")).cloned().unwrap_or_default();
        let made = CsiVolume::persistent(&name, &spec, source, only_read);
        return Ok(Claimed::Driver(Box::new(made), Box::new(Claim { object, size })));
    }
    if let Some(nfs) = spec.nfs {
        let read_only = only_read || nfs.read_only == Some(true);
        let source = NfsSource { server: nfs.server, path: nfs.path, read_only, options };
        return Ok(Claimed::Nfs { name, source });
    }
    let provisioner = volume.metadata.annotations.as_ref().and_then(|all| all.get(PROVISIONED_BY));
    if let Some(host) = spec.host_path {
        // Containers that run keep what they have.
        if !options.is_empty() && purpose == Purpose::Start {
            return Err(ClaimError::MountOptions);
        }
        let path = Path::new(&host.path);
        if provisioner.is_some_and(|by| by == PROVISIONER) && local_path::is_own(&node.storage_dirs, path) {
            local_path::ensure(path)?;
        }
        host_path::check(&host.path, host.type_.as_deref().unwrap_or_default())?;
        let path = host.path.into();
        return Ok(Claimed::Path(ClaimedPath { path, read_only: only_read, takes_group: false }));
    }
    let is_block = spec.volume_mode.as_deref() == Some("Block");
    if let Some(local) = spec.local {
        let fs_type = local.fs_type.unwrap_or_default();
        let local = Local { path: local.path, fs_type, is_block, read_only: only_read, options };
        return local.resolve(name);
    }
    Err(ClaimError::NoPlugin { volume: name })
}

/// A `local` volume.
struct Local {
    path: String,
    fs_type: String,
    is_block: bool,
    read_only: bool,
    options: Vec<String>,
}

impl Local {
    /// A directory, or a block device, which is used as such or mounted.
    fn resolve(self, volume: String) -> Result<Claimed, ClaimError> {
        let Self { path, fs_type, is_block, read_only, options } = self;
        let Ok(stat) = nix::sys::stat::stat(Path::new(&path)) else {
            return Err(ClaimError::NoPath { path });
        };
        let is_device = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFBLK;
        // Options count for what is mounted.
        let read_only = read_only || !is_block && mount_options::is_read_only(&options);
        match (is_block, is_device) {
            (true, true) => Ok(Claimed::Device { path: path.into(), read_only }),
            (true, false) => Err(ClaimError::NotDevice { volume, path }),
            (false, true) => {
                let disk = LocalDisk { device: path.into(), fs_type, read_only, options };
                Ok(Claimed::Disk { name: volume, disk })
            }
            (false, false) if options.is_empty() => {
                Ok(Claimed::Path(ClaimedPath { path: path.into(), read_only, takes_group: true }))
            }
            (false, false) => Ok(Claimed::Directory { name: volume, path: path.into(), read_only, options }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod() -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {
            "containers": [{"name": "c", "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "volumeDevices": [{"name": "raw", "devicePath": "/dev/raw"}]}]}}))
        .unwrap()
    }

    fn claim(metadata: Value) -> PersistentVolumeClaim {
        let mut object =
            json!({"metadata": {"uid": "c"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_claim_that_is_deleted_or_not_the_pods_own_is_not_mounted() {
        let pod = pod();
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let protected = json!({"deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["kubernetes.io/pvc-protection"]});
        let owner = |uid: &str, controller: bool| {
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid,
                "controller": controller}]})
        };
        let not_owner = Some("PVC ns/claim was not created for pod ns/p (pod is not owner)");
        for (metadata, ephemeral, want) in [
            (json!({}), false, None),
            (deleted, false, Some("PVC ns/claim is being deleted")),
            (protected, false, None),
            (json!({}), true, not_owner),
            (owner("other", true), true, not_owner),
            (owner("u", false), true, not_owner),
            (owner("u", true), true, None),
        ] {
            let wanted = Wanted { pod: &pod, volume: "data", claim: "claim", ephemeral };
            let got = wanted.check_claim(&claim(metadata.clone()));
            assert_eq!(got.err().map(|error| error.to_string()).as_deref(), want, "{metadata}");
        }
    }

    #[test]
    fn a_local_volume_is_a_directory_or_a_device() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().to_str().unwrap();
        let with = |path: &str, is_block, options: &[&str]| {
            let options = options.iter().map(|option| (*option).to_owned()).collect();
            let local =
                Local { path: path.into(), fs_type: String::new(), is_block, read_only: false, options };
            local.resolve("pv".into())
        };
        let of = |path: &str, is_block| with(path, is_block, &[]);
        assert!(matches!(of(path, false), Ok(Claimed::Path(_))));
        assert!(matches!(with(path, false, &["noexec"]), Ok(Claimed::Directory { .. })));
        for (options, want) in [(["ro", "noexec"], true), (["ro", "rw"], false)] {
            let Ok(Claimed::Directory { read_only, .. }) = with(path, false, &options) else {
                panic!("{options:?}");
            };
            assert_eq!(read_only, want, "{options:?}");
        }
        let error = of(path, true).err().unwrap().to_string();
        assert_eq!(error, format!("path {path:?} of PersistentVolume pv is not a block device"));
        let error = of("/no/such", false).err().unwrap().to_string();
        assert_eq!(error, "path \"/no/such\" does not exist");
    }

    #[test]
    fn a_volume_of_another_claim_or_mode_is_not_mounted() {
        let pod = pod();
        for (uid, mode, volume, want) in [
            ("c", "Filesystem", "data", None),
            ("d", "Filesystem", "data", Some("PersistentVolume pv is not bound to PVC ns/claim of this uid")),
            (
                "c",
                "Block",
                "data",
                Some("volume data has volumeMode Block, but is specified in volumeMounts"),
            ),
            ("c", "Block", "unused", None),
            ("c", "Block", "raw", None),
            (
                "c",
                "Filesystem",
                "raw",
                Some("volume raw has volumeMode Filesystem, but is specified in volumeDevices"),
            ),
        ] {
            let object: PersistentVolume = serde_json::from_value(json!({"metadata": {"name": "pv"},
                "spec": {"claimRef": {"uid": uid}, "volumeMode": mode}}))
            .unwrap();
            let wanted = Wanted { pod: &pod, volume, claim: "claim", ephemeral: false };
            let got = wanted.check_volume(&claim(json!({})), &object);
            assert_eq!(got.err().map(|error| error.to_string()).as_deref(), want, "{uid} {mode}");
        }
    }
}
