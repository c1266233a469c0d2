//! Creates or updates all volumes of a pod. Idempotent.

use coracle_proto::cri;
use coracle_trace::{Stage, tracked};
use k8s_openapi::api::core::v1::{Pod, ProjectedVolumeSource, Volume, VolumeProjection};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::claim_error::ClaimError;
use super::content::{self, ContentError, File, Keyed, Keys, Payload, mode};
use super::csi::{CsiError, CsiVolume, CsiVolumes};
use super::empty_dir::EmptyDirError;
use super::host_path::{self, HostPathError};
use super::local_disk::DiskError;
use super::metrics::{Operation, plugin_of_driver};
use super::mounts::Source;
use super::nfs::{NfsError, NfsSource};
use super::persistent::Wanted;
use super::purpose::Purpose;
use super::token::{TokenError, Tokens};
use super::usage::Measured;
use super::{FileError, atomic, empty_dir, nested, ownership, tmpfs};
use crate::config::NodeConfig;
use crate::objects::{ObjectError, Objects};
use crate::pod::admit::Rejection;
use crate::pod::downward::Downward;
use crate::pod::{resources, spec};

/// Why a pod's volumes are not ready; shown in a `FailedMount` event, and tried again unless it rejects the pod.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The pod's own directories were not made.
    #[error("error making pod data directories: {path}: {source}")]
    DataDirectory {
        /// Which one.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// One volume failed.
    #[error("{} failed for volume {volume:?} : {source}", .source.step())]
    Setup {
        /// Volume name.
        volume: String,
        /// The cause.
        source: VolumeError,
    },
}

/// Why one volume is not ready.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// Its files were not written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its directory, or what is mounted there, was not made.
    #[error(transparent)]
    EmptyDir(#[from] EmptyDirError),
    /// Its path of the host cannot be used.
    #[error(transparent)]
    HostPath(#[from] HostPathError),
    /// Its claim cannot be mounted.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Its driver has not mounted it.
    #[error(transparent)]
    Csi(#[from] CsiError),
    /// Its NFS server, or this node's kernel, has not mounted it.
    #[error(transparent)]
    Nfs(#[from] NfsError),
    /// Its disk is not mounted.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Its ConfigMap or Secret is not known.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Its content does not exist.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// There is no token for it.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A kind of volume that this node does not make.
    #[error("no volume plugin matched")]
    NoPlugin,
    /// A projected source that this node does not make.
    #[error("projected source is not supported by this node")]
    Projection,
}

impl PrepareError {
    /// Why the pod cannot run on this node; `None` if waiting may help.
    pub fn rejection(&self) -> Option<Rejection> {
        let Self::Setup { source: VolumeError::Csi(error @ CsiError::Exhausted { .. }), .. } = self else {
            return None;
        };
        Some(Rejection { reason: "VolumeAttachmentLimitExceeded".to_owned(), message: error.to_string() })
    }
}

impl VolumeError {
    /// What has failed, as events of Kubernetes call it.
    fn step(&self) -> &'static str {
        match self {
            Self::Claim(ClaimError::MountOptions) => "MountVolume.MountOptionSupport check",
            _ => "MountVolume.SetUp",
        }
    }
}

/// Dependencies of volume preparation.
pub struct VolumePreparer<'a> {
    /// The node's settings.
    pub config: &'a NodeConfig,
    /// What for.
    pub purpose: Purpose,
    /// The API.
    pub client: &'a kube::Client,
    /// ConfigMaps and Secrets.
    pub objects: &'a Objects,
    /// Tokens.
    pub tokens: &'a Tokens,
    /// Volumes of storage drivers.
    pub csi: &'a CsiVolumes,
    /// What the downward API tells.
    pub facts: Downward<'a>,
    /// The node's labels.
    pub node_labels: &'a BTreeMap<String, String>,
}

/// The volumes of a pod.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// Where each volume is.
    pub sources: HashMap<String, Source>,
    /// When a token has to be renewed, seconds since the epoch.
    pub renew_at: Option<i64>,
    /// Volumes that are measured.
    pub measured: Vec<Measured>,
    /// The plugin of each volume, as far as it is known.
    pub plugins: BTreeMap<String, String>,
}

impl VolumePreparer<'_> {
    /// Prepares all volumes; returns the first error, and keeps what was created. A renewal goes on behind an error: a
    /// ConfigMap that is gone must not keep the token of a running pod from being renewed.
    pub async fn prepare(&self, pod: &Arc<Pod>) -> Result<Prepared, PrepareError> {
        let mut prepared = Prepared::default();
        let mut failed = None;
        for volume in spec::spec(pod).volumes.iter().flatten() {
            prepared.plugins.extend(plugin(volume).map(|plugin| (volume.name.clone(), plugin)));
            let begun = Instant::now();
            let prepare = self.volume(pod, volume, &mut prepared);
            let made = tracked(Stage::Volume, &volume.name, prepare).await;
            if let Some(plugin) =
                prepared.plugins.get(&volume.name).filter(|_| self.purpose == Purpose::Start)
            {
                self.csi.metrics().operation(plugin, Operation::Mount, made.is_ok(), begun.elapsed());
            }
            match made {
                Ok(source) => drop(prepared.sources.insert(volume.name.clone(), source)),
                Err(source) => {
                    failed.get_or_insert(PrepareError::Setup { volume: volume.name.clone(), source });
                    if self.purpose == Purpose::Start {
                        break;
                    }
                }
            }
        }
        let (wanted, made) = (prepared.plugins.values().cloned(), prepared.plugins.iter());
        let made =
            made.filter(|(name, _)| prepared.sources.contains_key(*name)).map(|(_, plugin)| plugin.clone());
        self.csi.metrics().set(spec::uid(pod), wanted.collect(), made.collect());
        failed.map_or(Ok(prepared), Err)
    }

    async fn volume(
        &self,
        pod: &Arc<Pod>,
        volume: &Volume,
        prepared: &mut Prepared,
    ) -> Result<Source, VolumeError> {
        let uid = spec::uid(pod);
        let spec = spec::spec(pod);
        let group = fs_group(pod);
        let is_start = self.purpose == Purpose::Start;
        if let Some(source) = &volume.empty_dir {
            let dir = self.config.volume_dir(uid, "empty-dir", &volume.name);
            if !is_start {
                return Ok(Source::Path { path: dir, read_only: false });
            }
            let allocatable = self.facts.allocatable.get("memory").copied().unwrap_or(0);
            let limit = resources::memory_limit(&spec);
            let size = empty_dir::memory_size(source, limit, allocatable);
            empty_dir::ensure(&dir, source, &spec, size)?;
            if let Some(group) = group {
                give(&dir, group, pod)?;
            }
            return Ok(Source::Path { path: dir, read_only: false });
        }
        if let Some(source) = &volume.host_path {
            if is_start {
                host_path::check(&source.path, source.type_.as_deref().unwrap_or_default())?;
            }
            return Ok(Source::Path { path: source.path.clone().into(), read_only: false });
        }
        if let Some(source) = &volume.persistent_volume_claim {
            let wanted = Wanted { pod, volume: &volume.name, claim: &source.claim_name, ephemeral: false };
            return self.claim(pod, &wanted, source.read_only == Some(true), prepared).await;
        }
        if volume.ephemeral.is_some() {
            let claim = format!("{}-{}", spec::name(pod), volume.name);
            let wanted = Wanted { pod, volume: &volume.name, claim: &claim, ephemeral: true };
            return self.claim(pod, &wanted, false, prepared).await;
        }
        if let Some(source) = &volume.csi {
            let made = CsiVolume::ephemeral(pod, &volume.name, source);
            return self.driver(pod, made, None, prepared).await;
        }
        if let Some(source) = &volume.nfs {
            let read_only = source.read_only == Some(true);
            let (server, path) = (source.server.clone(), source.path.clone());
            let source = NfsSource { server, path, read_only, options: vec![] };
            return self.nfs(uid, &volume.name, &source).await;
        }
        if let Some(source) = &volume.image {
            let image = source.reference.clone().unwrap_or_default();
            let image =
                cri::ImageSpec { user_specified_image: image.clone(), image, ..cri::ImageSpec::default() };
            return Ok(Source::Image(image));
        }
        let (payload, dir) = if let Some(source) = &volume.config_map {
            let bits = mode(source.default_mode, 0o644);
            let keys = Keys::new(&source.name, source.items.as_ref(), source.optional, bits);
            (self.config_map(pod, &keys).await?, self.config.volume_dir(uid, "configmap", &volume.name))
        } else if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            let bits = mode(source.default_mode, 0o644);
            let keys = Keys::new(name, source.items.as_ref(), source.optional, bits);
            (self.secret(pod, &keys).await?, self.config.memory_volume_dir(uid, &volume.name))
        } else if let Some(source) = &volume.downward_api {
            let items = source.items.as_deref().unwrap_or_default();
            let payload = content::downward_api(pod, items, mode(source.default_mode, 0o644), &self.facts)?;
            (payload, self.config.memory_volume_dir(uid, &volume.name))
        } else if let Some(source) = &volume.projected {
            let payload = self.projected(pod, source, &mut prepared.renew_at).await?;
            (payload, self.config.memory_volume_dir(uid, &volume.name))
        } else {
            return Err(VolumeError::NoPlugin);
        };
        let own_memory = self.config.memory_dir.join(uid);
        if is_start && dir.starts_with(&own_memory) {
            tokio::task::block_in_place(|| tmpfs::ensure_unswapped(&own_memory))?;
        }
        let target = dir.clone();
        let nested = nested::mount_points(pod, &volume.name);
        tokio::task::block_in_place(|| atomic::write(&target, &payload, group, &nested))?;
        // Whatever the pod's mounts say: only the API writes these.
        Ok(Source::Path { path: dir, read_only: true })
    }

    async fn config_map(&self, pod: &Pod, keys: &Keys<'_>) -> Result<Payload, VolumeError> {
        files(self.objects.config_map(spec::uid(pod), spec::namespace(pod), keys.of).await, keys)
    }

    async fn secret(&self, pod: &Pod, keys: &Keys<'_>) -> Result<Payload, VolumeError> {
        files(self.objects.secret(spec::uid(pod), spec::namespace(pod), keys.of).await, keys)
    }

    /// All sources at once; a later one wins where two have the same path.
    async fn projected(
        &self,
        pod: &Pod,
        source: &ProjectedVolumeSource,
        renew_at: &mut Option<i64>,
    ) -> Result<Payload, VolumeError> {
        let bits = mode(source.default_mode, 0o644);
        let parts = source.sources.iter().flatten().map(|part| self.projection(pod, part, bits));
        let mut payload = Payload::new();
        for (files, renew) in futures::future::try_join_all(parts).await? {
            payload.extend(files);
            *renew_at = renew_at.iter().copied().chain(renew).min();
        }
        Ok(payload)
    }

    /// One source's files, and when its token has to be renewed.
    async fn projection(
        &self,
        pod: &Pod,
        part: &VolumeProjection,
        bits: u32,
    ) -> Result<(Payload, Option<i64>), VolumeError> {
        let files = if let Some(of) = &part.config_map {
            self.config_map(pod, &Keys::new(&of.name, of.items.as_ref(), of.optional, bits)).await?
        } else if let Some(of) = &part.secret {
            self.secret(pod, &Keys::new(&of.name, of.items.as_ref(), of.optional, bits)).await?
        } else if let Some(of) = &part.downward_api {
            content::downward_api(pod, of.items.as_deref().unwrap_or_default(), bits, &self.facts)?
        } else if let Some(of) = &part.service_account_token {
            let token = self.tokens.token(pod, of).await?;
            let owner = common_user(pod);
            let bits = if owner.is_some() || fs_group(pod).is_some() { 0o600 } else { bits };
            let file = File { data: token.text.into_bytes(), mode: bits, owner };
            return Ok(([(of.path.clone(), file)].into_iter().collect(), Some(token.renew_at)));
        } else {
            return Err(VolumeError::Projection);
        };
        Ok((files, None))
    }
}

/// The plugin of a volume that is not that of a claim.
fn plugin(volume: &Volume) -> Option<String> {
    if let Some(csi) = &volume.csi {
        return Some(plugin_of_driver(&csi.driver));
    }
    let known = [
        (volume.empty_dir.is_some(), "empty-dir"),
        (volume.host_path.is_some(), "host-path"),
        (volume.nfs.is_some(), "nfs"),
        (volume.image.is_some(), "image"),
        (volume.config_map.is_some(), "configmap"),
        (volume.secret.is_some(), "secret"),
        (volume.downward_api.is_some(), "downward-api"),
        (volume.projected.is_some(), "projected"),
    ];
    known.into_iter().find(|(is, _)| *is).map(|(_, name)| format!("kubernetes.io/{name}"))
}

fn files<T: Keyed>(
    found: Result<Option<Arc<T>>, ObjectError>,
    keys: &Keys<'_>,
) -> Result<Payload, VolumeError> {
    Ok(content::files(keys, found?.as_deref())?)
}

pub(super) fn fs_group(pod: &Pod) -> Option<u32> {
    let group = spec::spec(pod).security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok()
}

pub(super) fn give(dir: &Path, group: u32, pod: &Pod) -> Result<(), FileError> {
    let spec = spec::spec(pod);
    let policy = spec.security_context.as_ref().and_then(|context| context.fs_group_change_policy.as_deref());
    let only_mismatch = policy == Some("OnRootMismatch");
    tokio::task::block_in_place(|| ownership::give_to_group(dir, group, only_mismatch))
}

/// The user all containers run as, when there is one: it may read its token although others may not.
fn common_user(pod: &Pod) -> Option<u32> {
    let spec = spec::spec(pod);
    let default = spec.security_context.as_ref().and_then(|context| context.run_as_user);
    let mut users = spec::containers(&spec)
        .map(|(_, c)| c.security_context.as_ref().and_then(|context| context.run_as_user).or(default));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok())?
}
