//! `coracle-agent engine`: the container engine alone, for crictl, critest and stock kubelets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use nix::unistd::{AccessFlags, access};
use tokio::signal::unix::{SignalKind, signal};

use coracle_engine::cni::NetworkDirs;
use coracle_engine::image::RegistryConfig;
use coracle_engine::{Engine, Options, host, serve};
use coracle_host_dir::private;

/// Where plugins are looked for. Those of this project have directories of their own: the last one belongs to everybody.
const CNI_PLUGINS: [&str; 3] = ["/usr/local/lib/coracle/cni", "/usr/lib/coracle/cni", "/opt/cni/bin"];

/// Options of the engine, shared by all commands that run it.
#[derive(Debug, clap::Args)]
pub struct EngineOptions {
    /// Directory for records, images and writable layers.
    #[arg(long, default_value = "/var/lib/coracle/engine")]
    pub root: PathBuf,
    /// Directory for namespaces, bundles and sockets; cleared by a reboot.
    #[arg(long, default_value = "/run/coracle")]
    pub state: PathBuf,
    /// The OCI runtime: runc, crun, youki, or coracle for the one that comes with this program.
    #[arg(long, default_value = "runc")]
    pub runtime: PathBuf,
    /// Path of coracle-keeper; the one next to this program by default.
    #[arg(long)]
    pub keeper: Option<PathBuf>,
    /// Directory of CNI configurations.
    #[arg(long, default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,
    /// Directory of CNI plugins; may be repeated.
    #[arg(long, default_values = CNI_PLUGINS)]
    pub cni_bin_dir: Vec<PathBuf>,
    /// Directory of the CNI result cache.
    #[arg(long, default_value = "/var/lib/cni")]
    pub cni_cache_dir: PathBuf,
    /// Parent cgroup of sandboxes that name none.
    #[arg(long, default_value = "/coracle")]
    pub cgroup_parent: String,
    /// Registry configuration: mirrors and credentials; the default file may be missing.
    #[arg(long, default_value = RegistryConfig::DEFAULT_FILE)]
    pub registries: PathBuf,
    /// Directory of CDI spec files; may be repeated, and of a device in several the last one counts.
    #[arg(long, default_values = coracle_engine::cdi::DIRECTORIES)]
    pub cdi_spec_dir: Vec<PathBuf>,
    /// Directory of seccomp profiles.
    #[arg(long, default_value = "/var/lib/kubelet/seccomp")]
    pub seccomp_profiles: PathBuf,
}

impl EngineOptions {
    /// For [`Engine::open`].
    pub fn options(&self) -> Options {
        let defaults = Options::default();
        let runtime = defaults.runtime_named(&self.runtime);
        Options {
            root: self.root.clone(),
            run: self.state.clone(),
            keeper: self.keeper.clone().unwrap_or(defaults.keeper),
            runtime,
            own_runtime: defaults.own_runtime,
            cgroup_root: defaults.cgroup_root,
            cgroup_parent: self.cgroup_parent.clone(),
            cni: NetworkDirs {
                conf: self.cni_conf_dir.clone(),
                bin: self.cni_bin_dir.clone(),
                cache: self.cni_cache_dir.clone(),
            },
            registries: Some(self.registries.clone()),
            cdi_dirs: self.cdi_spec_dir.clone(),
            seccomp_profiles: self.seccomp_profiles.clone(),
        }
    }

    /// Whether the files that options name can be used.
    pub fn check_files(&self) -> anyhow::Result<()> {
        RegistryConfig::load(&self.registries).context("--registries")?;
        if let Some(keeper) = &self.keeper {
            find_program(keeper).context("--keeper")?;
        }
        Ok(())
    }

    /// Whether the engine can be started on this machine.
    pub fn check_machine(&self) -> anyhow::Result<()> {
        private::check(&self.root).context("--root")?;
        private::check(&self.state).context("--state")?;
        find_program(&self.options().keeper).context("keeper")
    }

    /// Enters the keeper's mount namespace; call it before any thread starts.
    pub fn enter_mount_namespace(&self) -> anyhow::Result<()> {
        let socket = coracle_keeper::server::Paths::under(&self.state).socket;
        host::enter_mount_namespace(&socket).context("the keeper's mounts, and cgroup2")
    }
}

/// `coracle-agent engine`.
#[derive(Debug, clap::Args)]
pub struct EngineArgs {
    /// Unix socket to serve CRI on.
    #[arg(long, default_value = "/run/coracle/engine.sock")]
    pub socket: PathBuf,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineOptions,
}

impl EngineArgs {
    /// Serves until SIGTERM or SIGINT; containers keep running.
    pub fn run(self) -> anyhow::Result<()> {
        self.engine.check_files()?;
        self.engine.check_machine()?;
        self.engine.enter_mount_namespace()?;
        super::log::log_to_stderr();
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(self.serve())
    }

    async fn serve(self) -> anyhow::Result<()> {
        let engine = Engine::open(self.engine.options()).await?;
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stop = async move {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        };
        tracing::info!(socket = %self.socket.display(), "serving CRI");
        Ok(serve::serve(Arc::new(engine), &self.socket, stop).await?)
    }
}

/// Finds a program as it would be started: by its path, or by its name in PATH.
fn find_program(program: &Path) -> anyhow::Result<()> {
    let is_executable = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    let found = if program.components().count() > 1 {
        is_executable(program)
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| is_executable(&dir.join(program)))
    };
    anyhow::ensure!(found, "{}: there is no such program", program.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser as _;

    #[test]
    fn registries_have_a_default_file() {
        let registries = |words: &[&str]| match Cli::try_parse_from(words).unwrap().command {
            Command::Engine(args) => args.engine.options().registries,
            other => panic!("{other:?}"),
        };
        let default = Path::new("/etc/coracle/registries.yaml");
        assert_eq!(registries(&["coracle-agent", "engine"]).as_deref(), Some(default));
        let named = registries(&["coracle-agent", "engine", "--registries", "/mirrors.yaml"]);
        assert_eq!(named.as_deref(), Some(Path::new("/mirrors.yaml")));
    }

    #[test]
    fn programs_are_found_by_path_and_by_name() {
        for (program, found) in
            [("/bin/sh", true), ("sh", true), ("/bin", false), ("/etc/passwd", false), ("no-keeper", false)]
        {
            assert_eq!(find_program(Path::new(program)).is_ok(), found, "{program}");
        }
    }
}
