//! Image garbage collection: removes images that nothing uses when the disk is too full, or that nothing has used for
//! too long.

// When images came to the node and were used.
pub mod ages;

use coracle_cli::causes;
use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::ages::{ImageAges, Unused};
use super::with_tag;
use crate::config::image_gc::GcPolicy;
use crate::events::{Kind, Recorder};
use crate::lifecycle::table::PodTable;
use crate::pod::spec;
use coracle_engine::runtime::{Runtime, RuntimeError};

/// Interval between collections; less where images may not become as old as that.
const PERIOD: Duration = Duration::from_secs(300);
const MIN_PERIOD: Duration = Duration::from_secs(1);

fn period(policy: &GcPolicy) -> Duration {
    if policy.max_age.is_zero() { PERIOD } else { policy.max_age.clamp(MIN_PERIOD, PERIOD) }
}

/// Why images were not collected.
#[derive(Debug, thiserror::Error)]
pub enum GcError {
    /// The runtime did not say what it has, or did not remove an image.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The runtime does not say where its images are.
    #[error("the runtime reports no image filesystem")]
    NoFilesystem,
    /// The image file system was not read.
    #[error("reading the image filesystem {path}")]
    Filesystem {
        /// Where it is mounted.
        path: String,
        /// The cause.
        source: nix::Error,
    },
    /// The image file system has no size.
    #[error("invalid capacity 0 on image filesystem")]
    Capacity,
    /// Too little could be removed.
    #[error(
        "Insufficient free disk space on the node's image filesystem ({percent}% of {capacity} bytes used). Failed to \
         free sufficient space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be \
         used by active images, logs, volumes, or other data."
    )]
    TooLittle {
        /// Use of the disk.
        percent: u64,
        /// Its size.
        capacity: u64,
        /// What was removed.
        freed: u64,
    },
}

/// Size of a file system and what is free of it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Disk {
    capacity: u64,
    available: u64,
}

impl Disk {
    fn of(path: &str) -> Result<Self, GcError> {
        let stat = nix::sys::statvfs::statvfs(Path::new(path))
            .map_err(|source| GcError::Filesystem { path: path.to_owned(), source })?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
        Ok(Disk { capacity: bytes(stat.blocks()), available: bytes(stat.blocks_available()) })
    }

    fn used_percent(self) -> u64 {
        let available = self.available.min(self.capacity);
        100 - (u128::from(available) * 100 / u128::from(self.capacity.max(1))) as u64
    }

    /// Bytes to free until only so much is used.
    fn above(self, percent: u8) -> u64 {
        let free = u128::from(self.capacity) * u128::from(100 - percent.min(100)) / 100;
        u64::try_from(free).unwrap_or(u64::MAX).saturating_sub(self.available)
    }
}

/// Names of all images that containers, or volumes of pods, use.
async fn used(runtime: &dyn Runtime, pods: &[Arc<Pod>]) -> Result<HashSet<String>, RuntimeError> {
    let mut used = HashSet::new();
    for container in runtime.list_containers(None).await? {
        used.extend([container.image_ref, container.image_id]);
        used.extend(container.image.map(|image| image.image));
    }
    for pod in pods {
        for volume in spec::spec(pod).volumes.iter().flatten() {
            let Some(reference) = volume.image.as_ref().and_then(|image| image.reference.as_ref()) else {
                continue;
            };
            let image = cri::ImageSpec { image: with_tag(reference), ..cri::ImageSpec::default() };
            used.extend(runtime.image_status(image).await?.map(|image| image.id));
        }
    }
    used.remove("");
    Ok(used)
}

async fn remove(runtime: &dyn Runtime, id: &str) -> Result<(), RuntimeError> {
    let spec = cri::ImageSpec { image: id.to_owned(), ..cri::ImageSpec::default() };
    runtime.remove_image(spec).await
}

/// Removes the images that nothing uses, because the disk is short; whether any was removed. Those younger than the minimum
/// age stay: they may have been pulled for a container that is about to be created.
pub async fn remove_unused(
    runtime: &dyn Runtime,
    pods: &[Arc<Pod>],
    ages: &ImageAges,
    policy: &GcPolicy,
) -> bool {
    let (Ok(images), Ok(used)) = (runtime.list_images(None).await, used(runtime, pods).await) else {
        return false;
    };
    let mut removed = false;
    for image in ages.update(&images, &used, policy, Instant::now()).iter().filter(|image| image.is_ripe) {
        match remove(runtime, &image.id).await {
            Ok(()) => removed = true,
            Err(error) => {
                tracing::warn!(image = image.id, error = %causes::chain(&error), "unused image not removed")
            }
        }
    }
    removed
}

/// Collects images of a node.
#[derive(Clone)]
pub struct ImageGc {
    /// When images are removed.
    pub policy: GcPolicy,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Pods whose images are in use.
    pub pods: PodTable,
    /// When images came and were used.
    pub ages: ImageAges,
    /// Events about the node.
    pub events: Recorder,
    /// Its name.
    pub node: String,
}

impl ImageGc {
    /// Collects every five minutes, or whenever an image may be too old, until the process ends. Errors are tried again then.
    pub async fn run(self) {
        let mut has_failed = false;
        let mut ticks = tokio::time::interval(period(&self.policy));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Err(error) = self.collect(Disk::of).await else {
                has_failed = false;
                continue;
            };
            let text = causes::chain(&error);
            tracing::warn!(node = self.node, error = text, "images not collected, will retry");
            let reason = match error {
                GcError::Capacity => Some("InvalidDiskCapacity"),
                GcError::TooLittle { .. } => Some("FreeDiskSpaceFailed"),
                _ => None,
            };
            // As kubelets do, the first failure is not reported: the node may be starting.
            for reason in reason.into_iter().chain(has_failed.then_some("ImageGCFailed")) {
                self.report(reason, text.clone());
            }
            has_failed = true;
        }
    }

    fn report(&self, reason: &'static str, text: String) {
        let metadata = ObjectMeta { name: Some(self.node.clone()), ..ObjectMeta::default() };
        self.events.node(&Node { metadata, ..Node::default() }, Kind::Warning, reason, text);
    }

    /// One collection.
    async fn collect(&self, disk: impl Fn(&str) -> Result<Disk, GcError>) -> Result<(), GcError> {
        let (runtime, policy, now) = (&*self.runtime, &self.policy, Instant::now());
        let images = runtime.list_images(None).await?;
        let pods: Vec<_> = self.pods.list().into_iter().map(|entry| entry.pod).collect();
        let unused = self.ages.update(&images, &used(runtime, &pods).await?, policy, now);
        let (old, unused): (Vec<Unused>, Vec<Unused>) = unused.into_iter().partition(|image| image.is_old);
        for image in old {
            tracing::info!(image = image.id, size = image.size, "image removed: unused for too long");
            remove(runtime, &image.id).await?;
        }
        let info = runtime.image_fs_info().await?;
        let place = info.image_filesystems.into_iter().find_map(|usage| usage.fs_id);
        let disk = disk(&place.ok_or(GcError::NoFilesystem)?.mountpoint)?;
        if disk.capacity == 0 {
            return Err(GcError::Capacity);
        }
        let percent = disk.used_percent();
        if percent < u64::from(policy.high_percent) {
            return Ok(());
        }
        let wanted = disk.above(policy.low_percent);
        let (mut freed, mut failed) = (0, None);
        for image in unused.iter().filter(|image| image.is_ripe) {
            if freed >= wanted {
                break;
            }
            match remove(runtime, &image.id).await {
                Ok(()) => {
                    tracing::info!(image = image.id, size = image.size, "image removed: disk too full");
                    freed = freed.saturating_add(image.size);
                }
                // The others may be enough.
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) => Err(error.into()),
            None if freed < wanted => Err(GcError::TooLittle { percent, capacity: disk.capacity, freed }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
