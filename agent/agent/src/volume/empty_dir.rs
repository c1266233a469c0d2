//! emptyDir: a directory, or a tmpfs, that lives as long as its pod.

use k8s_openapi::api::core::v1::EmptyDirVolumeSource;
use nix::mount::{MsFlags, mount};
use std::path::Path;

use super::{FileError, io, teardown};
use crate::pod::amount;
use coracle_host_dir::HostDir;

/// Size of one in memory: as much as the pod may use, or all pods together where the pod has no limit; less where its
/// own limit is less.
pub fn memory_size(source: &EmptyDirVolumeSource, pod_limit: i64, allocatable: i64) -> Option<i64> {
    let own = source.size_limit.as_ref().map_or(0, amount::units);
    [allocatable, pod_limit, own].into_iter().filter(|size| *size > 0).min()
}

/// Makes it; one that is there stays, with its content. `size` is that of one in memory.
pub fn ensure(dir: &Path, source: &EmptyDirVolumeSource, size: Option<i64>) -> Result<(), FileError> {
    let mut held = HostDir::create(dir).map_err(io("create", dir))?;
    if source.medium.as_deref() == Some("Memory") && !teardown::is_mount(dir) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::resources;
    use k8s_openapi::api::core::v1::PodSpec;
    use serde_json::{Value, json};

    #[test]
    fn an_empty_dir_in_memory_is_sized_by_the_pods_limit() -> Result<(), serde_json::Error> {
        const MI: i64 = 1 << 20;
        let limit = |memory: &str| json!({"name": "c", "resources": {"limits": {"memory": memory}}});
        let free = json!({"name": "c"});
        let table: [(Vec<Value>, Value, i64); 6] = [
            (vec![limit("10Mi"), limit("20Mi")], json!({}), 30 * MI),
            // Only the sum of all limits limits the pod.
            (vec![limit("10Mi"), free.clone()], json!({}), 100 * MI),
            (vec![free.clone()], json!({}), 100 * MI),
            (vec![free.clone()], json!({"sizeLimit": "5Mi"}), 5 * MI),
            (vec![limit("10Mi")], json!({"sizeLimit": "50Mi"}), 10 * MI),
            (vec![limit("500Mi")], json!({"sizeLimit": "0"}), 100 * MI),
        ];
        for (containers, source, want) in table {
            let spec: PodSpec = serde_json::from_value(json!({"containers": containers}))?;
            let source: EmptyDirVolumeSource = serde_json::from_value(source)?;
            let pod_limit = resources::pod(&spec).memory_limit_in_bytes;
            assert_eq!(memory_size(&source, pod_limit, 100 * MI), Some(want), "{containers:?} {source:?}");
        }
        Ok(())
    }
}
