//! The last changes to the mounts of a container, in the container, as its root. Nothing of the image runs yet, but containers
//! that share volumes with it may run.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use libcontainer::syscall::SyscallError;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{ASIDE, DEV, Rootfs, tree};

/// Why the file system could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum RootfsError {
    /// A file or directory.
    #[error("{step} {:?}", path.display())]
    File {
        /// The operation that failed.
        step: &'static str,
        /// In the container.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A mount.
    #[error("{step} {:?}", path.display())]
    Mount {
        /// The operation that failed.
        step: &'static str,
        /// In the container.
        path: PathBuf,
        /// The cause.
        #[source]
        source: SyscallError,
    },
    /// Something else is at `/dev/null`, and would be shown instead of what is hidden.
    #[error("/dev/null is not the null device")]
    NullDevice,
}

fn file(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RootfsError {
    let path = path.to_owned();
    move |source| RootfsError::File { step, path, source }
}

fn kernel(step: &'static str, path: &Path) -> impl FnOnce(Errno) -> RootfsError {
    let wrap = file(step, path);
    move |errno| wrap(errno.into())
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(SyscallError) -> RootfsError {
    let path = path.to_owned();
    move |source| RootfsError::Mount { step, path, source }
}

impl Rootfs {
    /// Completes the mounts; everything can still be written.
    pub fn complete(&self) -> Result<(), RootfsError> {
        if self.bound_dev {
            move_dev()?;
        } else {
            link_core()?;
        }
        self.propagation.set().map_err(kernel("mount propagation", Path::new("/")))?;
        fs::create_dir_all(&self.cwd).map_err(file("mkdir", &self.cwd))
    }

    /// Makes read-only and hides what has to be.
    pub fn restrict(&self) -> Result<(), RootfsError> {
        for path in &self.read_only {
            let mount = tree::place(path).map_err(file("open", path))?;
            tree::set_read_only(mount.as_fd()).map_err(failed("read-only mount", path))?;
        }
        for path in &self.read_only_paths {
            let Some(place) = existing(path)? else { continue };
            let cover = tree::clone(&place, true).map_err(failed("read-only path", path))?;
            tree::set_read_only(cover.as_fd()).map_err(failed("read-only path", path))?;
            tree::attach(&cover, &place).map_err(failed("read-only path", path))?;
        }
        if self.masked_paths.is_empty() {
            return Ok(());
        }
        let null = null_device()?;
        for path in &self.masked_paths {
            let Some(place) = existing(path)? else { continue };
            let found = place.metadata().map_err(file("stat", path))?;
            let cover = match found.is_dir() {
                true => tree::empty_directory(self.label.as_deref()),
                false => tree::clone(&null, false),
            };
            let cover = cover.map_err(failed("masked path", path))?;
            tree::attach(&cover, &place).map_err(failed("masked path", path))?;
        }
        Ok(())
    }
}

/// A place, unless nothing is there.
fn existing(path: &Path) -> Result<Option<File>, RootfsError> {
    match tree::place(path) {
        Ok(place) => Ok(Some(place)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(source) => Err(RootfsError::File { step: "open", path: path.to_owned(), source }),
    }
}

/// The null device of the container, which is checked: an image could have something else there.
fn null_device() -> Result<File, RootfsError> {
    let path = Path::new("/dev/null");
    let null = tree::place(path).map_err(file("open", path))?;
    let found = null.metadata().map_err(file("stat", path))?;
    match found.file_type().is_char_device() && found.rdev() == libc::makedev(1, 3) {
        true => Ok(null),
        false => Err(RootfsError::NullDevice),
    }
}

/// Moves the mounts of `/dev` to where they belong.
fn move_dev() -> Result<(), RootfsError> {
    let (aside, none) = (Path::new(ASIDE), None::<&str>);
    umount2(DEV, MntFlags::MNT_DETACH).map_err(kernel("umount", Path::new(DEV)))?;
    // Nothing can be moved out of a shared mount. The root is no peer of a mount of the host.
    let shared = is_root_shared()?;
    let set = |flags| mount(none, "/", none, flags, none).map_err(kernel("propagation of", Path::new("/")));
    if shared {
        set(MsFlags::MS_PRIVATE)?;
    }
    mount(Some(aside), DEV, none, MsFlags::MS_MOVE, none).map_err(kernel("move", aside))?;
    if shared {
        set(MsFlags::MS_SHARED)?;
    }
    fs::remove_dir(aside).map_err(file("remove", aside))
}

fn is_root_shared() -> Result<bool, RootfsError> {
    let path = Path::new("/proc/self/mountinfo");
    let text = match fs::read_to_string(path) {
        // Without proc it cannot be known; moving fails if it is.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        text => text.map_err(file("read", path))?,
    };
    let of_root = |line: &&str| line.split(' ').nth(4) == Some("/");
    let optional = |line: &str| line.split(' ').skip(6).take_while(|field| *field != "-").any(is_shared);
    Ok(text.lines().rfind(of_root).is_some_and(optional))
}

fn is_shared(field: &str) -> bool {
    field.starts_with("shared:")
}

/// libcontainer names the link to the kernel's memory as no other runtime does.
fn link_core() -> Result<(), RootfsError> {
    let (theirs, link, memory) = (Path::new("/dev/kcore"), Path::new("/dev/core"), Path::new("/proc/kcore"));
    if fs::read_link(theirs).ok().as_deref() != Some(memory) {
        return Ok(());
    }
    fs::remove_file(theirs).map_err(file("remove", theirs))?;
    match symlink(memory, link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(file("symlink", link)),
    }
}
