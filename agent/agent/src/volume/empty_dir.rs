//! emptyDir: a directory, or a tmpfs, that lives as long as its pod.

use k8s_openapi::api::core::v1::EmptyDirVolumeSource;
use nix::mount::{MsFlags, mount};
use std::path::Path;

use super::{FileError, io, teardown};
use crate::pod::amount;
use coracle_host_dir::HostDir;

/// Makes it; one that is there stays, with its content.
pub fn ensure(dir: &Path, source: &EmptyDirVolumeSource, memory_limit: i64) -> Result<(), FileError> {
    let mut held = HostDir::create(dir).map_err(io("create", dir))?;
    if source.medium.as_deref() == Some("Memory") && !teardown::is_mount(dir) {
        let own = source.size_limit.as_ref().map(amount::units).filter(|size| *size > 0);
        let size = match (own, memory_limit) {
            (Some(own), 0) => Some(own),
            (Some(own), limit) => Some(own.min(limit)),
            (None, 0) => None,
            (None, limit) => Some(limit),
        };
        let data = size.map(|size| format!("size={size}"));
        mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), data.as_deref())
            .map_err(|error| io("mount tmpfs on", dir)(error.into()))?;
        // The descriptor held so far is of what the tmpfs covers.
        held = HostDir::open(dir).map_err(io("open", dir))?;
    }
    let mode = held.stat().map_err(io("stat", dir))?.st_mode;
    // A tmpfs comes sticky; a group of the pod's stays.
    if mode & 0o1777 != 0o777 {
        held.chmod(mode & 0o2000 | 0o777).map_err(io("chmod", dir))?;
    }
    Ok(())
}
