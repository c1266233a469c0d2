//! `/configz`: the node's settings as a KubeletConfiguration, as far as they exist here.

use serde_json::json;

use super::response::{ApiResponse, json as answer};
use crate::config::{NodeConfig, Threshold};

/// `/configz`.
pub fn configz(config: &NodeConfig) -> ApiResponse {
    let eviction: serde_json::Map<String, serde_json::Value> = config
        .eviction
        .iter()
        .map(|(signal, least)| {
            let least = match least {
                Threshold::Amount(amount) => amount.to_string(),
                Threshold::Percent(percent) => format!("{percent}%"),
            };
            (signal.clone(), least.into())
        })
        .collect();
    answer(&json!({"kubeletconfig": {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "port": config.api_port,
        "staticPodPath": config.manifests,
        "staticPodURL": config.manifest_url.as_ref().map(|manifests| &manifests.url),
        "httpCheckFrequency": config.manifest_url.as_ref().map(|manifests| format!("{}s", manifests.every.as_secs())),
        "podLogsDir": config.log_dir,
        "clusterDomain": config.cluster.domain,
        "clusterDNS": config.cluster.servers,
        "resolvConf": config.resolv_conf,
        "maxPods": config.max_pods,
        "cgroupRoot": config.cgroup_parent,
        "cgroupDriver": "cgroupfs",
        "cpuManagerPolicy": if config.static_cpus { "static" } else { "none" },
        "memoryManagerPolicy": if config.static_memory { "Static" } else { "None" },
        "topologyManagerPolicy": config.topology_policy.as_str(),
        "topologyManagerScope": config.topology_scope.as_str(),
        "evictionHard": eviction,
        "evictionPressureTransitionPeriod": format!("{}s", config.pressure_transition.as_secs()),
        "allowedUnsafeSysctls": config.allowed_unsafe_sysctls,
        "registerWithTaints": config.taints,
        "enableServer": true,
        "enableDebuggingHandlers": true,
    }}))
}
