//! `coracle-agent run`: the node.

use anyhow::Context as _;
use coracle_cli::causes;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::assemble::assemble;
use super::engine::EngineOptions;
use super::values::{self, CpuPolicy, Thresholds};
use crate::api::auth::NodeAuth;
use crate::api::containers::Containers;
use crate::api::metrics::Metrics;
use crate::api::tls::{Pair, Tls};
use crate::api::{NodeApi, tunnel};
use crate::cluster::Cluster;
use crate::config::verification::{Pattern, Verification, VerificationPolicy};
use crate::config::{ClusterDns, NetworkMode, NodeConfig};
use crate::dns::find;
use crate::dns::route::{self, Routes, Stub};
use crate::dns::serve::Dns;
use crate::dns::upstream::Upstream;
use crate::dns::zone::Zone;
use crate::identity::client::Identity;
use crate::identity::rotate;
use crate::identity::serving::Serving;
use crate::network;
use crate::node::log_rotation::{self, LogLimits};
use crate::node::machine::{self, Machine};
use crate::node::reconcile::NodeReconciler;
use crate::node::shutdown::{self, Periods};
use crate::proxy::Proxy;
use crate::source;
use coracle_cli::ready::Ready;
use coracle_cli::supervise::Supervisor;
use coracle_engine::runtime::{CriRuntime, Runtime};
use coracle_engine::{Engine, serve};
use coracle_host_dir::private;

/// `coracle-agent run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Kubeconfig used to connect to the API server.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: PathBuf,
    /// YAML file with any of these options, in camel case.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Name of the node; the host name by default.
    #[arg(long)]
    pub node_name: Option<String>,
    /// Address of the node; repeat it for dual stack.
    #[arg(long, value_parser = values::address)]
    pub node_ip: Vec<String>,
    /// Directory for data of pods.
    #[arg(long, default_value = "/var/lib/coracle/agent")]
    pub root_dir: PathBuf,
    /// Directory for Secrets and tokens of pods; must be on a tmpfs.
    #[arg(long, default_value = "/run/coracle/volumes")]
    pub memory_dir: PathBuf,
    /// Directory for logs of pods.
    #[arg(long, default_value = "/var/log/pods")]
    pub pod_log_dir: PathBuf,
    /// Directory for volumes of the built-in provisioner; repeat it for storage classes that name a directory.
    #[arg(long, default_value = coracle_proto::local_path::DIRECTORY)]
    pub storage_dir: Vec<PathBuf>,
    /// Directory of static pod manifests.
    #[arg(long)]
    pub manifests: Option<PathBuf>,
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
    /// Resources reserved for the system: cpu=100m,memory=256Mi.
    #[arg(long, value_delimiter = ',', value_parser = values::reserved)]
    pub reserved: Vec<(String, i64)>,
    /// Unsafe sysctls that pods may set.
    #[arg(long, value_delimiter = ',')]
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Parent cgroup of all pods.
    #[arg(long, default_value = "/")]
    pub cgroup_root: String,
    /// Hard eviction thresholds: pods are evicted while less is free.
    #[arg(
        long,
        default_value = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%",
        value_parser = values::thresholds
    )]
    pub eviction_hard: Thresholds,
    /// CPU manager policy: none or static.
    #[arg(long, value_enum, default_value_t)]
    pub cpu_manager_policy: CpuPolicy,
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
    /// Port of the node API (HTTPS).
    #[arg(long, default_value_t = 10250)]
    pub port: u16,
    /// Certificate of the node API; requested from the cluster by default.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of the node API.
    #[arg(long)]
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
    /// Unix socket on which the built-in engine serves CRI, for crictl.
    #[arg(long, default_value = "/run/coracle/engine.sock")]
    pub cri_socket: PathBuf,
    /// The built-in engine.
    #[command(flatten)]
    pub engine: EngineOptions,
}

impl RunArgs {
    /// Runs until SIGTERM or SIGINT; pods keep running.
    pub fn run(self) -> anyhow::Result<()> {
        if self.container_runtime_endpoint.is_none() {
            self.engine.enter_mount_namespace()?;
        }
        super::log::log_to_stderr();
        // An error means that a crypto provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Two threads are enough for a node, and each costs memory.
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?
            .block_on(self.serve())
    }

    async fn serve(mut self) -> anyhow::Result<()> {
        let readiness = Ready::inherited();
        let supervisor = Supervisor::default();
        let runtime: Arc<dyn Runtime> = match &self.container_runtime_endpoint {
            Some(endpoint) => Arc::new(CriRuntime::new(endpoint)?),
            None => self.open_engine(&supervisor).await?,
        };
        let identity = Identity::read(&self.kubeconfig).await.context("kubeconfig")?;
        let client = identity.client();
        let identity = Arc::new(identity);
        tokio::spawn(supervisor.clone().finish("client certificate", move || rotate::run(identity.clone())));
        self.restrict_directories()?;
        let kept = self.root_dir.join("cluster-dns");
        if self.cluster_dns.is_empty() {
            self.cluster_dns = find::addresses(&client, &kept, self.manifests.is_some()).await;
        } else {
            find::save(&kept, &self.cluster_dns);
        }
        let machine = machine::read_machine(&self.root_dir);
        let config = self.config(&machine, &client)?;
        let version = runtime.version().await.context("container runtime")?;
        let runtime = (runtime, version.runtime_name);
        let (node, background) = assemble(config, client.clone(), runtime, &machine, &supervisor);
        for (task, make) in background {
            supervisor.spawn(task, make);
        }
        let (config, runtime, pods) = (node.config, node.runtime, node.workers.pods().clone());
        let api = self.node_api(&config, &client, node.containers, node.metrics)?;
        if self.tunnel {
            tunnel::open(&api, &client, &supervisor);
        }
        supervisor.spawn("node API", move || api.clone().serve());
        self.serve_dns(&node.cluster, &supervisor)?;
        let limits =
            LogLimits { size: self.container_log_max_size, files: self.container_log_max_files.max(2) };
        let of = (pods.clone(), runtime.clone());
        supervisor.spawn("log rotation", move || log_rotation::run(of.0.clone(), of.1.clone(), limits));
        if config.network != NetworkMode::None {
            let (nodes, config) = (node.cluster.nodes.clone(), config.clone());
            let make = move || network::follow(nodes.clone(), NodeConfig::clone(&config));
            supervisor.spawn("node network", make);
        }
        if config.service_proxy {
            serve_services(&config, &node.cluster, &supervisor)?;
        }
        let status = node.status;
        supervisor.spawn("node status", move || {
            NodeReconciler::new(status.clone(), machine.clone(), readiness.clone()).run()
        });
        let of = (runtime.clone(), pods);
        supervisor.spawn("runtime events", move || source::runtime::follow(of.0.clone(), of.1.clone()));
        let (workers, mirrors) = (node.workers, node.mirrors);
        if let Some(dir) = config.manifests.clone() {
            let make = source::manifests::follow(workers.clone(), mirrors.clone(), dir);
            supervisor.spawn("manifests", make);
        }
        let (sender, listed) = oneshot::channel();
        let (of, sender) = (workers.clone(), Arc::new(Mutex::new(Some(sender))));
        supervisor
            .spawn("watch pods", move || source::api::follow(of.clone(), mirrors.clone(), sender.clone()));
        supervisor.spawn("memory", coracle_cli::memory::release_unused);
        let name = config.name.clone();
        tokio::spawn(async move {
            if listed.await.is_ok() {
                let end = move || {
                    let (workers, runtime, config) = (workers.clone(), runtime.clone(), config.clone());
                    async move { source::orphans::terminate(&workers, &*runtime, &config).await }
                };
                supervisor.finish("leftovers", end).await;
            }
        });
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        // Sent by init on power failure.
        let mut power = signal(SignalKind::from_raw(libc::SIGPWR))?;
        let periods = Periods {
            whole: Duration::from_secs(self.shutdown_grace_period),
            critical: Duration::from_secs(self.shutdown_grace_period_critical_pods),
        };
        let going_down = tokio::select! {
            _ = term.recv() => !periods.whole.is_zero() && shutdown::is_machine_stopping(),
            _ = int.recv() => false,
            _ = power.recv() => true,
        };
        if going_down && !periods.whole.is_zero() {
            node.shutdown.run(periods).await;
            return Ok(());
        }
        tracing::info!(node = name, "agent ends, pods go on");
        Ok(())
    }

    /// Removes access of other local users to data of pods, and replaces the paths by canonical ones.
    fn restrict_directories(&mut self) -> anyhow::Result<()> {
        self.root_dir = private::ensure(&self.root_dir, 0o750).context("--root-dir")?;
        self.memory_dir = private::ensure(&self.memory_dir, 0o700).context("--memory-dir")?;
        self.pod_log_dir = private::ensure(&self.pod_log_dir, 0o750).context("--pod-log-dir")?;
        private::ensure(&self.root_dir.join("pods"), 0o750).context("--root-dir")?;
        Ok(())
    }

    /// Cluster DNS on every cluster DNS address.
    fn serve_dns(&self, cluster: &Cluster, supervisor: &Supervisor) -> anyhow::Result<()> {
        let own: Vec<IpAddr> = self.dns_addresses()?;
        if own.is_empty() {
            return Ok(());
        }
        let fixed: Option<Vec<SocketAddr>> =
            self.dns_upstream.iter().map(|text| route::server(text)).collect();
        let fixed = fixed.context("--dns-upstream: not an address")?;
        let routes = Routes::new(self.dns_stub_domain.clone(), fixed, self.resolv_conf.clone(), own.clone());
        let zone = Zone::new(&self.cluster_domain, own.clone()).context("--cluster-domain: not a domain")?;
        let dns = Dns::new(zone, Box::new(cluster.clone()), Upstream::new(routes));
        for address in own {
            let dns = dns.clone();
            supervisor.spawn(format!("DNS at {address}"), move || dns.clone().serve(address));
        }
        Ok(())
    }

    /// Addresses on which DNS is served: the cluster DNS addresses, unless another server is used.
    fn dns_addresses(&self) -> anyhow::Result<Vec<IpAddr>> {
        if self.external_dns {
            return Ok(vec![]);
        }
        let parse = |text: &String| text.parse().with_context(|| format!("--cluster-dns {text}"));
        self.cluster_dns.iter().map(parse).collect()
    }

    /// The engine in this process, also served as CRI.
    async fn open_engine(&self, supervisor: &Supervisor) -> anyhow::Result<Arc<dyn Runtime>> {
        let engine =
            Engine::supervised(self.engine.options(), supervisor).await.context("container engine")?;
        let engine = Arc::new(engine);
        let (served, socket) = (engine.clone(), self.cri_socket.clone());
        supervisor.spawn("CRI", move || {
            let (served, socket) = (served.clone(), socket.clone());
            async move {
                // The previous agent may still hold the socket.
                while let Err(error) = serve::serve(served.clone(), &socket, std::future::pending()).await {
                    tracing::warn!(socket = %socket.display(), error = %causes::chain(&error), "CRI socket not served, will retry");
                    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
                }
            }
        });
        Ok(engine)
    }

    /// The node API.
    fn node_api(
        &self,
        config: &Arc<NodeConfig>,
        client: &kube::Client,
        containers: Containers,
        metrics: Metrics,
    ) -> anyhow::Result<Arc<NodeApi>> {
        let authority = match &self.client_ca_file {
            Some(path) => Some(std::fs::read(path).with_context(|| path.display().to_string())?),
            None => self.kubeconfig_authority(),
        };
        let tls = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => {
                let pair = Pair { certificate: certificate.clone(), key: key.clone() };
                pair.serve(authority.as_deref())?
            }
            _ => {
                let serving = Serving::open(&self.root_dir.join("pki"), &config.name, &config.ips)?;
                let (of, client) = (serving.clone(), client.clone());
                let make = move || of.clone().run(client.clone());
                metrics.supervisor.spawn("serving certificate", make);
                Tls::new(serving, authority.as_deref())?
            }
        };
        let access = NodeAuth::new(client.clone(), &config.name);
        let (usage, runtime, data) =
            (metrics.usage.clone(), containers.runtime.clone(), config.root_dir.clone());
        let make = move || usage.clone().run(runtime.clone(), data.clone());
        metrics.supervisor.spawn("usage", make);
        Ok(NodeApi::new(config.clone(), containers, metrics, access, tls))
    }

    /// The cluster's CA certificate, PEM.
    fn kubeconfig_authority(&self) -> Option<Vec<u8>> {
        use base64::Engine as _;
        let file = kube::config::Kubeconfig::read_from(&self.kubeconfig).ok()?;
        let cluster = file.clusters.first()?.cluster.as_ref()?.clone();
        match (cluster.certificate_authority_data, cluster.certificate_authority) {
            (Some(data), _) => base64::engine::general_purpose::STANDARD.decode(data).ok(),
            (None, Some(path)) => std::fs::read(path).ok(),
            (None, None) => None,
        }
    }

    fn config(&self, machine: &Machine, client: &kube::Client) -> anyhow::Result<NodeConfig> {
        let ips = if self.node_ip.is_empty() {
            let _ = client;
            vec![self.own_address().context("no address towards the API server; give --node-ip")?]
        } else {
            self.node_ip.clone()
        };
        Ok(NodeConfig {
            name: self.node_name.clone().unwrap_or_else(|| machine.hostname.to_lowercase()),
            ips,
            root_dir: self.root_dir.clone(),
            memory_dir: self.memory_dir.clone(),
            log_dir: self.pod_log_dir.clone(),
            storage_dirs: self.storage_dir.iter().map(std::path::absolute).collect::<Result<_, _>>()?,
            manifests: self.manifests.clone(),
            cni_conf_dir: (!self.external_network).then(|| self.engine.cni_conf_dir.clone()),
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
            eviction: self.eviction_hard.0.clone(),
            policies: !self.external_policies,
            static_cpus: self.cpu_manager_policy == CpuPolicy::Static,
            network: if self.external_network { NetworkMode::None } else { self.network },
            service_proxy: !self.no_service_proxy,
            serves_dns: !self.external_dns,
            verification: Verification::new(
                self.image_pull_credentials_verification_policy,
                self.preloaded_images_verification_allowlist.clone(),
            )
            .context("--preloaded-images-verification-allowlist")?,
        })
    }

    fn own_address(&self) -> Option<String> {
        let file = kube::config::Kubeconfig::read_from(&self.kubeconfig).ok()?;
        let server = file.clusters.first()?.cluster.as_ref()?.server.clone()?;
        let uri: http::Uri = server.parse().ok()?;
        let port = uri.port_u16().unwrap_or(443);
        let address: SocketAddr =
            (uri.host()?.trim_matches(['[', ']']), port).to_socket_addrs().ok()?.next()?;
        Some(machine::address_towards(address)?.to_string())
    }
}

/// Starts the service proxy. An error of the kernel at the start ends the agent; later errors are retried.
fn serve_services(
    config: &Arc<NodeConfig>,
    cluster: &Cluster,
    supervisor: &Supervisor,
) -> anyhow::Result<()> {
    let (config, cluster, proxy_supervisor) = (config.clone(), cluster.clone(), supervisor.clone());
    let open = move || {
        let dns = config.cluster.servers.iter().filter_map(|server| server.parse().ok()).collect();
        Proxy::new(cluster.clone(), config.name.clone(), dns, proxy_supervisor.clone())
    };
    let mut first = Some(open()?);
    supervisor.spawn("service proxy", move || {
        let proxy = first.take().map_or_else(&open, Ok);
        async move {
            match proxy {
                Ok(proxy) => proxy.run().await,
                Err(error) => tracing::error!(error = %causes::chain(&error), "service proxy not restarted"),
            }
        }
    });
    Ok(())
}
