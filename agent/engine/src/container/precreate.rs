//! Creates the first container of a sandbox in parallel with the sandbox's network.
//!
//! `runc create` takes most of a pod's start time and needs the sandbox's namespaces, but not its addresses. It leaves a
//! process that waits at a FIFO and runs nothing of the image before the FIFO is read. Starting the container reads the
//! FIFO instead of running `runc start`. Until then the container counts as being created and is removed after a restart
//! of the engine.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coracle_proto::cri;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::start::LAUNCH_TIMEOUT;
use crate::image::ImageRecord;
use crate::keeper::Started;
use crate::record::{ContainerPhase, SandboxRecord};
use crate::runtime::{FirstContainer, Result, Runtime, RuntimeError};
use crate::{Container, Engine, Sandbox};

/// A process of the OCI runtime that waits at its FIFO to exec the container's program.
#[derive(Debug)]
pub(crate) struct PrecreatedProcess {
    /// Generation of the keeper connection: a new keeper does not know the process.
    generation: u64,
    started: Started,
}

/// Whether the OCI runtime's containers wait at a FIFO as runc's do. crun uses the FIFO in the other direction.
pub(crate) async fn waits_at_fifo(runtime: &Path) -> bool {
    let version = tokio::process::Command::new(runtime).arg("--version").output().await;
    version.is_ok_and(|output| output.status.success() && output.stdout.starts_with(b"runc version"))
}

impl Engine {
    /// Creates the first container. `None` if there is no configuration or on failure: it is then created by
    /// `create_container`, which reports the error.
    pub(crate) async fn precreate_container(
        &self,
        sandbox: &Sandbox,
        offer: Option<FirstContainer>,
    ) -> Option<Arc<Container>> {
        let config = offer.filter(|_| self.can_precreate())?.await.ok()?;
        self.prepare_migration(sandbox);
        let record = sandbox.record.lock().clone();
        match self.create_and_prelaunch(record, config).await {
            Ok(container) => Some(container),
            Err(error) => {
                tracing::debug!(sandbox = sandbox.id, %error, "first container not precreated");
                None
            }
        }
    }

    async fn create_and_prelaunch(
        &self,
        sandbox: SandboxRecord,
        config: cri::ContainerConfig,
    ) -> Result<Arc<Container>> {
        let image = self.inner.images.get(&config.image.clone().unwrap_or_default().image)?;
        let container = self.reserve_container(&sandbox, config, sandbox.config.clone(), &image)?;
        let _verb = container.verb.lock().await;
        if let Err(error) = self.prelaunch(&container, sandbox, image).await {
            if let Err(cleanup) = self.discard_container(&container).await {
                tracing::warn!(container = container.id, error = %cleanup, "failed container not cleaned up, removing its sandbox will retry");
            }
            return Err(error);
        }
        Ok(container.clone())
    }

    async fn prelaunch(
        &self,
        container: &Arc<Container>,
        sandbox: SandboxRecord,
        image: ImageRecord,
    ) -> Result<()> {
        let building = container.clone();
        self.blocking(move |engine| {
            engine.build_container(&building, &sandbox, &image.config, ContainerPhase::Creating)
        })
        .await?;
        let record = container.record.lock().clone();
        self.ensure_parent(&record)?;
        let generation = self.inner.keeper.generation();
        let spec = self.runtime_spec(&record, &["create"]);
        let started = self.begin(&container.id, spec).await?;
        *container.waiting.lock() = Some(PrecreatedProcess { generation, started: started? });
        Ok(())
    }

    /// Starts a precreated container; it runs when this returns.
    pub(super) async fn start_precreated(
        &self,
        container: &Arc<Container>,
        waiting: PrecreatedProcess,
    ) -> Result<()> {
        let PrecreatedProcess { generation, started } = waiting;
        let (true, Some(pidfd)) = (self.inner.keeper.generation() == generation, started.held.pidfd.clone())
        else {
            // The new keeper would not report its exit: launches it again.
            self.release_processes(container).await?;
            return self.launch(container).await;
        };
        let fifo = self.inner.paths.runtime_state().join(&container.id).join("exec.fifo");
        let read = self.blocking(move |_| {
            read_fifo(&fifo, &pidfd)
                .map_err(|error| RuntimeError::Internal(format!("OCI runtime start failed: {error}")))
        });
        read.await?;
        self.record_started(container, started)?;
        if self.inner.keeper.generation() != generation {
            // A new keeper may have received its tasks before this one was running.
            self.hand_tasks_to_keeper().await;
        }
        Ok(())
    }
}

/// Reads the FIFO and deletes it: the OCI runtime takes a container without a FIFO for running.
fn read_fifo(fifo: &Path, pidfd: &OwnedFd) -> io::Result<()> {
    // Non-blocking: the process may have died.
    let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(fifo)?;
    let begun = Instant::now();
    loop {
        let mut fds =
            [PollFd::new(reader.as_fd(), PollFlags::POLLIN), PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(1000u16)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let dead = fds[1].revents().is_some_and(|events| !events.is_empty());
        let closed = fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP));
        match reader.read(&mut [0; 1]) {
            Ok(1) => return fs::remove_file(fifo),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if dead {
            return Err(io::Error::other("container process is already dead"));
        }
        if begun.elapsed() > LAUNCH_TIMEOUT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // The writer closed the FIFO without writing: it is dying.
        if closed {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_keeper::pidfd;

    fn fifo(dir: &Path) -> std::path::PathBuf {
        let path = dir.join("exec.fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        path
    }

    #[test]
    fn a_waiting_process_is_let_go_and_its_fifo_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        // As runc's: it waits at the opening, writes, and goes on.
        let script = format!("printf 0 > {}; exec sleep 100", path.display());
        let mut child = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let pidfd = pidfd::open(child.id() as i32).unwrap();
        let read = read_fifo(&path, &pidfd);
        child.kill().unwrap();
        child.wait().unwrap();
        read.unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn one_that_died_while_it_waited_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pidfd = pidfd::open(child.id() as i32).unwrap();
        assert!(read_fifo(&path, &pidfd).unwrap_err().to_string().contains("already dead"));
        child.wait().unwrap();
    }
}
