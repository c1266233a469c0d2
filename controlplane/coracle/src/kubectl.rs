//! `coracle kubectl`: runs kubectl with the kubeconfig of a cluster of this machine.

use crate::cluster_args::ClusterArgs;
use crate::executables;
use crate::kubeconfig::of_user;
use clap::Args;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `coracle kubectl`.
#[derive(Debug, Clone, Args)]
pub struct KubectlArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Arguments of kubectl. Options of `coracle kubectl` come before the first of them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Why kubectl was not run.
#[derive(Debug, thiserror::Error)]
pub enum KubectlError {
    /// The data directory has no kubeconfig.
    #[error("there is no cluster in {0}: admin.kubeconfig is missing")]
    NoCluster(PathBuf),
    /// The caller may not read the kubeconfig, and has no copy of it.
    #[error("{0} is for root alone: run it with sudo")]
    Private(PathBuf),
    /// The kubeconfig cannot be read for another reason.
    #[error("{0}")]
    Read(PathBuf, #[source] io::Error),
    /// There is no kubectl.
    #[error(
        "kubectl is neither in PATH nor beside this program: install version 1.27 or later (scripts/kubectl in the source tree \
         fetches one)"
    )]
    NoProgram,
    /// kubectl could not be executed.
    #[error("{0}")]
    Execute(PathBuf, #[source] io::Error),
}

/// Replaces this process by kubectl; returns only if that fails.
pub fn run(args: &KubectlArgs) -> KubectlError {
    match command(args) {
        Ok(mut kubectl) => {
            let error = kubectl.exec();
            KubectlError::Execute(kubectl.get_program().into(), error)
        }
        Err(error) => error,
    }
}

fn command(args: &KubectlArgs) -> Result<Command, KubectlError> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let kubeconfig = kubeconfig(&args.cluster.data_dir(), home.as_deref())?;
    let own = std::env::current_exe().ok();
    let program = find(own.as_deref(), executables::dirs()).ok_or(KubectlError::NoProgram)?;
    let mut kubectl = Command::new(program);
    // Not as a flag: kubectl takes none before the name of a plugin.
    kubectl.env("KUBECONFIG", kubeconfig).args(&args.arguments);
    Ok(kubectl)
}

/// The administrator's kubeconfig; for users who cannot read it, the copy that `sudo coracle up` wrote for them.
fn kubeconfig(data_dir: &Path, home: Option<&Path>) -> Result<PathBuf, KubectlError> {
    let path = data_dir.join("admin.kubeconfig");
    match File::open(&path) {
        Ok(_) => Ok(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(KubectlError::NoCluster(data_dir.into())),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            home.and_then(|home| of_user::find(home, data_dir)).ok_or(KubectlError::Private(path))
        }
        Err(error) => Err(KubectlError::Read(path, error)),
    }
}

/// The kubectl of PATH; else the one beside this program, or that of `scripts/kubectl` if this program was built in a source tree.
fn find(own: Option<&Path>, mut dirs: Vec<PathBuf>) -> Option<PathBuf> {
    if let Some(dir) = own.and_then(Path::parent) {
        dirs.push(dir.to_owned());
        let target = dir.parent().filter(|target| target.ends_with("target"));
        dirs.extend(target.and_then(Path::parent).map(|tree| tree.join(".cache/bin")));
    }
    executables::find(&["kubectl"], &dirs)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;
    use std::os::unix::fs::PermissionsExt as _;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        kubectl: KubectlArgs,
    }

    #[test]
    fn only_options_before_the_first_argument_are_of_this_command() {
        let parsed = |line: &str| Cli::try_parse_from(line.split(' ')).unwrap().kubectl;
        let args = parsed("kubectl --name a get pods -o wide --name b --help");
        assert_eq!(args.cluster.data_dir(), Path::new("/var/lib/coracle-clusters/a"));
        assert_eq!(args.arguments, ["get", "pods", "-o", "wide", "--name", "b", "--help"]);
        let args = parsed("kubectl -n kube-system exec x -- sh -c ls");
        assert_eq!(args.arguments, ["-n", "kube-system", "exec", "x", "--", "sh", "-c", "ls"]);
        let args = parsed("kubectl --namespace=x get pods");
        assert_eq!(args.arguments, ["--namespace=x", "get", "pods"]);
    }

    #[test]
    fn path_comes_before_what_was_built_or_installed_with_the_program() {
        let tree = tempfile::tempdir().unwrap();
        let [path, own, cache] = ["path", "target/debug", ".cache/bin"].map(|dir| tree.path().join(dir));
        let program = own.join("coracle");
        let find = || find(Some(&program), vec![path.clone()]);
        assert_eq!(find(), None);
        for dir in [&cache, &own, &path] {
            let kubectl = dir.join("kubectl");
            std::fs::create_dir_all(dir).unwrap();
            std::fs::write(&kubectl, "").unwrap();
            std::fs::set_permissions(&kubectl, std::fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(find(), Some(kubectl));
        }
    }

    #[test]
    fn a_directory_without_a_cluster_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = kubeconfig(dir.path(), None).unwrap_err();
        assert!(matches!(&error, KubectlError::NoCluster(named) if named == dir.path()), "{error}");
        let path = dir.path().join("admin.kubeconfig");
        std::fs::write(&path, "").unwrap();
        assert_eq!(kubeconfig(dir.path(), None).unwrap(), path);
    }
}
