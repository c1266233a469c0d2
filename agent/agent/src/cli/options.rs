//! Options of `coracle-agent run`, and the settings of the node that follow from them.

use anyhow::Context as _;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::engine::EngineOptions;
use super::eviction::{EvictionError, EvictionOptions};
use super::resources::{MemoryPolicy, ResourceOptions};
use super::values::{self, DefaultSeccomp, SwapBehavior};
use crate::config::eviction::EvictionPolicy;
use crate::config::image_gc::GcPolicy;
use crate::config::verification::{Pattern, Verification, VerificationPolicy};
use crate::config::{ClusterDns, ManifestUrl, NetworkMode, NodeConfig};
use crate::dns::route::{self, Stub};
use crate::dns::zone::Zone;
use crate::identity::join::check_name;
use crate::identity::kubeconfig::Selected;
use crate::node::machine::{self, Machine};
use crate::node::shutdown::Group;
use coracle_cli::causes;
use coracle_cli::feature_gates::{self, Gates, Switches};
use coracle_engine::runtime::CriRuntime;
use coracle_host_dir::private;
use http::{HeaderName, HeaderValue};

/// `coracle-agent run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Kubeconfig used to connect to the API server.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: PathBuf,
    /// YAML file with any of these options, in camel case.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Level and format of the log.
    #[command(flatten)]
    pub log: coracle_cli::log::LogArgs,
    /// Name of the node; the host name by default.
    #[arg(long)]
    pub node_name: Option<String>,
    /// Address of the node; repeat it for dual stack.
    #[arg(long, value_parser = values::address)]
    pub node_ip: Vec<String>,
    /// Directory for data of pods.
    #[arg(long, default_value = "/var/lib/coracle/agent")]
    pub root_dir: PathBuf,
    /// Directory of storage drivers: sockets and mounts. Most drivers expect the default.
    #[arg(long, default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// Directory for Secrets and tokens of pods; must be on a tmpfs.
    #[arg(long, default_value = "/run/coracle/volumes")]
    pub memory_dir: PathBuf,
    /// Directory for logs of pods.
    #[arg(long, default_value = "/var/log/pods")]
    pub pod_log_dir: PathBuf,
    /// Directory for links to logs of containers, with names of pods, as collectors of logs expect them.
    // None if it cannot be used: no links are made then.
    #[arg(long, default_value = "/var/log/containers")]
    pub container_log_dir: Option<PathBuf>,
    /// Directory for volumes of the built-in provisioner; repeat it for storage classes that name a directory.
    #[arg(long, default_value = coracle_proto::local_path::DIRECTORY)]
    pub storage_dir: Vec<PathBuf>,
    /// Directory of static pod manifests.
    #[arg(long)]
    pub manifests: Option<PathBuf>,
    /// URL of static pod manifests: a Pod or a PodList, as YAML or JSON.
    #[arg(long)]
    pub manifest_url: Option<String>,
    /// Headers of requests to --manifest-url, as NAME:VALUE.
    #[arg(long, value_delimiter = ',', value_parser = values::header)]
    pub manifest_url_header: Vec<(HeaderName, HeaderValue)>,
    /// Time between requests to --manifest-url.
    #[arg(long, default_value = "20s", value_parser = values::duration)]
    pub http_check_frequency: Duration,
    /// Endpoint of another CRI runtime to use instead of the built-in engine.
    #[arg(long)]
    pub container_runtime_endpoint: Option<String>,
    /// Do not write a CNI configuration: another network plugin is installed.
    #[arg(long)]
    pub external_network: bool,
    /// How packets reach pods of other nodes.
    #[arg(long, value_enum, default_value_t)]
    pub network: NetworkMode,
    /// Do not run the service proxy: another proxy is installed.
    #[arg(long)]
    pub no_service_proxy: bool,
    /// Address of the service proxy's health checks, /healthz and /livez; empty for none.
    #[arg(long, default_value = "[::]:10256", value_parser = values::socket_or_none)]
    pub proxy_healthz_bind_address: values::SocketOrNone,
    /// The cluster's domain.
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// Addresses of the cluster DNS; those of the Service kube-dns by default.
    #[arg(long)]
    pub cluster_dns: Vec<String>,
    /// Do not serve cluster DNS: another DNS server is installed.
    #[arg(long)]
    pub external_dns: bool,
    /// DNS servers for names outside the cluster, instead of the host's: address[:port].
    #[arg(long, value_delimiter = ',')]
    pub dns_upstream: Vec<String>,
    /// Stub domain with its own DNS servers: domain=address[:port],…; may be repeated.
    #[arg(long)]
    pub dns_stub_domain: Vec<Stub>,
    /// Do not enforce network policies: another network plugin enforces them.
    #[arg(long)]
    pub external_policies: bool,
    /// The host's resolver configuration.
    #[arg(long, default_value = "/etc/resolv.conf")]
    pub resolv_conf: PathBuf,
    /// Labels to register with: key=value.
    #[arg(long, value_delimiter = ',', value_parser = values::pair)]
    pub node_labels: Vec<(String, String)>,
    /// Taints to register with: key=value:effect.
    #[arg(long, value_delimiter = ',', value_parser = values::taint)]
    pub register_with_taints: Vec<String>,
    /// Maximum number of pods.
    #[arg(long, default_value_t = 110)]
    pub max_pods: u32,
    /// Maximum number of processes per pod; 0 for no limit.
    #[arg(long, alias = "pod-pids-limit", default_value_t = 0)]
    pub pod_max_pids: i64,
    /// Resources reserved for the system: cpu=100m,memory=256Mi,pid=1000.
    #[arg(long, value_delimiter = ',', value_parser = values::reserved)]
    pub reserved: Vec<(String, i64)>,
    /// Unsafe sysctls that pods may set.
    #[arg(long, value_delimiter = ',')]
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Parent cgroup of all pods.
    #[arg(long, default_value = "/")]
    pub cgroup_root: String,
    /// When pods are evicted.
    #[command(flatten)]
    pub eviction: EvictionOptions,
    /// How many dead instances of a container are kept, as by kubelets, whose default is 1; -1 for all. By default the newest two
    /// instances are kept, dead or not.
    #[arg(long, allow_negative_numbers = true)]
    pub maximum_dead_containers_per_container: Option<i32>,
    /// Longest delay before a container that ended is started again: 1s to 5m.
    #[arg(long, default_value = "5m", value_parser = values::crash_loop_max)]
    pub crash_loop_back_off_max: Duration,
    /// Disk usage in percent from which unused images are removed; 100 disables it.
    #[arg(long, default_value_t = 85, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub image_gc_high_threshold: u8,
    /// Disk usage in percent down to which unused images are removed.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub image_gc_low_threshold: u8,
    /// Least age of an image that is removed because the disk is full, such as 2m.
    #[arg(long, alias = "minimum-image-ttl-duration", default_value = "2m", value_parser = values::duration)]
    pub image_minimum_gc_age: Duration,
    /// Age from which unused images are removed however full the disk is, such as 168h; 0s for never.
    #[arg(long, default_value = "0s", value_parser = values::duration)]
    pub image_maximum_gc_age: Duration,
    /// Seccomp profile of containers that name none: RuntimeDefault, or Unconfined as in Kubernetes.
    #[arg(long, value_enum, default_value_t)]
    pub default_seccomp_profile: DefaultSeccomp,
    /// Whether containers use swap: NoSwap, or LimitedSwap for Burstable pods.
    #[arg(long, value_enum, default_value_t)]
    pub memory_swap_behavior: SwapBehavior,
    /// Do not start on a machine that has swap; Kubernetes' default is true.
    #[arg(long)]
    pub fail_swap_on: bool,
    /// How cpus are limited, and which cpus, memory and devices containers get.
    #[command(flatten)]
    pub resources: ResourceOptions,
    /// Which images on the node a pod may use without credentials that have pulled them before.
    #[arg(long, value_enum, default_value_t)]
    pub image_pull_credentials_verification_policy: VerificationPolicy,
    /// Allowlist of NeverVerifyAllowlistedImages: repositories, or registries and paths that end in /*.
    #[arg(long, value_delimiter = ',')]
    pub preloaded_images_verification_allowlist: Vec<Pattern>,
    /// Seconds that pods have to terminate when the machine shuts down; 0 disables graceful shutdown.
    #[arg(long, default_value_t = 0)]
    pub shutdown_grace_period: u64,
    /// Seconds of these that are reserved for critical pods, at the end.
    #[arg(long, default_value_t = 0)]
    pub shutdown_grace_period_critical_pods: u64,
    /// Time of pods from each priority on, instead of the two: 0=10s,100000=60s. Groups end one after the other.
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = values::shutdown_group,
        conflicts_with_all = ["shutdown_grace_period", "shutdown_grace_period_critical_pods"]
    )]
    pub shutdown_grace_period_by_pod_priority: Vec<Group>,
    /// Hold a delay lock of logind, as kubelets do: pods end when it announces a shutdown, and the machine waits for them.
    /// InhibitDelayMaxSec is raised in /etc/systemd/logind.conf.d where it is less than pods may take.
    #[arg(long)]
    pub shutdown_inhibitor: bool,
    /// Feature gates of Kubernetes, such as ContainerStopSignals=true; docs/feature-gates.md lists them.
    #[arg(long, value_delimiter = ',')]
    pub feature_gates: Vec<String>,
    /// Port of the node API (HTTPS).
    #[arg(long, default_value_t = 10250)]
    pub port: u16,
    /// Certificate of the node API; requested from the cluster by default.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of the node API.
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// CA file for client certificates of the node API; the kubeconfig's CA by default.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// Open tunnels to the API server, which cannot dial this node (NAT, firewall).
    #[arg(long)]
    pub tunnel: bool,
    /// Size at which a container's log file is rotated.
    #[arg(long, default_value = "10Mi", value_parser = values::bytes)]
    pub container_log_max_size: u64,
    /// Maximum number of log files per container, including the current one.
    #[arg(long, default_value_t = 5)]
    pub container_log_max_files: usize,
    /// Disk space for spans that the API server does not have yet; 0 disables recording.
    #[arg(long, default_value = "8Mi", value_parser = values::bytes_or_none)]
    pub trace_size: u64,
    /// Unix socket on which the built-in engine serves CRI, for crictl.
    #[arg(long, default_value = "/run/coracle/engine.sock")]
    pub cri_socket: PathBuf,
    /// The built-in engine.
    #[command(flatten)]
    pub engine: EngineOptions,
}

impl RunArgs {
    fn image_gc(&self) -> anyhow::Result<GcPolicy> {
        let policy = GcPolicy {
            high_percent: self.image_gc_high_threshold,
            low_percent: self.image_gc_low_threshold,
            min_age: self.image_minimum_gc_age,
            max_age: self.image_maximum_gc_age,
        };
        anyhow::ensure!(
            policy.low_percent < policy.high_percent,
            "--image-gc-low-threshold: {} must be less than --image-gc-high-threshold, which is {}",
            policy.low_percent,
            policy.high_percent
        );
        anyhow::ensure!(
            policy.max_age.is_zero() || policy.max_age > policy.min_age,
            "--image-maximum-gc-age: {:?} must be more than --image-minimum-gc-age, which is {:?}",
            policy.max_age,
            policy.min_age
        );
        Ok(policy)
    }

    /// What the feature gates switch.
    pub(super) fn gates(&self) -> anyhow::Result<Switches> {
        let Gates { switches, without_effect, contradictory } =
            feature_gates::parse(&self.feature_gates).context("--feature-gates")?;
        for gate in without_effect {
            tracing::warn!(gate, "feature gate has no effect: it does not apply to this node");
        }
        for gate in contradictory {
            tracing::warn!(gate, "feature gate is set to true and to false: the last value counts");
        }
        Ok(switches)
    }

    fn eviction_policy(&self) -> Result<EvictionPolicy, EvictionError> {
        for signal in self.eviction.ignored() {
            tracing::warn!(signal, "--eviction-soft-grace-period: ignored, there is no such soft threshold");
        }
        self.eviction.policy()
    }

    fn verification(&self) -> anyhow::Result<Verification> {
        let (policy, allowed) = (
            self.image_pull_credentials_verification_policy,
            self.preloaded_images_verification_allowlist.clone(),
        );
        Verification::new(policy, allowed).context("--preloaded-images-verification-allowlist")
    }

    /// Whether options contradict each other, or have values that there are not.
    pub(super) fn check_options(&self) -> anyhow::Result<()> {
        feature_gates::parse(&self.feature_gates).context("--feature-gates")?;
        self.eviction.policy()?;
        self.image_gc()?;
        self.verification()?;
        self.shutdown_options()?;
        self.resources.check()?;
        if let Some(name) = &self.node_name {
            check_name(name).context("--node-name")?;
        }
        if let Some(endpoint) = &self.container_runtime_endpoint {
            CriRuntime::check(endpoint).context("--container-runtime-endpoint")?;
        }
        self.dns_addresses()?;
        self.upstream_dns()?;
        self.dns_zone(Vec::new())?;
        Ok(())
    }

    /// DNS servers for names outside the cluster that are used instead of the host's.
    pub(super) fn upstream_dns(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let server = |text: &String| {
            route::server(text).with_context(|| format!("--dns-upstream {text}: not an address"))
        };
        self.dns_upstream.iter().map(server).collect()
    }

    /// The zone of the cluster, served at some addresses.
    pub(super) fn dns_zone(&self, own: Vec<IpAddr>) -> anyhow::Result<Zone> {
        let domain = &self.cluster_domain;
        Zone::new(domain, own).with_context(|| format!("--cluster-domain {domain}: not a domain"))
    }

    /// Refuses a machine with swap, if it is to be refused.
    pub(super) fn check_swap(&self) -> anyhow::Result<()> {
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
        // The first line is a heading.
        let swap = swaps.lines().nth(1);
        anyhow::ensure!(
            swap.is_none() || !self.fail_swap_on,
            "running with swap on is not supported with --fail-swap-on; disable swap: {}",
            swap.unwrap_or_default()
        );
        Ok(())
    }

    fn shutdown_options(&self) -> anyhow::Result<()> {
        let (whole, critical) = (self.shutdown_grace_period, self.shutdown_grace_period_critical_pods);
        anyhow::ensure!(
            critical <= whole,
            "--shutdown-grace-period-critical-pods: {critical} must not be more than --shutdown-grace-period, which is {whole}"
        );
        anyhow::ensure!(
            !self.shutdown_inhibitor || !self.shutdown_periods().is_zero(),
            "--shutdown-inhibitor: pods have no time to end; set --shutdown-grace-period or --shutdown-grace-period-by-pod-priority"
        );
        Ok(())
    }

    /// The settings of the node.
    pub(super) fn config(&self, machine: &Machine) -> anyhow::Result<NodeConfig> {
        let ips = if self.node_ip.is_empty() {
            vec![self.own_address().context("no address towards the API server; give --node-ip")?]
        } else {
            self.node_ip.clone()
        };
        Ok(NodeConfig {
            name: self.node_name.clone().unwrap_or_else(|| machine.hostname.to_lowercase()),
            ips,
            root_dir: self.root_dir.clone(),
            kubelet_dir: std::path::absolute(&self.kubelet_dir)?,
            memory_dir: self.memory_dir.clone(),
            log_dir: self.pod_log_dir.clone(),
            log_link_dir: self.container_log_dir.clone(),
            storage_dirs: self.storage_dir.iter().map(std::path::absolute).collect::<Result<_, _>>()?,
            manifests: self.manifests.clone(),
            manifest_url: self.manifest_url.clone().map(|url| ManifestUrl {
                url,
                headers: self.manifest_url_header.iter().cloned().collect(),
                every: self.http_check_frequency.max(Duration::from_secs(1)),
            }),
            cni_conf_dir: (!self.external_network).then(|| self.engine.cni_conf_dir.clone()),
            cni_bin_dirs: self.engine.cni_bin_dir.clone(),
            cni_data_dir: self.engine.cni_cache_dir.join("networks"),
            cluster: ClusterDns { domain: self.cluster_domain.clone(), servers: self.cluster_dns.clone() },
            resolv_conf: self.resolv_conf.clone(),
            labels: self.node_labels.iter().cloned().collect(),
            taints: self.register_with_taints.clone(),
            max_pods: self.max_pods,
            max_pids: self.pod_max_pids,
            reserved: self.reserved.iter().cloned().collect(),
            allowed_unsafe_sysctls: self.allowed_unsafe_sysctls.clone(),
            api_port: self.port,
            cgroup_root: PathBuf::from("/sys/fs/cgroup"),
            cgroup_parent: self.cgroup_root.trim_end_matches('/').to_owned(),
            eviction: self.eviction_policy()?,
            pressure_transition: self.eviction.eviction_pressure_transition_period,
            crash_loop_max: self.crash_loop_back_off_max,
            image_gc: self.image_gc()?,
            // Fewer than none is no limit, as for kubelets.
            max_dead_containers: self
                .maximum_dead_containers_per_container
                .map(|most| usize::try_from(most).unwrap_or(usize::MAX)),
            seccomp_default: self.default_seccomp_profile == DefaultSeccomp::RuntimeDefault,
            gates: self.gates()?,
            limited_swap: self.memory_swap_behavior == SwapBehavior::LimitedSwap,
            policies: !self.external_policies,
            cpu_quotas: self.resources.cpu_quotas(),
            static_cpus: self.resources.static_cpus()?,
            static_memory: self.resources.memory_manager_policy == MemoryPolicy::Static,
            topology_policy: self.resources.topology_manager_policy,
            topology_options: self.resources.topology_options()?,
            topology_scope: self.resources.topology_manager_scope,
            network: if self.external_network { NetworkMode::None } else { self.network },
            service_proxy: !self.no_service_proxy,
            proxy_healthz: self.proxy_healthz_bind_address.0,
            serves_dns: !self.external_dns,
            verification: self.verification()?,
        })
    }

    fn own_address(&self) -> Option<String> {
        let uri: http::Uri = Selected::read(&self.kubeconfig).ok()?.server()?.parse().ok()?;
        let port = uri.port_u16().unwrap_or(443);
        let address: SocketAddr =
            (uri.host()?.trim_matches(['[', ']']), port).to_socket_addrs().ok()?.next()?;
        Some(machine::address_towards(address)?.to_string())
    }

    /// Removes access of other local users to data of pods, and replaces the paths by canonical ones.
    pub(super) fn restrict_directories(&mut self) -> anyhow::Result<()> {
        self.root_dir = private::ensure(&self.root_dir, 0o750).context("--root-dir")?;
        self.memory_dir = private::ensure(&self.memory_dir, 0o700).context("--memory-dir")?;
        self.pod_log_dir = private::ensure(&self.pod_log_dir, 0o750).context("--pod-log-dir")?;
        self.container_log_dir = self.container_log_dir.take().and_then(|dir| usable_for_links(&dir));
        private::ensure(&self.root_dir.join("pods"), 0o750).context("--root-dir")?;
        Ok(())
    }

    /// Addresses on which DNS is served: the cluster DNS addresses, unless another server is used.
    pub(super) fn dns_addresses(&self) -> anyhow::Result<Vec<IpAddr>> {
        if self.external_dns {
            return Ok(vec![]);
        }
        let parse = |text: &String| text.parse().with_context(|| format!("--cluster-dns {text}"));
        self.cluster_dns.iter().map(parse).collect()
    }
}

/// The directory for links to logs, if it can be used. A pod that may write to `/var/log` can replace the directory by a link,
/// which must neither be followed nor prevent the start.
fn usable_for_links(dir: &Path) -> Option<PathBuf> {
    // Collectors of logs that are not root read it, as that of a kubelet.
    match private::ensure_no_link(dir, 0o755) {
        Ok(dir) => Some(dir),
        Err(error) => {
            tracing::warn!(dir = %dir.display(), error = %causes::chain(&error), "links to logs of containers are not made");
            None
        }
    }
}
