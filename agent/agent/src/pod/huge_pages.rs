//! Huge pages: sizes that the machine has, and limits of containers and pods.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{amount, spec};

/// The directory of sysfs with one entry per page size.
pub const SIZES: &str = "/sys/kernel/mm/hugepages";

/// Page sizes of the machine, in bytes.
pub fn sizes(dir: &Path) -> BTreeSet<i64> {
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names
        .filter_map(|name| {
            let kib: i64 = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            kib.checked_mul(1024)
        })
        .collect()
}

/// The entry of sysfs for pages of a size.
pub fn directory(size: i64) -> String {
    format!("hugepages-{}kB", size >> 10)
}

/// The resource of the API for pages of a size.
pub fn resource(size: i64) -> String {
    format!("hugepages-{}", in_units(size, ["Ki", "Mi", "Gi"]))
}

/// The file of a cgroup that limits pages of a size.
pub fn limit_file(size: i64) -> String {
    format!("hugetlb.{}.max", kernel_name(size))
}

/// The size as the kernel and CRI write it.
fn kernel_name(size: i64) -> String {
    in_units(size, ["KB", "MB", "GB"])
}

fn in_units(size: i64, [kilo, mega, giga]: [&str; 3]) -> String {
    match size {
        _ if size >= 1 << 30 => format!("{}{giga}", size >> 30),
        _ if size >= 1 << 20 => format!("{}{mega}", size >> 20),
        _ => format!("{}{kilo}", size >> 10),
    }
}

/// Limits of a container: its own, else those of the pod as a whole, and 0 for every other size.
pub fn of_container(spec: &PodSpec, container: &Container, sizes: &BTreeSet<i64>) -> Vec<cri::HugepageLimit> {
    let by_size = |limits: Option<_>| by_size(spec::amounts(limits));
    let own = by_size(container.resources.as_ref().and_then(|resources| resources.limits.as_ref()));
    let of_pod = by_size(spec.resources.as_ref().and_then(|resources| resources.limits.as_ref()));
    limits(sizes, |size| own.get(&size).or_else(|| of_pod.get(&size)).copied())
}

/// Limits of the pod's own cgroup: those of the pod as a whole, else the sum of its containers'.
pub fn of_pod(spec: &PodSpec, sizes: &BTreeSet<i64>) -> Vec<cri::HugepageLimit> {
    let all = by_size(spec::totals(spec, true));
    limits(sizes, |size| all.get(&size).copied())
}

/// Bytes of huge pages by page size.
fn by_size(amounts: BTreeMap<String, i64>) -> BTreeMap<i64, i64> {
    let mut all = BTreeMap::new();
    for (resource, bytes) in amounts {
        if let Some(size) = resource.strip_prefix("hugepages-").and_then(amount::parse_units) {
            let sum: &mut i64 = all.entry(size).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    all
}

fn limits(sizes: &BTreeSet<i64>, limit: impl Fn(i64) -> Option<i64>) -> Vec<cri::HugepageLimit> {
    let one = |size: &i64| cri::HugepageLimit {
        page_size: kernel_name(*size),
        limit: limit(*size).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0),
    };
    sizes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_have_names_in_the_kernel_and_in_the_api() {
        let dir = tempfile::tempdir().unwrap();
        for (name, size, resource_name, file) in [
            ("hugepages-64kB", 64 << 10, "hugepages-64Ki", "hugetlb.64KB.max"),
            ("hugepages-2048kB", 2 << 20, "hugepages-2Mi", "hugetlb.2MB.max"),
            ("hugepages-32768kB", 32 << 20, "hugepages-32Mi", "hugetlb.32MB.max"),
            ("hugepages-1048576kB", 1 << 30, "hugepages-1Gi", "hugetlb.1GB.max"),
        ] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            assert!(sizes(dir.path()).contains(&size), "{name}");
            assert_eq!(
                (directory(size), resource(size), limit_file(size)),
                (name.into(), resource_name.into(), file.into())
            );
        }
        std::fs::create_dir(dir.path().join("other")).unwrap();
        assert_eq!(sizes(dir.path()).len(), 4);
        assert!(sizes(&dir.path().join("none")).is_empty());
    }

    #[test]
    fn sizes_without_a_limit_are_limited_to_nothing() {
        const MI: u64 = 1 << 20;
        let limit = |amounts: serde_json::Value| json!({"limits": amounts});
        for (what, of_pod, a, b, want) in [
            ("no limits", json!({}), json!({}), json!({}), [(0, 0), (0, 0), (0, 0)]),
            (
                "own limits",
                json!({}),
                limit(json!({"hugepages-2Mi": "4Mi"})),
                limit(json!({"hugepages-2048Ki": "2Mi", "hugepages-1Gi": "1Gi"})),
                [(4, 0), (2, 1024), (6, 1024)],
            ),
            (
                "those of the pod as a whole",
                limit(json!({"hugepages-2Mi": "10Mi"})),
                limit(json!({"hugepages-2Mi": "4Mi"})),
                limit(json!({"memory": "4Mi"})),
                [(4, 0), (10, 0), (10, 0)],
            ),
            (
                "a size that the machine does not have",
                json!({}),
                limit(json!({"hugepages-16Gi": "16Gi"})),
                json!({}),
                [(0, 0), (0, 0), (0, 0)],
            ),
        ] {
            let spec: PodSpec = serde_json::from_value(json!({
                "resources": of_pod,
                "containers": [{"name": "a", "resources": a}, {"name": "b", "resources": b}],
            }))
            .unwrap();
            let sizes = BTreeSet::from([2 << 20, 1 << 30]);
            let got = [
                of_container(&spec, &spec.containers[0], &sizes),
                of_container(&spec, &spec.containers[1], &sizes),
                super::of_pod(&spec, &sizes),
            ];
            for (got, (small, large)) in got.iter().zip(want) {
                let got: Vec<_> = got.iter().map(|one| (one.page_size.as_str(), one.limit)).collect();
                assert_eq!(got, [("2MB", small * MI), ("1GB", large * MI)], "{what}");
            }
            assert!(super::of_pod(&spec, &BTreeSet::new()).is_empty(), "no controller for them");
        }
    }
}
