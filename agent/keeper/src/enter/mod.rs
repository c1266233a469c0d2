//! Entering a container: one more process in its namespaces, cgroup and confinement, without the OCI runtime.
//!
//! A probe asks for this every few seconds, and a runtime takes thirty milliseconds of processor time for what the kernel
//! does in one. The keeper runs it as it runs a runtime's `exec`: it starts a process as a [`Request`] says, writes its pid
//! into a file and ends, or writes what went wrong as one line of JSON and fails.
//!
//! What a runtime guards against is guarded here, too. The program is a sealed copy in memory (see [`sealed`]) and cannot be
//! traced, so that nothing in the container can write to it or read it through `/proc`. Every descriptor but the three
//! streams is closed. Nothing of the container is touched before all of its namespaces are joined, and from there on only
//! what its own process could touch. What is beyond this (user namespaces, terminals) is the runtime's: see
//! `engine/entry.rs`.

// What is asked.
mod request;
// Namespaces and cgroup.
mod join;
// Rights, identity and exec.
mod confine;
// Labels of AppArmor and SELinux.
mod label;
// The program in the container's own file system.
mod program;
// A copy of the keeper that nobody can change.
pub mod sealed;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

pub use self::request::{Capabilities, Request};

/// What went wrong, worded as users know it from runtimes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    fn at<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> Self {
        move |e| Self(format!("{what}: {e}"))
    }
}

/// Starts the process that the file `request` describes. On failure no process is left.
///
/// Only for a process with one thread: the child runs Rust between clone and exec.
pub fn run(request: &Path, pid_file: &Path, log: &Path) -> Result<(), Error> {
    // Opened while these paths mean what they mean outside.
    let mut log = File::create(log).map_err(Error::at("log"))?;
    let started = start(request, pid_file);
    if let Err(error) = &started {
        let line = serde_json::json!({ "level": "error", "msg": format!("exec failed: {error}") });
        let _ = writeln!(log, "{line}");
    }
    started
}

fn start(request: &Path, pid_file: &Path) -> Result<(), Error> {
    let text = fs::read(request).map_err(Error::at("request"))?;
    let request: Request = serde_json::from_slice(&text).map_err(Error::at("request"))?;
    let filter = match &request.filter {
        Some(path) => Some(fs::read(path).map_err(Error::at("seccomp filter"))?),
        None => None,
    };
    let mut pid_file = File::create(pid_file).map_err(Error::at("pid file"))?;
    let cgroup = match &request.cgroup {
        Some(path) => {
            let gone = |_| Error("container is not running".into());
            Some(File::open(path).map_err(gone)?.into())
        }
        None => None,
    };
    let labels = label::Labels::open(&request).map_err(Error::at("/proc"))?;
    let (mut failed, failure) = io::pipe().map_err(Error::at("pipe"))?;
    let target = join::namespaces(&request)?;
    let child = join::clone_into(cgroup.as_ref()).map_err(Error::at("clone"))?;
    let Some(pid) = child else {
        drop(failed);
        let error = confine::program(&request, &target, &labels, filter.as_deref(), &failure);
        let _ = (&failure).write_all(error.to_string().as_bytes());
        // SAFETY: ends the child without running anything of the parent's.
        #[allow(unsafe_code)]
        unsafe {
            libc::_exit(127)
        }
    };
    drop(failure);
    // The pipe ends when the child has become its program.
    let mut error = String::new();
    failed.read_to_string(&mut error).map_err(Error::at("pipe"))?;
    if !error.is_empty() {
        let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None);
        return Err(Error(format!("unable to start container process: {error}")));
    }
    // From here on it is the keeper's child: this process ends, and the keeper is who takes orphans.
    write!(pid_file, "{pid}").map_err(Error::at("pid file"))
}
