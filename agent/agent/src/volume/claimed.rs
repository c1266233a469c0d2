//! Volumes of claims, of NFS servers and of storage drivers: mounted for a pod that starts, left alone for one that runs.

use coracle_cli::causes;
use k8s_openapi::api::core::v1::Pod;
use std::path::Path;
use std::sync::Arc;

use super::csi::expand::Claim;
use super::csi::{CsiError, CsiVolume, Pass};
use super::local_disk;
use super::mounts::Source;
use super::nfs::{self, NfsSource};
use super::persistent::{self, Claimed, Wanted};
use super::prepare::{Prepared, VolumeError, VolumePreparer, fs_group, give};
use super::purpose::Purpose;
use super::teardown;
use super::usage::Measured;
use crate::pod::spec;

impl VolumePreparer<'_> {
    /// The volume of a claim.
    pub(super) async fn claim(
        &self,
        pod: &Arc<Pod>,
        wanted: &Wanted<'_>,
        read_only: bool,
        prepared: &mut Prepared,
    ) -> Result<Source, VolumeError> {
        let uid = spec::uid(pod);
        let found =
            persistent::resolve(self.client, wanted, self.node_labels, self.config, self.purpose).await?;
        prepared.plugins.insert(wanted.volume.to_owned(), found.plugin());
        let is_start = self.purpose == Purpose::Start;
        let mut measure = |driver: Option<String>, path: &Path| {
            let (volume, claim) = (wanted.volume.to_owned(), Some(wanted.claim.to_owned()));
            prepared.measured.push(Measured { volume, claim, driver, path: path.to_owned() });
        };
        let (path, read_only, takes_group) = match found {
            Claimed::Path(found) => {
                // Paths of the host are not the volume's alone.
                if found.takes_group {
                    measure(None, &found.path);
                }
                (found.path, read_only || found.read_only, found.takes_group)
            }
            Claimed::Device { path, read_only: always } => {
                return Ok(Source::Device { path, read_only: read_only || always });
            }
            Claimed::Directory { name, path, read_only: always, options } => {
                let mut dir = self.config.volume_dir(uid, "local-volume", &name);
                if is_start {
                    local_disk::ensure_directory(&path, &options, &dir)?;
                } else if !teardown::is_mount(&dir) {
                    // Started by an agent that did not mount directories.
                    dir = path;
                }
                measure(None, &dir);
                (dir, read_only || always, true)
            }
            Claimed::Disk { name, mut disk } => {
                disk.read_only |= read_only;
                let dir = self.config.volume_dir(uid, "local-volume", &name);
                if is_start {
                    local_disk::ensure(&disk, &dir).await?;
                }
                measure(None, &dir);
                (dir, disk.read_only, true)
            }
            Claimed::Nfs { name, mut source } => {
                source.read_only |= read_only;
                let made = self.nfs(uid, &name, &source).await?;
                measure(None, &self.config.volume_dir(uid, "nfs", &name));
                return Ok(made);
            }
            Claimed::Driver(mut volume, claim) => {
                volume.read_only |= read_only;
                measure(Some(volume.name.clone()), Path::new(""));
                return self.driver(pod, *volume, Some(*claim), prepared).await;
            }
        };
        if let Some(group) = fs_group(pod).filter(|_| is_start && takes_group && !read_only) {
            give(&path, group, pod)?;
        }
        Ok(Source::Path { path, read_only })
    }

    /// A directory of an NFS server.
    pub(super) async fn nfs(&self, uid: &str, name: &str, source: &NfsSource) -> Result<Source, VolumeError> {
        let dir = self.config.volume_dir(uid, "nfs", name);
        if self.purpose == Purpose::Start {
            nfs::ensure(source, &dir).await?;
        }
        Ok(Source::Path { path: dir, read_only: source.read_only })
    }

    /// A volume that a storage driver mounts, and expands if its claim has grown.
    pub(super) async fn driver(
        &self,
        pod: &Arc<Pod>,
        volume: CsiVolume,
        claim: Option<Claim>,
        prepared: &mut Prepared,
    ) -> Result<Source, VolumeError> {
        let renew_at = &mut prepared.renew_at;
        let (read_only, is_block, name) = (volume.read_only, volume.is_block, volume.name.clone());
        let source = |path| match is_block {
            true => Source::Device { path, read_only },
            false => Source::Path { path, read_only },
        };
        let (group, is_start) = (fs_group(pod), self.purpose == Purpose::Start);
        let pass = if is_start { Pass::First } else { Pass::Again };
        let mounted = match self.csi.mount(pod, volume.clone(), group, pass).await {
            Ok(mounted) => mounted,
            // Containers that run keep what they have, whatever their driver does.
            Err(error) => match self.csi.mounted(spec::uid(pod), &name).filter(|_| !is_start) {
                Some(path) => {
                    // Drivers register in any order after the agent has started.
                    let soon = jiff::Timestamp::now().as_second() + 60;
                    *renew_at = renew_at.iter().copied().chain([soon]).min();
                    if !matches!(error, CsiError::NoDriver { .. }) {
                        tracing::warn!(uid = spec::uid(pod), volume = name, error = %causes::chain(&error), "volume not published again, will retry");
                    }
                    return Ok(source(path));
                }
                None => return Err(error.into()),
            },
        };
        *renew_at = renew_at.iter().copied().chain(mounted.renew_at).min();
        if let Some(claim) = claim.filter(|_| !read_only) {
            self.csi.expand(pod, &volume, &claim, pass).await?;
        }
        if let Some(group) = group.filter(|_| is_start && mounted.takes_group) {
            give(&mounted.path, group, pod)?;
        }
        Ok(source(mounted.path))
    }
}
