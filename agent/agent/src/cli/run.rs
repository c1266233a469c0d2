//! `coracle-agent run`: the node.

use anyhow::Context as _;
use coracle_cli::causes;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::assemble::assemble;
use super::options::RunArgs;
use crate::api::auth::NodeAuth;
use crate::api::containers::Containers;
use crate::api::metrics::Metrics;
use crate::api::tls::{Pair, Tls};
use crate::api::{NodeApi, health_checks, tunnel};
use crate::cluster::{AwaitedNames, Cluster};
use crate::config::{NetworkMode, NodeConfig};
use crate::devices::Devices;
use crate::dns::find;
use crate::dns::route::Routes;
use crate::dns::serve::Dns;
use crate::dns::upstream::Upstream;
use crate::identity::client::Identity;
use crate::identity::join::SERVERS;
use crate::identity::kubeconfig::Selected;
use crate::identity::rotate;
use crate::identity::serving::Serving;
use crate::identity::trust::Trust;
use crate::image::gc::ImageGc;
use crate::lifecycle::worker::Workers;
use crate::network;
use crate::node::log_rotation::{self, LogLimits};
use crate::node::machine;
use crate::node::reconcile::NodeReconciler;
use crate::node::shutdown::inhibitor::Inhibitor;
use crate::node::shutdown::{self, Periods};
use crate::proxy::Proxy;
use crate::proxy::healthz::{self, ProxyHealth};
use crate::proxy::trace::RulesTrace;
use crate::servers::Servers;
use crate::source;
use crate::source::mirror::Mirrors;
use crate::trace::NodeTrace;
use crate::trace::clock::ServerClock;
use crate::trace::spool::Spool;
use crate::volume::csi::propagation;
use coracle_cli::ready::Ready;
use coracle_cli::service::ServiceManager;
use coracle_cli::supervise::Supervisor;
use coracle_engine::runtime::{CriRuntime, Runtime};
use coracle_engine::{Engine, serve};
use coracle_proto::cri;
use coracle_timeline::shared_memory;
use coracle_trace::Recorder;

impl RunArgs {
    /// Runs until SIGTERM or SIGINT; pods keep running.
    pub fn run(self) -> anyhow::Result<()> {
        self.check_start()?;
        if self.container_runtime_endpoint.is_none() {
            self.engine.enter_mount_namespace()?;
        }
        super::log::start(&self.log);
        // Two threads are enough for a node, and each costs memory.
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?
            .block_on(self.serve())
    }

    async fn serve(mut self) -> anyhow::Result<()> {
        let readiness = Ready::inherited();
        let manager = ServiceManager::of_environment();
        let supervisor = Supervisor::default();
        let other = self.container_runtime_endpoint.as_deref().map(CriRuntime::new).transpose()?;
        let runtime: Arc<dyn Runtime> = match &other {
            Some(other) => Arc::new(other.clone()),
            None => self.open_engine(&supervisor).await?,
        };
        // The service runs. Whether the node is ready is in the API: a server that is away must not delay the boot.
        manager.ready();
        let alive = tokio::spawn(manager.clone().keep_alive(health_checks(&supervisor)));
        let list = self.root_dir.join(SERVERS);
        let identity = Identity::open(&self.kubeconfig, Some(&list)).await.context("kubeconfig")?;
        let (client, clock) = (identity.client(), identity.clock().clone());
        let servers = identity.servers().clone();
        let identity = Arc::new(identity);
        let rotated = identity.clone();
        tokio::spawn(supervisor.clone().finish("client certificate", move || rotate::run(rotated.clone())));
        self.restrict_directories()?;
        let kept = self.root_dir.join("cluster-dns");
        if self.cluster_dns.is_empty() {
            self.cluster_dns =
                find::addresses(&client, &kept, self.manifests.is_some() || self.manifest_url.is_some())
                    .await;
        } else {
            find::save(&kept, &self.cluster_dns);
        }
        let machine = machine::read_machine(&self.root_dir);
        let config = self.config(&machine)?;
        if let Err(error) = propagation::ensure(&config.kubelet_dir, &config.root_dir.join("kubelet")) {
            let dir = config.kubelet_dir.display();
            tracing::error!(%dir, error = %causes::chain(&error), "mounts of storage drivers in pods are not seen by the node");
        }
        let name = usable_runtime(&*runtime, other.as_ref()).await.context("container runtime")?;
        let runtime = (runtime, name);
        let (spool, recorder) = self.record_spans(clock).unzip();
        let cut = spool.as_ref().map(Spool::cut_off).unwrap_or_default();
        let trace = NodeTrace::new(recorder.unwrap_or(Recorder::OFF)).after(cut);
        let (mut node, background) =
            assemble(config, (client.clone(), trace.clone()), runtime, &machine, &supervisor);
        if let Some(spool) = &spool {
            deliver_spans(spool, &client, &node.config.name, &supervisor);
        }
        node.metrics.spool = spool.clone();
        for (task, make) in background {
            supervisor.spawn(task, make);
        }
        let (of, cluster) = (servers.clone(), node.cluster.clone());
        supervisor
            .spawn("API servers", move || of.clone().follow(cluster.slices.clone(), cluster.nodes.clone()));
        let (config, runtime, pods) = (node.config, node.runtime, node.workers.pods().clone());
        let (api, trust) = self.node_api(&config, (&client, identity), node.containers, node.metrics)?;
        tokio::spawn(supervisor.clone().finish("cluster CA", move || trust.clone().run()));
        if self.tunnel {
            tunnel::open(&api, &client, &supervisor);
        }
        supervisor.spawn("node API", move || api.clone().serve());
        self.serve_dns(&node.cluster, &node.awaited, &supervisor)?;
        let limits =
            LogLimits { size: self.container_log_max_size, files: self.container_log_max_files.max(2) };
        let of = (pods.clone(), runtime.clone());
        supervisor.spawn("log rotation", move || log_rotation::run(of.0.clone(), of.1.clone(), limits));
        if !config.image_gc.is_off() {
            let gc = ImageGc {
                policy: config.image_gc,
                runtime: runtime.clone(),
                pods: pods.clone(),
                ages: node.status.ages.clone(),
                events: node.status.events.clone(),
                node: config.name.clone(),
            };
            supervisor.spawn("image garbage collection", move || gc.clone().run());
        }
        if config.network != NetworkMode::None {
            let (nodes, config) = (node.cluster.nodes.clone(), config.clone());
            let make = move || network::follow(nodes.clone(), NodeConfig::clone(&config));
            supervisor.spawn("node network", make);
        }
        if config.service_proxy {
            let trace = RulesTrace::new(trace, node.awaited);
            serve_services(&config, (&node.cluster, &servers), trace, &supervisor)?;
        }
        let status = node.status;
        let devices = status.devices.clone();
        supervisor.spawn("node status", move || {
            NodeReconciler::new(status.clone(), machine.clone(), readiness.clone()).run()
        });
        let of = (runtime.clone(), pods);
        supervisor.spawn("runtime events", move || source::runtime::follow(of.0.clone(), of.1.clone()));
        follow_pods((&node.workers, &node.mirrors), &config, (&runtime, &devices), &supervisor);
        supervisor.spawn("memory", coracle_cli::memory::release_unused);
        let (periods, shutdown) = (self.shutdown_periods(), Arc::new(node.shutdown));
        if self.shutdown_inhibitor {
            let inhibitor = Inhibitor { shutdown: shutdown.clone(), periods: periods.clone() };
            supervisor.spawn("shutdown inhibitor", move || inhibitor.clone().run());
        }
        let ends = until_stopped(&periods).await?;
        manager.stopping();
        if ends {
            shutdown.run(&periods).await;
        } else {
            tracing::info!(node = config.name, "agent ends, pods go on");
        }
        if let Some(spool) = spool {
            spool.stop();
        }
        alive.abort();
        Ok(())
    }

    pub(super) fn shutdown_periods(&self) -> Periods {
        if !self.shutdown_grace_period_by_pod_priority.is_empty() {
            return Periods::by_priority(self.shutdown_grace_period_by_pod_priority.clone());
        }
        Periods::ordinary_and_critical(
            Duration::from_secs(self.shutdown_grace_period),
            Duration::from_secs(self.shutdown_grace_period_critical_pods),
        )
    }

    /// Cluster DNS on every cluster DNS address.
    fn serve_dns(
        &self,
        cluster: &Cluster,
        awaited: &Arc<AwaitedNames>,
        supervisor: &Supervisor,
    ) -> anyhow::Result<()> {
        let own: Vec<IpAddr> = self.dns_addresses()?;
        if own.is_empty() {
            return Ok(());
        }
        let (fixed, zone) = (self.upstream_dns()?, self.dns_zone(own.clone())?);
        let routes = Routes::new(self.dns_stub_domain.clone(), fixed, self.resolv_conf.clone(), own.clone());
        let dns = Dns::new(zone, Box::new(cluster.clone()), Upstream::new(routes), awaited.clone());
        for address in own {
            let dns = dns.clone();
            supervisor.spawn(format!("DNS at {address}"), move || dns.clone().serve(address));
        }
        Ok(())
    }

    /// Starts to record spans, unless that is disabled.
    fn record_spans(&self, clock: Arc<ServerClock>) -> Option<(Spool, Recorder)> {
        let (dir, memory) = (self.root_dir.join("trace"), shared_memory::path(&self.root_dir));
        Spool::open(&dir, memory.as_deref(), self.trace_size, clock)
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

    /// The node API, and what follows the CA of the cluster for it.
    fn node_api(
        &self,
        config: &Arc<NodeConfig>,
        (client, identity): (&kube::Client, Arc<Identity>),
        containers: Containers,
        metrics: Metrics,
    ) -> anyhow::Result<(Arc<NodeApi>, Trust)> {
        let authority = match &self.client_ca_file {
            Some(path) => Some(std::fs::read(path).with_context(|| path.display().to_string())?),
            None => Selected::read(&self.kubeconfig)?.authority(),
        };
        let (tls, serving) = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => {
                let pair = Pair { certificate: certificate.clone(), key: key.clone() };
                (pair.serve(authority.as_deref())?, None)
            }
            _ => {
                let serving = Serving::open(&self.root_dir.join("pki"), &config.name, &config.ips)?;
                let (of, client) = (serving.clone(), client.clone());
                let make = move || of.clone().run(client.clone());
                metrics.supervisor.spawn("serving certificate", make);
                (Tls::new(serving.clone(), authority.as_deref())?, Some(serving))
            }
        };
        // Another CA of clients is the operator's.
        let followed = self.client_ca_file.is_none().then(|| tls.clone());
        let trust = Trust { identity, node: config.name.clone(), tls: followed, serving };
        let access = NodeAuth::new(client.clone(), &config.name);
        let (usage, runtime, data) =
            (metrics.usage.clone(), containers.runtime.clone(), config.root_dir.clone());
        let make = move || usage.clone().run(runtime.clone(), data.clone());
        metrics.supervisor.spawn("usage", make);
        Ok((NodeApi::new(config.clone(), containers, metrics, access, tls), trust))
    }
}

/// Delivers spans to the API server; without a place to note what it has, they are only kept on disk.
fn deliver_spans(spool: &Spool, client: &kube::Client, node: &str, supervisor: &Supervisor) {
    match spool.delivery(client.clone(), node) {
        Ok(delivery) => {
            supervisor.spawn("spans", move || delivery.clone().run());
        }
        Err(error) => tracing::warn!(error = %causes::chain(&error), "spans are not delivered"),
    }
}

/// Starts the service proxy. An error of the kernel at the start ends the agent; later errors are retried.
fn serve_services(
    config: &Arc<NodeConfig>,
    (cluster, servers): (&Cluster, &Servers),
    trace: RulesTrace,
    supervisor: &Supervisor,
) -> anyhow::Result<()> {
    let (config, cluster, proxy_supervisor) = (config.clone(), cluster.clone(), supervisor.clone());
    let unfit = servers.unfit();
    let health = ProxyHealth::default();
    if let Some(address) = config.proxy_healthz {
        let (health, nodes, name) = (health.clone(), cluster.nodes.clone(), config.name.clone());
        let make = move || healthz::serve(address, health.clone(), nodes.clone(), name.clone());
        supervisor.spawn("service proxy health", make);
    }
    let open = move || {
        let dns = config.cluster.servers.iter().filter_map(|server| server.parse().ok()).collect();
        let (cluster, supervisor) = (cluster.clone(), proxy_supervisor.clone());
        let own = (supervisor, health.clone());
        Proxy::new(cluster, config.name.clone(), dns, unfit.clone(), own, trace.clone())
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

/// Starts the sources of pods: manifests and the API server. Pods that neither has any more are terminated once those of the
/// API server are listed.
fn follow_pods(
    (workers, mirrors): (&Workers, &Mirrors),
    config: &Arc<NodeConfig>,
    (runtime, devices): (&Arc<dyn Runtime>, &Devices),
    supervisor: &Supervisor,
) {
    if let Some(dir) = config.manifests.clone() {
        let make = source::manifests::follow(workers.clone(), mirrors.clone(), dir);
        supervisor.spawn("manifests", make);
    }
    if let Some(settings) = config.manifest_url.clone() {
        let saved = config.root_dir.join("manifest-url.json");
        match source::manifest_url::follow(workers.clone(), mirrors.clone(), settings, saved) {
            Ok(make) => {
                supervisor.spawn("manifest URL", make);
            }
            Err(error) => tracing::error!(error = %causes::chain(&error), "manifest URL cannot be asked"),
        }
    }
    let (sender, listed) = oneshot::channel();
    let (of, sender) = ((workers.clone(), mirrors.clone()), Arc::new(Mutex::new(Some(sender))));
    supervisor.spawn("watch pods", move || source::api::follow(of.0.clone(), of.1.clone(), sender.clone()));
    let (workers, runtime, config) = (workers.clone(), runtime.clone(), config.clone());
    let (supervisor, devices) = (supervisor.clone(), devices.clone());
    tokio::spawn(async move {
        if listed.await.is_ok() {
            let pods = workers.pods().clone();
            let end = move || {
                let (workers, runtime, config) = (workers.clone(), runtime.clone(), config.clone());
                async move { source::orphans::terminate(&workers, &*runtime, &config).await }
            };
            supervisor.finish("leftovers", end).await;
            devices.retain(|uid| pods.get(uid).is_some());
        }
    });
}

/// The name of the runtime, which answers, and can be used if it is another than the agent's own.
async fn usable_runtime(runtime: &dyn Runtime, other: Option<&CriRuntime>) -> anyhow::Result<String> {
    let version = runtime.version().await?;
    if let Some(other) = other {
        usable_cgroup_driver(other.cgroup_driver().await?)?;
    }
    Ok(version.runtime_name)
}

/// Refuses a runtime whose cgroups are not where this agent puts those of pods. One that does not say is used.
fn usable_cgroup_driver(driver: Option<cri::CgroupDriver>) -> anyhow::Result<()> {
    anyhow::ensure!(
        driver != Some(cri::CgroupDriver::Systemd),
        "the container runtime has the cgroup driver systemd: configure cgroupfs (containerd: SystemdCgroup = false, \
         CRI-O: cgroup_manager = \"cgroupfs\")"
    );
    Ok(())
}

/// Waits for SIGTERM, SIGINT or SIGPWR. Whether the machine is shutting down and pods are to be terminated.
async fn until_stopped(periods: &Periods) -> anyhow::Result<bool> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // Sent by init on power failure.
    let mut power = signal(SignalKind::from_raw(libc::SIGPWR))?;
    let going_down = tokio::select! {
        _ = term.recv() => !periods.is_zero() && shutdown::is_machine_stopping(),
        _ = int.recv() => false,
        _ = power.recv() => true,
    };
    Ok(going_down && !periods.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_whose_cgroups_systemd_makes_is_refused() {
        assert!(usable_cgroup_driver(None).is_ok());
        assert!(usable_cgroup_driver(Some(cri::CgroupDriver::Cgroupfs)).is_ok());
        assert!(usable_cgroup_driver(Some(cri::CgroupDriver::Systemd)).is_err());
    }
}
