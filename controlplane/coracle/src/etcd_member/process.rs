//! Starting and ending the process. The kernel kills it when the thread that has started it ends, and so when the server does,
//! however that ends. That thread does nothing else, and lives as long as the member.

use super::MemberError;
use super::log::{LastErrors, forward};
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::time::Duration;
use tokio::process::Child;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long etcd may take to end when it is asked to: it hands leadership over.
const GRACE: Duration = Duration::from_secs(5);
/// How long the end of its log may take.
const LOG_END: Duration = Duration::from_secs(1);

struct Request {
    command: tokio::process::Command,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// The thread that starts processes. Those that run are killed when this is dropped.
#[derive(Clone)]
pub(super) struct Spawner(mpsc::Sender<Request>);

impl Spawner {
    pub(super) fn new() -> Result<Self, MemberError> {
        let (requests, received) = mpsc::channel::<Request>();
        let runtime = tokio::runtime::Handle::current();
        let work = move || {
            let _entered = runtime.enter();
            for Request { mut command, reply } in received {
                // A child that nobody waits for is killed when it is dropped.
                let _ = reply.send(command.spawn());
            }
        };
        let thread = std::thread::Builder::new().name("etcd-spawner".into()).spawn(work);
        thread.map_err(|source| MemberError::Spawn { program: "a thread".into(), source })?;
        Ok(Self(requests))
    }
}

/// A process of etcd.
pub(super) struct Process {
    child: Child,
    log: JoinHandle<()>,
    errors: LastErrors,
}

impl Process {
    pub(super) async fn spawn(spawner: &Spawner, mut command: Command) -> Result<Self, MemberError> {
        // A signal from the terminal is for the server, which stops etcd when it is done.
        command.process_group(0);
        let server = Pid::this();
        let end_with_the_server = move || {
            set_pdeathsig(Signal::SIGKILL)?;
            // The server may have ended before.
            if getppid() == server { Ok(()) } else { Err(io::Error::from(Errno::ESRCH)) }
        };
        // SAFETY: between fork and exec it makes two system calls, and allocates nothing.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(end_with_the_server);
        }
        let program = PathBuf::from(command.get_program());
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true);
        let (reply, child) = oneshot::channel();
        spawner.0.send(Request { command, reply }).map_err(|_| MemberError::Spawner)?;
        let child = child.await.map_err(|_| MemberError::Spawner)?;
        let mut child = child.map_err(|source| MemberError::Spawn { program, source })?;
        let errors = LastErrors::default();
        let log = match child.stderr.take() {
            Some(stderr) => tokio::spawn(forward(stderr, errors.clone())),
            None => tokio::spawn(std::future::ready(())),
        };
        Ok(Self { child, log, errors })
    }

    /// The error of a process that has ended; `None` while it runs.
    pub(super) async fn ended(&mut self) -> Option<MemberError> {
        match self.child.try_wait() {
            Ok(None) => None,
            _ => Some(self.wait().await),
        }
    }

    /// Waits for its end, and returns how it ended.
    pub(super) async fn wait(&mut self) -> MemberError {
        match self.child.wait().await {
            Ok(status) => {
                let _ = tokio::time::timeout(LOG_END, &mut self.log).await;
                self.error(status)
            }
            Err(source) => MemberError::Spawn { program: "etcd".into(), source },
        }
    }

    fn error(&self, status: ExitStatus) -> MemberError {
        MemberError::Ended { status, said: self.errors.text() }
    }

    /// Asks it to end, and kills it if it does not.
    pub(super) async fn stop(mut self) {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        if tokio::time::timeout(GRACE, self.child.wait()).await.is_err() {
            tracing::warn!(limit = ?GRACE, "etcd did not end when it was asked to, and is killed");
            let _ = self.child.kill().await;
        }
        let _ = tokio::time::timeout(LOG_END, self.log).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Stdio;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    #[tokio::test]
    async fn a_process_tells_how_it_ended() {
        let spawner = Spawner::new().unwrap();
        let mut process = Process::spawn(&spawner, shell("echo broken >&2; exit 3")).await.unwrap();
        let error = process.wait().await.to_string();
        assert_eq!(error, "etcd has ended (exit status: 3): broken");
        let missing = Process::spawn(&spawner, Command::new("/nonexistent/etcd")).await.err().unwrap();
        assert_eq!(missing.to_string(), "start /nonexistent/etcd");
    }

    #[tokio::test]
    async fn it_is_asked_to_end_first() {
        let dir = tempfile::tempdir().unwrap();
        let (ready, asked) = (dir.path().join("ready"), dir.path().join("asked"));
        let script = format!(
            "trap 'touch {}; exit 0' TERM; touch {}; while :; do sleep 0.05; done",
            asked.display(),
            ready.display()
        );
        let spawner = Spawner::new().unwrap();
        let process = Process::spawn(&spawner, shell(&script)).await.unwrap();
        while !ready.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        process.stop().await;
        assert!(asked.exists());
    }

    #[tokio::test]
    async fn it_does_not_outlive_the_thread_that_started_it() {
        let spawner = Spawner::new().unwrap();
        let mut process = Process::spawn(&spawner, shell("exec sleep 600")).await.unwrap();
        drop(spawner);
        assert!(process.wait().await.to_string().contains("signal: 9"));
    }
}
