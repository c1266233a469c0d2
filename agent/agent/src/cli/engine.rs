//! `coracle-agent engine`: the container engine alone, for crictl, critest and stock kubelets.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use coracle_engine::cni::NetworkDirs;
use coracle_engine::{Engine, Options, host, serve};

/// Settings of the engine; every command that has an engine takes them.
#[derive(Debug, clap::Args)]
pub struct EngineOptions {
    /// Records, images and writable layers.
    #[arg(long, default_value = "/var/lib/coracle/engine")]
    pub root: PathBuf,
    /// Namespaces, bundles and sockets; gone after a reboot.
    #[arg(long, default_value = "/run/coracle")]
    pub state: PathBuf,
    /// The OCI runtime: runc, crun or youki.
    #[arg(long, default_value = "runc")]
    pub runtime: PathBuf,
    /// The keeper; the one beside this program when not given.
    #[arg(long)]
    pub keeper: Option<PathBuf>,
    /// CNI configurations.
    #[arg(long, default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,
    /// CNI plugins; may be given more than once.
    #[arg(long, default_value = "/opt/cni/bin")]
    pub cni_bin_dir: Vec<PathBuf>,
    /// What is attached to which network.
    #[arg(long, default_value = "/var/lib/cni")]
    pub cni_cache_dir: PathBuf,
    /// Cgroup of sandboxes that name no parent.
    #[arg(long, default_value = "/coracle")]
    pub cgroup_parent: String,
    /// Mirrors and credentials of registries (registries.yaml).
    #[arg(long)]
    pub registries: Option<PathBuf>,
    /// Seccomp profiles that pods name.
    #[arg(long, default_value = "/var/lib/kubelet/seccomp")]
    pub seccomp_profiles: PathBuf,
}

impl EngineOptions {
    /// For [`Engine::open`].
    pub fn options(&self) -> Options {
        let defaults = Options::default();
        Options {
            root: self.root.clone(),
            run: self.state.clone(),
            keeper: self.keeper.clone().unwrap_or(defaults.keeper),
            runtime: self.runtime.clone(),
            cgroup_root: defaults.cgroup_root,
            cgroup_parent: self.cgroup_parent.clone(),
            cni: NetworkDirs {
                conf: self.cni_conf_dir.clone(),
                bin: self.cni_bin_dir.clone(),
                cache: self.cni_cache_dir.clone(),
            },
            registries: self.registries.clone(),
            seccomp_profiles: self.seccomp_profiles.clone(),
        }
    }

    /// Makes this process see cgroup2 and share the keeper's mounts; before any thread starts.
    pub fn enter_view(&self) -> anyhow::Result<()> {
        let socket = coracle_keeper::server::Paths::under(&self.state).socket;
        host::enter_view(&socket).context("the keeper's mounts, and cgroup2")
    }
}

/// `coracle-agent engine`.
#[derive(Debug, clap::Args)]
pub struct EngineArgs {
    /// Where to serve CRI.
    #[arg(long, default_value = "/run/coracle/engine.sock")]
    pub socket: PathBuf,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineOptions,
}

impl EngineArgs {
    /// Serves until SIGTERM or SIGINT; containers go on.
    pub fn run(self) -> anyhow::Result<()> {
        self.engine.enter_view()?;
        super::log_to_stderr();
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(self.serve())
    }

    async fn serve(self) -> anyhow::Result<()> {
        let engine = Engine::open(self.engine.options()).await?;
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stop = async move {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        };
        tracing::info!(socket = %self.socket.display(), "serving CRI");
        serve::serve(Arc::new(engine), &self.socket, stop).await
    }
}
