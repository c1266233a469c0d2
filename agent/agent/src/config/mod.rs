//! Settings of the node.

// Durations as Go writes them.
pub mod go_duration;
// How limits of cpus are enforced.
pub mod cpu_quotas;
// Options of policies.
pub mod policy_options;
// How the CPU manager chooses cpus.
pub mod cpu_options;
// How the topology manager chooses NUMA nodes.
pub mod topology_options;
// When pods are evicted.
pub mod eviction;
// When unused images are removed.
pub mod image_gc;
// Which images need credentials.
pub mod verification;

use http::HeaderMap;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::cpu_options::CpuOptions;
use self::cpu_quotas::CpuQuotas;
use self::eviction::EvictionPolicy;
use self::image_gc::GcPolicy;
use self::topology_options::TopologyOptions;
use self::verification::Verification;
use crate::numa;
use coracle_cli::feature_gates::Switches;

/// How packets reach pods of other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum NetworkMode {
    /// VXLAN tunnels between nodes, over any network.
    #[default]
    Vxlan,
    /// Routes, for nodes on one link.
    Routes,
    /// Managed by another network plugin.
    None,
}

/// The cluster's names.
#[derive(Clone, Debug, Default)]
pub struct ClusterDns {
    /// Domain, `cluster.local`.
    pub domain: String,
    /// Addresses of the cluster's DNS.
    pub servers: Vec<String>,
}

/// Where static pod manifests are asked for.
#[derive(Clone, Debug)]
pub struct ManifestUrl {
    /// The URL.
    pub url: String,
    /// Headers of the requests.
    pub headers: HeaderMap,
    /// The time between requests.
    pub every: Duration,
}

/// Settings of this node, fixed for the life of the process.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The Node object's name.
    pub name: String,
    /// Addresses of the node, the primary first.
    pub ips: Vec<String>,
    /// Data of pods.
    pub root_dir: PathBuf,
    /// Directory that storage drivers know: their sockets, and what they mount.
    pub kubelet_dir: PathBuf,
    /// Data that must not reach a disk: secrets and tokens. On a tmpfs.
    pub memory_dir: PathBuf,
    /// Logs of pods.
    pub log_dir: PathBuf,
    /// Links to logs of containers. None are made without it.
    pub log_link_dir: Option<PathBuf>,
    /// Directories of the volumes that the cluster makes on this node, the one to use first.
    pub storage_dirs: Vec<PathBuf>,
    /// Static pod manifests.
    pub manifests: Option<PathBuf>,
    /// Static pod manifests elsewhere.
    pub manifest_url: Option<ManifestUrl>,
    /// Where the network configuration is written once the pod range is known.
    pub cni_conf_dir: Option<PathBuf>,
    /// Directories of CNI plugins.
    pub cni_bin_dirs: Vec<PathBuf>,
    /// Directory of host-local address allocations.
    pub cni_data_dir: PathBuf,
    /// The cluster's names.
    pub cluster: ClusterDns,
    /// The host's resolver configuration.
    pub resolv_conf: PathBuf,
    /// Labels to register with.
    pub labels: BTreeMap<String, String>,
    /// Taints to register with, as `key=value:effect`.
    pub taints: Vec<String>,
    /// Maximum number of pods.
    pub max_pods: u32,
    /// Maximum number of processes per pod; 0 for no limit.
    pub max_pids: i64,
    /// Reserved for the system: cpu in thousandths, memory in bytes.
    pub reserved: BTreeMap<String, i64>,
    /// Sysctls a pod may set beyond the safe ones; `*` at the end matches any rest.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Port of the node's own HTTPS API.
    pub api_port: u16,
    /// Where cgroup2 is mounted.
    pub cgroup_root: PathBuf,
    /// Parent cgroup of all pods; `""` for the root.
    pub cgroup_parent: String,
    /// When pods are evicted because the node is short of something.
    pub eviction: EvictionPolicy,
    /// How long a pressure condition stays after its cause is gone, against flapping.
    pub pressure_transition: Duration,
    /// The longest delay before a container that ended is started again.
    pub crash_loop_max: Duration,
    /// When unused images are removed.
    pub image_gc: GcPolicy,
    /// How many dead instances of a container are kept; by default the newest two instances, dead or not.
    pub max_dead_containers: Option<usize>,
    /// Containers without a seccomp profile get the runtime's default one.
    pub seccomp_default: bool,
    /// What feature gates switch; of them, `ContainerStopSignals` concerns nodes.
    pub gates: Switches,
    /// Burstable containers may use swap, by their requests of memory.
    pub limited_swap: bool,
    /// Enforce network policies.
    pub policies: bool,
    /// How limits of cpus are enforced.
    pub cpu_quotas: CpuQuotas,
    /// Static CPU manager policy, if it is enabled: exclusive cpus for Guaranteed pods with integer requests.
    pub static_cpus: Option<CpuOptions>,
    /// Static memory manager policy: memory of Guaranteed pods from certain NUMA nodes.
    pub static_memory: bool,
    /// Whether resources of a container must come from the same NUMA nodes.
    pub topology_policy: numa::Policy,
    /// How NUMA nodes are chosen.
    pub topology_options: TopologyOptions,
    /// What is aligned together.
    pub topology_scope: numa::Scope,
    /// How packets reach pods of other nodes.
    pub network: NetworkMode,
    /// Whether the service proxy runs.
    pub service_proxy: bool,
    /// Address of the service proxy's health checks; none without.
    pub proxy_healthz: Option<SocketAddr>,
    /// Whether this node serves cluster DNS.
    pub serves_dns: bool,
    /// Which images on the node need credentials that have pulled them.
    pub verification: Verification,
}

impl NodeConfig {
    /// Everything on disk of a pod.
    pub fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root_dir.join("pods").join(uid)
    }

    /// Directory of image pull records.
    pub fn image_pulls_dir(&self) -> PathBuf {
        self.root_dir.join("image-pulls")
    }

    /// A volume of a pod on disk.
    pub fn volume_dir(&self, uid: &str, plugin: &str, volume: &str) -> PathBuf {
        self.pod_dir(uid).join("volumes").join(format!("kubernetes.io~{plugin}")).join(volume)
    }

    /// A volume of a pod in memory.
    pub fn memory_volume_dir(&self, uid: &str, volume: &str) -> PathBuf {
        self.memory_dir.join(uid).join(volume)
    }

    /// Where a container's termination message is written on the host.
    pub fn termination_log(&self, uid: &str, container: &str, attempt: u32) -> PathBuf {
        self.pod_dir(uid).join("containers").join(container).join(attempt.to_string())
    }

    /// The directory of a pod's logs.
    pub fn pod_log_dir(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.log_dir.join(format!("{namespace}_{name}_{uid}"))
    }

    /// Uids of all pods with data on this node, including removed ones.
    pub fn uids_on_disk(&self) -> Vec<String> {
        let list = |dir: &Path| -> Vec<String> {
            std::fs::read_dir(dir)
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect()
        };
        let mut uids = list(&self.root_dir.join("pods"));
        uids.extend(list(&self.memory_dir));
        uids.sort();
        uids.dedup();
        uids
    }
}

#[cfg(test)]
impl NodeConfig {
    /// Settings of a node without network, in a directory of its own.
    pub(crate) fn in_directory(dir: &std::path::Path) -> Self {
        NodeConfig {
            name: "n".into(),
            ips: vec!["192.0.2.1".into()],
            root_dir: dir.join("root"),
            kubelet_dir: dir.join("kubelet"),
            memory_dir: dir.join("memory"),
            log_dir: dir.join("logs"),
            log_link_dir: Some(dir.join("log-links")),
            storage_dirs: vec![],
            manifests: None,
            manifest_url: None,
            cni_conf_dir: None,
            cni_bin_dirs: Vec::new(),
            cni_data_dir: dir.join("cni"),
            cluster: ClusterDns { domain: "cluster.local".into(), servers: vec![] },
            resolv_conf: "/dev/null".into(),
            labels: Default::default(),
            taints: vec![],
            max_pods: 10,
            max_pids: 0,
            reserved: Default::default(),
            allowed_unsafe_sysctls: vec![],
            api_port: 0,
            cgroup_root: dir.join("cgroup"),
            cgroup_parent: String::new(),
            eviction: Default::default(),
            pressure_transition: Duration::from_secs(300),
            crash_loop_max: Duration::from_secs(300),
            image_gc: GcPolicy::default(),
            max_dead_containers: None,
            seccomp_default: true,
            gates: Switches::default(),
            limited_swap: false,
            policies: false,
            cpu_quotas: CpuQuotas::default(),
            static_cpus: None,
            static_memory: false,
            topology_policy: numa::Policy::None,
            topology_options: TopologyOptions::default(),
            topology_scope: numa::Scope::Container,
            network: NetworkMode::None,
            service_proxy: false,
            proxy_healthz: None,
            serves_dns: false,
            verification: Default::default(),
        }
    }
}
