//! Status of the engine itself.

use std::collections::HashMap;
use std::sync::Arc;

use coracle_cli::causes;
use coracle_proto::cri;
use serde_json::json;

use super::cgroup::Hierarchy;
use super::oci_runtime::OciRuntime;
use super::options::Options;
use super::pod_network::PodNetwork;
use super::{cni, host};

/// Reports the state of the engine.
pub(crate) struct Info {
    pub(crate) options: Options,
    pub(crate) hierarchy: Arc<Hierarchy>,
    pub(crate) network: Arc<PodNetwork>,
    pub(crate) oci: Arc<OciRuntime>,
}

impl Info {
    /// Conditions, handlers and features.
    pub(crate) async fn status(&self, verbose: bool) -> cri::StatusResponse {
        let network = self.network.status().await;
        let mut info = HashMap::new();
        if verbose {
            let options = &self.options;
            let config = json!({
                "root": options.root, "run": options.run, "runtime": options.runtime,
                "cgroupControllers": self.hierarchy.controllers(),
                "missingControllers": self.hierarchy.missing(),
                "cniConfDir": options.cni.conf, "cniBinDirs": options.cni.bin,
            });
            info.insert("config".to_owned(), config.to_string());
        }
        let features = cri::RuntimeHandlerFeatures {
            recursive_read_only_mounts: host::kernel_at_least(5, 12),
            // Layers are idmapped, which overlayfs supports since this version.
            user_namespaces: host::kernel_at_least(5, 19),
        };
        let handler = |name: &str| cri::RuntimeHandler { name: name.to_owned(), features: Some(features) };
        cri::StatusResponse {
            status: Some(cri::RuntimeStatus { conditions: self.conditions(network) }),
            info,
            runtime_handlers: std::iter::once("").chain(self.oci.handlers()).map(handler).collect(),
            features: Some(cri::RuntimeFeatures { supplemental_groups_policy: true }),
        }
    }

    fn conditions(&self, network: cni::Result<()>) -> Vec<cri::RuntimeCondition> {
        let missing = self.hierarchy.missing();
        let mut conditions = vec![
            cri::RuntimeCondition { r#type: "RuntimeReady".into(), status: true, ..Default::default() },
            cri::RuntimeCondition { r#type: "NetworkReady".into(), status: true, ..Default::default() },
        ];
        if let Err(error) = network {
            let message = format!("Network plugin returns error: {}", causes::chain(&error));
            conditions[1] = cri::RuntimeCondition {
                r#type: "NetworkReady".into(),
                status: false,
                reason: "NetworkPluginNotReady".into(),
                message,
            };
        }
        if !missing.is_empty() {
            conditions.push(cri::RuntimeCondition {
                r#type: "ResourceLimitsEnforced".into(),
                status: false,
                reason: "CgroupControllersMissing".into(),
                message: format!(
                    "no cgroup v2 controllers {}: their limits are not enforced",
                    missing.join(", ")
                ),
            });
        }
        conditions
    }
}
