//! emptyDir: a directory, memory or huge pages, that lives as long as its pod.

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, PodSpec};
use nix::mount::{MsFlags, mount};
use std::collections::BTreeSet;
use std::path::Path;

use super::{FileError, io, teardown, tmpfs};
use crate::pod::amount;
use coracle_host_dir::HostDir;

/// Size of one in memory: as much as the pod may use, or all pods together where the pod has no limit; less where its
/// own limit is less.
pub fn memory_size(source: &EmptyDirVolumeSource, pod_limit: i64, allocatable: i64) -> Option<i64> {
    let own = source.size_limit.as_ref().map_or(0, amount::units);
    [allocatable, pod_limit, own].into_iter().filter(|size| *size > 0).min()
}

/// Why one was not made.
#[derive(Debug, thiserror::Error)]
pub enum EmptyDirError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A medium that Kubernetes does not have.
    #[error("unknown storage medium {medium:?}")]
    Medium {
        /// As given.
        medium: String,
    },
    /// It is not clear of which size its pages are.
    #[error("medium: {medium} can't be used if container requests multiple huge page sizes")]
    PageSizes {
        /// As given.
        medium: String,
    },
    /// The pod has no huge pages of that size.
    #[error("medium {medium}: hugePages storage requested, but there is no resource request for huge pages")]
    NoRequest {
        /// As given.
        medium: String,
    },
}

/// Where the files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Disk,
    Memory,
    /// Huge pages of a size in bytes, or of the one that the pod requests.
    HugePages(Option<i64>),
}

fn medium_of(source: &EmptyDirVolumeSource) -> Result<Medium, EmptyDirError> {
    let text = source.medium.as_deref().unwrap_or_default();
    let unknown = || EmptyDirError::Medium { medium: text.to_owned() };
    Ok(match text {
        "" => Medium::Disk,
        "Memory" => Medium::Memory,
        "HugePages" => Medium::HugePages(None),
        _ => {
            let size = text.strip_prefix("HugePages-").and_then(amount::parse_units);
            Medium::HugePages(Some(size.filter(|size| *size > 0).ok_or_else(unknown)?))
        }
    })
}

/// Whether it uses the node's disk, and counts as that.
pub fn is_on_disk(source: &EmptyDirVolumeSource) -> bool {
    source.medium.as_deref().unwrap_or_default().is_empty()
}

/// Size of the pages, in bytes: one that the pod requests.
fn page_size(
    source: &EmptyDirVolumeSource,
    wanted: Option<i64>,
    spec: &PodSpec,
) -> Result<i64, EmptyDirError> {
    let medium = || source.medium.clone().unwrap_or_default();
    let of_containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let of_containers = of_containers.filter_map(|container| container.resources.as_ref());
    let requests = spec.resources.iter().chain(of_containers).filter_map(|all| all.requests.as_ref());
    let sizes = requests.flat_map(|requests| requests.keys());
    let sizes: BTreeSet<i64> =
        sizes.filter_map(|name| amount::parse_units(name.strip_prefix("hugepages-")?)).collect();
    match wanted {
        Some(size) if sizes.contains(&size) => Ok(size),
        None if sizes.len() > 1 => Err(EmptyDirError::PageSizes { medium: medium() }),
        None => sizes.first().copied().ok_or_else(|| EmptyDirError::NoRequest { medium: medium() }),
        Some(_) => Err(EmptyDirError::NoRequest { medium: medium() }),
    }
}

/// Makes it; one that is there stays, with its content. `size` is that of one in memory.
pub fn ensure(
    dir: &Path,
    source: &EmptyDirVolumeSource,
    spec: &PodSpec,
    size: Option<i64>,
) -> Result<(), EmptyDirError> {
    let medium = medium_of(source)?;
    let mut held = HostDir::create(dir).map_err(io("create", dir))?;
    if medium != Medium::Disk && !teardown::is_mount(dir) {
        match medium {
            Medium::HugePages(wanted) => {
                let options = format!("pagesize={}", page_size(source, wanted, spec)?);
                mount(Some("nodev"), dir, Some("hugetlbfs"), MsFlags::empty(), Some(options.as_str()))
                    .map_err(|error| io("mount hugetlbfs on", dir)(error.into()))?;
            }
            Medium::Memory | Medium::Disk => {
                tmpfs::mount_tmpfs(dir, &size.map(|size| format!("size={size}")).unwrap_or_default())?;
            }
        }
        // The descriptor held so far is of what the mount covers.
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
            let pod_limit = resources::memory_limit(&spec);
            assert_eq!(memory_size(&source, pod_limit, 100 * MI), Some(want), "{containers:?} {source:?}");
        }
        Ok(())
    }

    #[test]
    fn pages_are_of_a_size_that_the_pod_requests() -> Result<(), serde_json::Error> {
        let asks = |names: &[&str]| {
            let requests: serde_json::Map<String, Value> =
                names.iter().map(|name| (format!("hugepages-{name}"), json!("4Mi"))).collect();
            json!({"name": "c", "resources": {"requests": requests}})
        };
        for (medium, spec, want) in [
            ("HugePages", json!({"containers": [asks(&["2Mi"])]}), Ok(2 << 20)),
            (
                "HugePages",
                json!({"containers": [asks(&[])], "initContainers": [asks(&["1Gi"])]}),
                Ok(1 << 30),
            ),
            (
                "HugePages",
                json!({"containers": [{"name": "c"}], "resources": {"requests": {"hugepages-2Mi": "4Mi"}}}),
                Ok(2 << 20),
            ),
            ("HugePages", json!({"containers": [asks(&["2Mi", "1Gi"])]}), Err("multiple huge page sizes")),
            ("HugePages", json!({"containers": [asks(&[])]}), Err("no resource request for huge pages")),
            ("HugePages-1Gi", json!({"containers": [asks(&["2Mi", "1Gi"])]}), Ok(1 << 30)),
            (
                "HugePages-1Gi",
                json!({"containers": [asks(&["2Mi"])]}),
                Err("no resource request for huge pages"),
            ),
            ("HugePages-lots", json!({"containers": [asks(&["2Mi"])]}), Err("unknown storage medium")),
            ("Disc", json!({"containers": []}), Err("unknown storage medium")),
        ] {
            let source: EmptyDirVolumeSource = serde_json::from_value(json!({"medium": medium}))?;
            let spec: PodSpec = serde_json::from_value(spec)?;
            let got = medium_of(&source).and_then(|medium| match medium {
                Medium::HugePages(wanted) => page_size(&source, wanted, &spec),
                Medium::Disk | Medium::Memory => Ok(0),
            });
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{medium}"),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{medium}: {error}"),
                (got, want) => panic!("{medium}: {got:?}, wanted {want:?}"),
            }
        }
        Ok(())
    }
}
