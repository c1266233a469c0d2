//! NFS volumes, through the client of the kernel.
//!
//! `mount.nfs` negotiates the version and asks the server's portmapper where that is needed. Without it the kernel is asked
//! directly, for version 4, which needs neither.

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::mount_options::Planned;
use super::teardown::{is_mount, mounts_under};
use super::{FileError, io as file};
use coracle_host_dir::HostDir;

/// How long a server may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Where `nfs-common` puts it.
const HELPERS: [&str; 2] = ["/usr/sbin/mount.nfs", "/sbin/mount.nfs"];
/// Longest part of the helper's words that is shown.
const WORDS: usize = 600;

/// A directory of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsSource {
    /// Name or address.
    pub server: String,
    /// Exported directory.
    pub path: String,
    /// Nobody writes to it.
    pub read_only: bool,
    /// Mount options of the PersistentVolume.
    pub options: Vec<String>,
}

/// Why a directory of a server is not mounted; tried again.
#[derive(Debug, thiserror::Error)]
pub enum NfsError {
    /// There is nothing to mount it on.
    #[error(transparent)]
    Directory(#[from] FileError),
    /// The kernel cannot do it.
    #[error("mounting {export}: the kernel of this node has no NFS client (module nfs)")]
    Kernel {
        /// Server and directory.
        export: String,
    },
    /// The server has no address.
    #[error("mounting {export}: server {server:?} not found")]
    Server {
        /// Server and directory.
        export: String,
        /// Name of the server.
        server: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The helper failed, or the kernel.
    #[error("mounting {export}: {message}")]
    Failed {
        /// Server and directory.
        export: String,
        /// What they said.
        message: String,
    },
    /// The server does not answer.
    #[error("mounting {export}: no answer within {} seconds", LIMIT.as_secs())]
    Timeout {
        /// Server and directory.
        export: String,
    },
}

impl NfsSource {
    fn export(&self) -> String {
        // An address of version 6 would end at its first colon.
        let is_v6 = self.server.parse::<std::net::Ipv6Addr>().is_ok();
        if is_v6 {
            format!("[{}]:{}", self.server, self.path)
        } else {
            format!("{}:{}", self.server, self.path)
        }
    }

    fn options(&self) -> Vec<String> {
        let mut all = self.options.clone();
        if self.read_only {
            all.push("ro".into());
        }
        all
    }
}

/// Mounts a directory of a server; one that is mounted stays.
pub async fn ensure(source: &NfsSource, target: &Path) -> Result<(), NfsError> {
    if is_mount(target) {
        return Ok(());
    }
    HostDir::create(target).map_err(file("mkdir", target))?;
    let export = source.export();
    #[allow(clippy::disallowed_methods, reason = "a program of the node")]
    let helper = HELPERS.iter().find(|path| std::fs::metadata(path).is_ok());
    let mounted = async {
        match helper {
            Some(helper) => by_helper(helper, source, target).await,
            None => by_kernel(source, target).await,
        }
    };
    let mounted = tokio::time::timeout(LIMIT, mounted).await;
    match mounted.unwrap_or_else(|_| Err(NfsError::Timeout { export: export.clone() })) {
        // The name of a server is that of a pod: the helper may take it for something else, and do nothing.
        Ok(()) if !is_mount(target) => {
            Err(NfsError::Failed { export, message: "nothing is mounted".to_owned() })
        }
        Err(NfsError::Failed { .. }) if !has_client() => Err(NfsError::Kernel { export }),
        other => other,
    }
}

/// Whether the kernel has the client, or had loaded it when it was asked to.
fn has_client() -> bool {
    #[allow(clippy::disallowed_methods, reason = "the kernel's own file")]
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().last().is_some_and(|name| name.starts_with("nfs")))
}

async fn by_helper(helper: &str, source: &NfsSource, target: &Path) -> Result<(), NfsError> {
    let export = source.export();
    let mut command = tokio::process::Command::new(helper);
    command.arg(&export).arg(target);
    let options = source.options();
    if !options.is_empty() {
        command.arg("-o").arg(options.join(","));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let failed = |message: String| NfsError::Failed { export: export.clone(), message };
    let output = command.output().await.map_err(|error| failed(format!("{helper}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let words: String = words.trim().chars().take(WORDS).collect();
    Err(failed(if words.is_empty() { format!("{helper}: {}", output.status) } else { words }))
}

async fn by_kernel(source: &NfsSource, target: &Path) -> Result<(), NfsError> {
    let export = source.export();
    let found = tokio::net::lookup_host((source.server.as_str(), 2049)).await;
    let missing = |cause: io::Error| NfsError::Server {
        export: export.clone(),
        server: source.server.clone(),
        source: cause,
    };
    let address = found.map_err(missing)?.next().map(|address| address.ip());
    let address = address.ok_or_else(|| missing(io::ErrorKind::NotFound.into()))?;
    let (source, target) = (source.clone(), target.to_owned());
    let call = tokio::task::spawn_blocking(move || mount_now(&source, address, &target));
    let failed = |message: String| NfsError::Failed { export: export.clone(), message };
    match call.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(errno)) => Err(failed(format!("{errno}; install nfs-common for versions before 4"))),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Tries the minor versions that the server may have, the newest first.
fn mount_now(source: &NfsSource, address: IpAddr, target: &Path) -> Result<(), Errno> {
    let (flags, data) = plan_mount(source, address);
    let is_chosen = data.contains("vers=");
    let mut last = Errno::EPROTONOSUPPORT;
    for version in ["4.2", "4.1", "4.0"] {
        let data = if is_chosen { data.clone() } else { format!("{data},vers={version}") };
        match mount(Some(source.export().as_str()), target, Some("nfs4"), flags, Some(data.as_str())) {
            Ok(()) => return Ok(()),
            Err(error @ (Errno::EPROTONOSUPPORT | Errno::EINVAL)) if !is_chosen => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Flags of the mount, and what the file system itself reads.
fn plan_mount(source: &NfsSource, address: IpAddr) -> (MsFlags, String) {
    let mut data = format!("addr={address}");
    let options = source.options();
    let planned = Planned::of(options.iter().flat_map(|option| option.split(',')).map(str::trim));
    for option in planned.data {
        let option = option
            .strip_prefix("nfsvers=")
            .map(|version| format!("vers={version}"))
            .unwrap_or_else(|| option.clone());
        data.push(',');
        data.push_str(&option);
    }
    (planned.flags, data)
}

/// Unmounts what is mounted below a directory without asking a server, which may not answer.
pub fn unmount_below(dir: &Path) -> Result<(), FileError> {
    for mount in mounts_under(dir) {
        umount2(&mount, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
            .map_err(|error| file("unmount", &mount)(error.into()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn source(server: &str, read_only: bool, options: &[&str]) -> NfsSource {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        NfsSource { server: server.into(), path: "/export".into(), read_only, options }
    }

    #[test]
    fn options_go_to_the_kernel_or_to_the_file_system() {
        let address = "10.0.0.1".parse().unwrap();
        let (flags, data) =
            plan_mount(&source("s", true, &["hard,nfsvers=4.1", "noatime", "timeo=600"]), address);
        assert_eq!(flags, MsFlags::MS_RDONLY | MsFlags::MS_NOATIME);
        assert_eq!(data, "addr=10.0.0.1,hard,vers=4.1,timeo=600");
        assert_eq!(source("s", false, &[]).export(), "s:/export");
        assert_eq!(source("fd00::1", false, &[]).export(), "[fd00::1]:/export");
    }

    #[tokio::test]
    async fn a_server_that_nobody_knows_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let error = by_kernel(&source("no.such.invalid", false, &[]), temp.path()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "mounting no.such.invalid:/export: server \"no.such.invalid\" not found"
        );
    }
}
