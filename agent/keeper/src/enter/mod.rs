//! Starts a process in a container's namespaces, cgroup and confinement, without the OCI runtime.
//!
//! Exec probes do this every few seconds, and an OCI runtime needs thirty milliseconds of CPU time for what the kernel
//! does in one. The keeper runs it as it runs a runtime's `exec`: it starts a process as a [`Request`] says, writes its
//! pid into a file and exits, or writes the error as one line of JSON and fails.
//!
//! The protections of OCI runtimes apply here, too. The program is a sealed copy in memory (see [`sealed`]) and cannot be
//! traced, so that nothing in the container can write to it or read it through `/proc`. Every descriptor but the three
//! streams is closed. Nothing of the container is touched before all of its namespaces are joined, and from there on only
//! what its own process could touch. The engine leaves user namespaces and terminals to the OCI runtime: see
//! `engine/src/exec/enter_request.rs`. Our own one, `agent/runtime`, starts them by [`launch`], too.

// Errors.
mod error;
// The request file.
mod request;
// Namespaces and cgroup.
mod join;
// Capabilities, seccomp, user, exec.
pub mod confine;
// Labels of AppArmor and SELinux.
pub mod label;
// Looks the program up in the container's file system.
pub mod program;
// Seccomp filters.
pub mod seccomp;
// Steps that differ between callers: terminal and seccomp filter.
mod steps;
// A sealed copy of the keeper's program.
pub mod sealed;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

pub use self::error::Error;
pub use self::request::{Capabilities, Request};
pub use self::steps::{StepError, Steps, StoredFilter};
use crate::causes::chain;

/// Starts the process that the file `request` describes. On failure no process is left.
///
/// Only for a process with one thread: the child runs Rust between clone and exec.
pub fn run(request: &Path, pid_file: &Path, log: &Path) -> Result<(), Error> {
    // Opened before the mount namespace changes, while these are paths of the host.
    let mut log = File::create(log).map_err(Error::io("log"))?;
    let started = start(request, pid_file);
    if let Err(error) = &started {
        let line = serde_json::json!({ "level": "error", "msg": format!("exec failed: {}", chain(error)) });
        let _ = writeln!(log, "{line}");
    }
    started
}

fn start(request: &Path, pid_file: &Path) -> Result<(), Error> {
    let text = fs::read(request).map_err(Error::io("request"))?;
    let request: Request = serde_json::from_slice(&text).map_err(Error::Request)?;
    let filter = match &request.filter {
        Some(path) => Some(fs::read(path).map_err(Error::io("seccomp filter"))?),
        None => None,
    };
    let mut pid_file = File::create(pid_file).map_err(Error::io("pid file"))?;
    let pid = launch(&request, &StoredFilter(filter))?;
    // The process becomes the keeper's child when this process exits: the keeper is the subreaper.
    write!(pid_file, "{pid}").map_err(Error::io("pid file"))
}

/// Starts a process as a request says; returns its pid. On failure no process is left. This process is in the container's
/// namespaces afterwards, and has to exit.
///
/// Only for a process with one thread: the child runs Rust between clone and exec.
pub fn launch(request: &Request, steps: &dyn Steps) -> Result<i32, Error> {
    let cgroup = match &request.cgroup {
        Some(path) => Some(File::open(path).map_err(|_| Error::NotRunning)?.into()),
        None => None,
    };
    let labels = label::Labels::open(request).map_err(Error::io("/proc"))?;
    let (mut failed, failure) = io::pipe().map_err(Error::io("pipe"))?;
    let target = join::namespaces(request)?;
    let child = join::clone_into(cgroup.as_ref()).map_err(Error::io("clone"))?;
    let Some(pid) = child else {
        drop(failed);
        let error = confine::program(request, &target, &labels, steps, &failure);
        let _ = (&failure).write_all(chain(&error).as_bytes());
        // SAFETY: ends the child without running anything of the parent's.
        #[allow(unsafe_code)]
        unsafe {
            libc::_exit(127)
        }
    };
    drop(failure);
    // The pipe is closed by a successful exec.
    let mut message = String::new();
    failed.read_to_string(&mut message).map_err(Error::io("pipe"))?;
    if !message.is_empty() {
        let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None);
        return Err(Error::Child { message });
    }
    Ok(pid)
}
