//! `local` volumes that are mounted for each pod that uses them: block devices, which are formatted if they are empty, and
//! directories with mount options.

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{FsFlags, statvfs};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::mount_options::Planned;
use super::teardown::is_mount;
use super::{FileError, io};
use coracle_host_dir::HostDir;

/// Making a file system on a large disk takes a while.
const LIMIT: Duration = Duration::from_secs(600);
const DEFAULT: &str = "ext4";
/// Longest part of a program's words that is shown.
const WORDS: usize = 600;

/// A disk of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalDisk {
    /// The block device.
    pub device: PathBuf,
    /// File system, `""` for the default.
    pub fs_type: String,
    /// Nobody writes to it.
    pub read_only: bool,
    /// Mount options of the PersistentVolume.
    pub options: Vec<String>,
}

/// Why a disk is not mounted; tried again.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// There is nothing to mount it on.
    #[error(transparent)]
    Directory(#[from] FileError),
    /// A program that looks at disks or formats them is missing or failed.
    #[error("{program} {}: {message}", .device.display())]
    Program {
        /// The program.
        program: String,
        /// The disk.
        device: PathBuf,
        /// What it said.
        message: String,
    },
    /// It has another file system, or none that is known, and its data is kept.
    #[error("{} has a file system of type {found:?}, but the volume asks for {wanted:?}", .device.display())]
    OtherType {
        /// The disk.
        device: PathBuf,
        /// What is on it.
        found: String,
        /// What the volume asks for.
        wanted: String,
    },
    /// It is partitioned: formatting would lose the data.
    #[error("{} has a partition table of type {found:?} and is not formatted", .device.display())]
    Partitioned {
        /// The disk.
        device: PathBuf,
        /// Type of the table.
        found: String,
    },
    /// An empty disk cannot be read only.
    #[error("{} has no file system, and the volume is read-only", .device.display())]
    Empty {
        /// The disk.
        device: PathBuf,
    },
    /// The kernel refused.
    #[error("mounting {} as {fs_type}: {source}", .device.display())]
    Mount {
        /// The disk.
        device: PathBuf,
        /// File system.
        fs_type: String,
        /// The cause.
        source: Errno,
    },
}

/// What is on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    FileSystem(String),
    Partitions(String),
}

/// Reads the answer of `blkid -p -o export`.
fn parse(answer: &str) -> Content {
    let value = |key: &str| {
        answer.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned)
    };
    match (value("TYPE"), value("PTTYPE")) {
        (Some(kind), _) => Content::FileSystem(kind),
        (None, Some(kind)) => Content::Partitions(kind),
        (None, None) => Content::Nothing,
    }
}

/// Mounts a disk; one that is mounted stays. Only a disk that is empty is formatted.
pub async fn ensure(disk: &LocalDisk, target: &Path) -> Result<(), DiskError> {
    if is_mount(target) {
        return Ok(());
    }
    HostDir::create(target).map_err(io("mkdir", target))?;
    let device = disk.device.clone();
    let wanted = if disk.fs_type.is_empty() { DEFAULT } else { &disk.fs_type };
    let fs_type = match content(&device).await? {
        Content::FileSystem(found) if disk.fs_type.is_empty() || found == wanted => found,
        Content::FileSystem(found) => {
            return Err(DiskError::OtherType { device, found, wanted: wanted.to_owned() });
        }
        Content::Partitions(found) => return Err(DiskError::Partitioned { device, found }),
        Content::Nothing if disk.read_only => return Err(DiskError::Empty { device }),
        Content::Nothing => {
            let force: &[&str] = if wanted.starts_with("ext") { &["-F", "-m0"] } else { &[] };
            run(&format!("mkfs.{wanted}"), force, &device).await.and_then(|(code, text)| match code {
                Some(0) => Ok(()),
                _ => Err(program(&format!("mkfs.{wanted}"), &device, text)),
            })?;
            tracing::info!(device = %device.display(), fs_type = wanted, "disk formatted");
            wanted.to_owned()
        }
    };
    let planned = Planned::of(disk.options.iter().map(String::as_str));
    let flags = if disk.read_only { planned.flags | MsFlags::MS_RDONLY } else { planned.flags };
    let mounted = mount(Some(&device), target, Some(fs_type.as_str()), flags, planned.text().as_deref());
    mounted.map_err(|source| DiskError::Mount { device, fs_type, source })
}

/// Mounts a directory with options, and applies the options to one that is mounted already: an agent that was killed may have
/// mounted it without them. A directory has only options that every file system has.
pub fn ensure_directory(directory: &Path, options: &[String], target: &Path) -> Result<(), DiskError> {
    let failed =
        |source| DiskError::Mount { device: directory.to_owned(), fs_type: "bind".to_owned(), source };
    if !is_mount(target) {
        HostDir::create(target).map_err(io("mkdir", target))?;
        mount(Some(directory), target, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(failed)?;
    }
    // Options of a bind mount count only when it is changed. Without them it must not stay.
    let planned = Planned::of(options.iter().map(String::as_str)).flags;
    let changed = restrictions(target).and_then(|kept| {
        let flags = planned | kept | MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
        mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
    });
    changed.map_err(|source| {
        let _ = umount2(target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
        failed(source)
    })
}

/// Restrictions of a mount, which a change of its flags would lift.
fn restrictions(mounted: &Path) -> Result<MsFlags, Errno> {
    let found = statvfs(mounted)?.flags();
    let known = [
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    Ok(known.into_iter().filter(|(is, _)| found.contains(*is)).map(|(_, flag)| flag).collect())
}

async fn content(device: &Path) -> Result<Content, DiskError> {
    let args = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"];
    match run("blkid", &args, device).await? {
        (Some(0), text) => Ok(parse(&text)),
        // Nothing was recognised.
        (Some(2), text) if text.is_empty() => Ok(Content::Nothing),
        (_, text) => Err(program("blkid", device, text)),
    }
}

fn program(program: &str, device: &Path, message: String) -> DiskError {
    DiskError::Program { program: program.to_owned(), device: device.to_owned(), message }
}

/// Exit code and words of a program that is given the disk as its last argument.
async fn run(name: &str, args: &[&str], device: &Path) -> Result<(Option<i32>, String), DiskError> {
    let mut command = tokio::process::Command::new(name);
    command.args(args).arg(device).stdin(Stdio::null()).kill_on_drop(true);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    let output = match tokio::time::timeout(LIMIT, command.output()).await {
        Ok(output) => output.map_err(|error| program(name, device, error.to_string()))?,
        Err(_) => return Err(program(name, device, format!("not done in {} seconds", LIMIT.as_secs()))),
    };
    let shown = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
    let text = String::from_utf8_lossy(shown).trim().chars().take(WORDS).collect();
    Ok((output.status.code(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_a_disk() {
        for (answer, want) in [
            ("DEVNAME=/dev/sda\nTYPE=xfs\n", Content::FileSystem("xfs".into())),
            ("DEVNAME=/dev/sda\nPTTYPE=gpt\n", Content::Partitions("gpt".into())),
            ("DEVNAME=/dev/sda\nPTTYPE=dos\nTYPE=vfat\n", Content::FileSystem("vfat".into())),
            ("", Content::Nothing),
        ] {
            assert_eq!(parse(answer), want, "{answer}");
        }
    }
}
