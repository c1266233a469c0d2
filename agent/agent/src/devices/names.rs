//! Names of extended resources, and the paths of device plugins. Both are those of Kubernetes: plugins know them.

use coracle_proto::names::qualified_name;
use std::path::{Path, PathBuf};

/// Whether a name is one of an extended resource: with a domain that is not Kubernetes' own.
pub fn is_extended_resource(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    // Quotas name it with this prefix, which has to fit, too.
    !native && !name.starts_with("requests.") && qualified_name(&format!("requests.{name}")).is_empty()
}

/// Paths below the kubelet's directory.
#[derive(Clone, Debug)]
pub struct Paths(PathBuf);

impl Paths {
    /// In this directory.
    pub fn new(kubelet_dir: &Path) -> Self {
        Self(kubelet_dir.to_owned())
    }

    /// Where plugins put their sockets.
    pub fn plugins(&self) -> PathBuf {
        self.0.join("device-plugins")
    }

    /// Where plugins register.
    pub fn registration(&self) -> PathBuf {
        self.plugins().join("kubelet.sock")
    }

    /// Allocations.
    pub fn checkpoint(&self) -> PathBuf {
        self.plugins().join("kubelet_internal_checkpoint")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_have_a_domain_of_their_vendor() {
        for (name, want) in [
            ("vendor.example/gpu", true),
            ("vendor.example/GPU_0.1", true),
            ("cpu", false),
            ("hugepages-2Mi", false),
            ("kubernetes.io/gpu", false),
            ("x.kubernetes.io/gpu", false),
            ("requests.vendor.example/gpu", false),
            ("vendor.example/", false),
            ("vendor.example/a/b", false),
            ("/gpu", false),
            ("Vendor.example/gpu", false),
            ("vendor.example/../gpu", false),
        ] {
            assert_eq!(is_extended_resource(name), want, "{name}");
        }
        assert!(!is_extended_resource(&format!("vendor.example/{}", "a".repeat(64))));
    }
}
