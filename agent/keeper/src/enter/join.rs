//! Joins the namespaces and the cgroup of a container.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};

use super::{Error, Request};
use crate::{pidfd, sandbox};

/// By their names in `/proc/<pid>/ns`. That of cgroups is the child's to join, see [`Target::cgroups`].
const KINDS: [(&str, CloneFlags); 5] = [
    ("mnt", CloneFlags::CLONE_NEWNS),
    ("pid", CloneFlags::CLONE_NEWPID),
    ("net", CloneFlags::CLONE_NEWNET),
    ("ipc", CloneFlags::CLONE_NEWIPC),
    ("uts", CloneFlags::CLONE_NEWUTS),
];

/// The container's first process.
pub struct Target {
    process: OwnedFd,
    /// Whether its user namespace was joined.
    user_namespace: bool,
    /// Whether it has a cgroup namespace of its own.
    own_cgroups: bool,
}

impl Target {
    /// Becomes root of the joined user namespace: until then the user is one that the container does not know.
    pub fn root(&self) -> nix::Result<()> {
        if self.user_namespace {
            nix::unistd::setresgid(0.into(), 0.into(), 0.into())?;
            nix::unistd::setresuid(0.into(), 0.into(), 0.into())?;
        }
        Ok(())
    }

    /// Joins the container's cgroup namespace. Call it only from within the container's cgroup: with `nsdelegate`, the kernel
    /// allows no migration into a cgroup from outside of the namespace.
    pub fn cgroups(&self) -> nix::Result<()> {
        if self.own_cgroups { setns(&self.process, CloneFlags::CLONE_NEWCGROUP) } else { Ok(()) }
    }
}

/// Joins every namespace but that of cgroups in which the container's first process is and this one is not, all or none.
pub fn namespaces(request: &Request) -> Result<Target, Error> {
    let target = pidfd::open(request.pid).map_err(|_| Error::NotRunning)?;
    let (kinds, own_cgroups) = differing(request).map_err(|_| Error::NotRunning)??;
    // The process is checked before and after: everything read above belongs to it.
    let mut ended = [PollFd::new(target.as_fd(), PollFlags::POLLIN)];
    let ended = poll(&mut ended, PollTimeout::ZERO).map_err(Error::kernel("poll"))? > 0;
    if ended || pidfd::start_time(request.pid) != Some(request.start_time) {
        return Err(Error::NotRunning);
    }
    if let Some(adjust) = request.oom_score_adj {
        // Lowering the score needs CAP_SYS_RESOURCE, which the node may not have.
        let _ = fs::write("/proc/self/oom_score_adj", adjust.to_string());
    }
    // Processes in the container must not read or trace this process before it is confined.
    nix::sys::prctl::set_dumpable(false).map_err(Error::kernel("prctl"))?;
    setns(&target, kinds).map_err(Error::kernel("joining the container's namespaces"))?;
    Ok(Target { process: target, user_namespace: kinds.contains(CloneFlags::CLONE_NEWUSER), own_cgroups })
}

/// Namespaces of the process that differ from ours, and whether its cgroup namespace does. The outer error means that the
/// process is gone.
fn differing(request: &Request) -> io::Result<Result<(CloneFlags, bool), Error>> {
    let identity = |whose: &str, kind: &str| fs::read_link(format!("/proc/{whose}/ns/{kind}"));
    let whose = request.pid.to_string();
    let other = |kind: &str| Ok::<_, io::Error>(identity(&whose, kind)? != identity("self", kind)?);
    let mut kinds = CloneFlags::empty();
    kinds.set(CloneFlags::CLONE_NEWUSER, other("user")?);
    if !kinds.is_empty() && !request.user_namespace {
        return Ok(Err(Error::UserNamespace));
    }
    for (name, kind) in KINDS {
        kinds.set(kind, other(name)?);
    }
    Ok(Ok((kinds, other("cgroup")?)))
}

/// A child in this cgroup and in the joined namespaces; `None` in the child.
pub fn clone_into(cgroup: Option<&OwnedFd>) -> io::Result<Option<i32>> {
    let child = sandbox::clone3(CloneFlags::empty(), cgroup.map(OwnedFd::as_fd))?;
    Ok(child.map(|(pid, _)| pid))
}
