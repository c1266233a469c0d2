//! Network namespaces.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, RawFd},
    path::Path,
};

use nix::sched::{CloneFlags, setns};

/// An open network namespace.
#[derive(Debug)]
pub struct Netns(File);

impl Netns {
    /// Opens the namespace pinned at `path`; a path that is not one (any more) is `NotFound`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        // After the namespace was unmounted, only a plain file is left.
        let is_namespace = link.to_string_lossy().starts_with("net:[")
            || nix::sys::statfs::fstatfs(&file).is_ok_and(|s| s.filesystem_type().0 == 0x6e73_6673);
        if is_namespace { Ok(Netns(file)) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// The namespace of this thread.
    pub fn current() -> io::Result<Self> {
        Ok(Netns(File::open("/proc/thread-self/ns/net")?))
    }

    /// For attributes that name a namespace.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Runs `work` with this thread inside the namespace. Sockets opened there stay there.
    ///
    /// If returning to the original namespace fails, the process is aborted: it would change the wrong namespace.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let home = Netns::current()?;
        setns(&self.0, CloneFlags::CLONE_NEWNET)?;
        let result = work();
        if setns(&home.0, CloneFlags::CLONE_NEWNET).is_err() {
            std::process::abort();
        }
        Ok(result)
    }
}
