//! `/configz`: the node's settings as a KubeletConfiguration, as far as they exist here.

use serde_json::{Map, Value, json};

use super::response::{ApiResponse, json as answer};
use crate::config::NodeConfig;
use crate::config::eviction::Threshold;
use crate::config::go_duration::go_duration;

fn amount(least: &Threshold) -> String {
    match least {
        Threshold::Amount(amount) => amount.to_string(),
        Threshold::Percent(percent) => format!("{percent}%"),
    }
}

fn by_signal<'a>(values: impl Iterator<Item = (&'a String, String)>) -> Map<String, Value> {
    values.map(|(signal, value)| (signal.clone(), value.into())).collect()
}

/// Options of a policy.
fn options(pairs: impl Iterator<Item = (&'static str, String)>) -> Map<String, Value> {
    pairs.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// `/configz`.
pub fn configz(config: &NodeConfig) -> ApiResponse {
    let eviction = &config.eviction;
    let soft = || eviction.soft.iter();
    let graces = soft().map(|(signal, soft)| (signal, format!("{}s", soft.grace.as_secs_f64())));
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
        "crashLoopBackOff": {"maxContainerRestartPeriod": go_duration(config.crash_loop_max)},
        "cpuCFSQuota": config.cpu_quotas.is_enforced(),
        "cpuCFSQuotaPeriod": go_duration(config.cpu_quotas.period()),
        "cpuManagerPolicy": if config.static_cpus.is_some() { "static" } else { "none" },
        "cpuManagerPolicyOptions": options(config.static_cpus.iter().flat_map(|options| options.names()).map(|name| (name, "true".to_owned()))),
        "memoryManagerPolicy": if config.static_memory { "Static" } else { "None" },
        "topologyManagerPolicy": config.topology_policy.as_str(),
        "topologyManagerPolicyOptions": options(config.topology_options.pairs()),
        "topologyManagerScope": config.topology_scope.as_str(),
        "evictionHard": by_signal(eviction.hard.iter().map(|(signal, least)| (signal, amount(least)))),
        "evictionSoft": by_signal(soft().map(|(signal, soft)| (signal, amount(&soft.least)))),
        "evictionSoftGracePeriod": by_signal(graces),
        "evictionMinimumReclaim": by_signal(eviction.reclaim.iter().map(|(signal, least)| (signal, amount(least)))),
        "evictionMaxPodGracePeriod": eviction.max_pod_grace,
        "evictionPressureTransitionPeriod": format!("{}s", config.pressure_transition.as_secs()),
        "allowedUnsafeSysctls": config.allowed_unsafe_sysctls,
        "registerWithTaints": config.taints,
        "enableServer": true,
        "enableDebuggingHandlers": true,
    }}))
}
