//! Into the namespaces and the cgroup of a container.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};

use super::{Error, Request};
use crate::keeper::{pidfd, sandbox};

/// By their names in `/proc/<pid>/ns`.
const KINDS: [(&str, CloneFlags); 6] = [
    ("mnt", CloneFlags::CLONE_NEWNS),
    ("pid", CloneFlags::CLONE_NEWPID),
    ("net", CloneFlags::CLONE_NEWNET),
    ("ipc", CloneFlags::CLONE_NEWIPC),
    ("uts", CloneFlags::CLONE_NEWUTS),
    ("cgroup", CloneFlags::CLONE_NEWCGROUP),
];

/// Joins every namespace in which the container's first process is and this one is not, all or none.
pub fn namespaces(request: &Request) -> Result<(), Error> {
    let gone = || Error("container is not running".into());
    let target = pidfd::open(request.pid).map_err(|_| gone())?;
    let kinds = differing(request.pid)?;
    // Everything above was read of this process, if it was there before and is there still.
    let mut ended = [PollFd::new(target.as_fd(), PollFlags::POLLIN)];
    let ended = poll(&mut ended, PollTimeout::ZERO).map_err(Error::at("poll"))? > 0;
    if ended || pidfd::start_time(request.pid) != Some(request.start_time) {
        return Err(gone());
    }
    if let Some(adjust) = request.oom_score_adj {
        // Lowering it needs a privilege that the node may not have.
        let _ = fs::write("/proc/self/oom_score_adj", adjust.to_string());
    }
    // Nothing in the container may read or trace this process while it is on its way.
    nix::sys::prctl::set_dumpable(false).map_err(Error::at("prctl"))?;
    setns(&target, kinds).map_err(Error::at("joining the container's namespaces"))
}

fn differing(pid: i32) -> Result<CloneFlags, Error> {
    let identity = |whose: &str, kind: &str| {
        let path = format!("/proc/{whose}/ns/{kind}");
        fs::read_link(&path).map_err(Error::at(path))
    };
    let whose = pid.to_string();
    if identity(&whose, "user")? != identity("self", "user")? {
        return Err(Error("the container has a user namespace".into()));
    }
    let mut kinds = CloneFlags::empty();
    for (name, kind) in KINDS {
        kinds.set(kind, identity(&whose, name)? != identity("self", name)?);
    }
    Ok(kinds)
}

/// A child in this cgroup and in the joined namespaces; `None` in the child.
pub fn clone_into(cgroup: Option<&OwnedFd>) -> io::Result<Option<i32>> {
    let child = sandbox::clone3(CloneFlags::empty(), cgroup.map(OwnedFd::as_fd))?;
    Ok(child.map(|(pid, _)| pid))
}
