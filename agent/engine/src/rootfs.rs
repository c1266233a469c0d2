//! Root filesystems: overlay mounts of image layers and a writable layer.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

use super::idmap;
use super::paths::{Paths, private_dir, remove_tree};
use super::sandbox_files::unmount;

/// Directories of one container's filesystem.
#[derive(Debug, Clone)]
pub struct Rootfs {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Holds `upper`, `work` and `volumes`.
    pub layer: PathBuf,
}

impl Rootfs {
    /// Of a container.
    pub(crate) fn of(paths: &Paths, id: &str) -> Self {
        Self { mount: paths.rootfs(id), layer: paths.layer(id) }
    }

    /// Writable layer.
    pub fn upper(&self) -> PathBuf {
        self.layer.join("upper")
    }

    /// Scratch space of overlayfs.
    pub fn work(&self) -> PathBuf {
        self.layer.join("work")
    }

    /// Creates the writable layer.
    pub fn create(&self) -> io::Result<()> {
        private_dir(&self.layer)?;
        private_dir(&self.work())?;
        private_dir(&self.mount)?;
        // The container's root directory: all its users must be able to traverse it.
        fs::DirBuilder::new().recursive(true).mode(0o755).create(self.upper())?;
        fs::set_permissions(self.upper(), fs::Permissions::from_mode(0o755))
    }

    /// Mounts with `options` of overlayfs; every file in it has the SELinux label `label`, if one is given.
    pub fn mount(&self, options: &str, label: Option<&str>) -> io::Result<()> {
        let context = label.map(|label| format!(",context=\"{label}\"")).unwrap_or_default();
        let options = format!("{options},index=off{context}");
        mount(Some("overlay"), &self.mount, Some("overlay"), MsFlags::empty(), Some(&*options))?;
        Ok(())
    }

    /// Mounts layers, topmost first, as `userns` sees them; `owner` is its root on the host.
    ///
    /// The layers stay as they are on disk, one copy for all pods: each gets an idmapped mount in `scratch`, which the
    /// overlay keeps for itself once it is made.
    pub fn mount_mapped(
        &self,
        layers: &[PathBuf],
        userns: &fs::File,
        owner: (u32, u32),
        scratch: &Path,
        label: Option<&str>,
    ) -> io::Result<()> {
        chown(self.upper(), Some(owner.0), Some(owner.1))?;
        private_dir(scratch)?;
        // Through a descriptor, so that many layers fit in one mount option.
        let dir = fs::File::open(scratch)?;
        let base = format!("/proc/self/fd/{}", dir.as_raw_fd());
        let mut lower = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            idmap::mount(layer, &scratch.join(number.to_string()), userns)?;
            lower.push(format!("{base}/{number}"));
        }
        let (upper, work) = (self.upper(), self.work());
        let dirs = format!("upperdir={},workdir={}", upper.display(), work.display());
        self.mount(&format!("lowerdir={},{dirs}", lower.join(":")), label)?;
        unmount_below(scratch)
    }

    /// Creates a directory for an image volume and copies the image's content; an empty one is owned by `owner`.
    pub fn volume(&self, number: usize, destination: &str, owner: (u32, u32)) -> io::Result<PathBuf> {
        let dir = self.layer.join("volumes").join(number.to_string());
        private_dir(&dir)?;
        let Some(source) = inside(&self.mount, destination) else {
            chown(&dir, Some(owner.0), Some(owner.1))?;
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
            return Ok(dir);
        };
        copy_tree(&source, &dir)?;
        Ok(dir)
    }

    /// Unmounts and deletes everything. Idempotent.
    pub fn remove(&self) -> io::Result<()> {
        unmount(&self.mount)?;
        remove_tree(&self.layer)
    }
}

/// Mounts layers, topmost first, read-only.
pub fn mount_layers(layers: &[PathBuf], at: &Path) -> io::Result<()> {
    const NONE: Option<&str> = None;
    private_dir(at)?;
    match layers {
        [] => return Ok(()),
        [only] => {
            mount(Some(only), at, NONE, MsFlags::MS_BIND, NONE)?;
            let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
            mount(NONE, at, NONE, flags, NONE)?;
        }
        _ => {
            let lower: Vec<String> = layers.iter().map(|l| l.display().to_string()).collect();
            let options = format!("lowerdir={}", lower.join(":"));
            mount(Some("overlay"), at, Some("overlay"), MsFlags::MS_RDONLY, Some(&*options))?;
        }
    }
    Ok(())
}

/// Unmounts every directory in `dir`, if it exists.
pub fn unmount_below(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        unmount(&entry?.path())?;
    }
    Ok(())
}

/// Resolves a path in the image; `None` if a link leads out of it.
pub fn inside(rootfs: &Path, destination: &str) -> Option<PathBuf> {
    let path = fs::canonicalize(rootfs.join(destination.trim_start_matches('/'))).ok()?;
    (path.starts_with(rootfs) && path.is_dir()).then_some(path)
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(from)?;
    if meta.is_dir() {
        private_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if meta.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    } else if meta.is_file() {
        fs::copy(from, to)?;
    } else {
        return Ok(());
    }
    chown(to, Some(meta.uid()), Some(meta.gid()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(meta.mode() & 0o7777))
}
