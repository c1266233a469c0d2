//! Starts commands in containers: directly through the keeper, or with the OCI runtime.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use oci_spec::runtime::Process;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::Execs;
use crate::error::internal;
use crate::keeper;
use crate::objects::Container;
use crate::runtime::{Result, RuntimeError};
use crate::stamp::new_id;
use coracle_keeper::enter::Request;
use coracle_keeper::exits::Exit;
use coracle_keeper::launch::take_terminal;
use coracle_keeper::wire::{Call, ExecSpec};

const EXEC_START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running command.
pub(super) struct Running {
    pub(super) pidfd: Option<Arc<OwnedFd>>,
    /// Receives its exit.
    exit: oneshot::Receiver<Exit>,
    id: String,
}

/// What `exec` needs of `config.json`.
#[derive(Deserialize)]
struct ProcessOf {
    process: Process,
}

/// A validated request.
pub(super) struct Command<'a> {
    pub(super) container: &'a Container,
    pub(super) args: Vec<String>,
    pub(super) tty: bool,
}

impl Execs {
    /// Starts a command with these descriptors; a terminal is received over the console socket instead.
    pub(super) async fn start(
        &self,
        command: Command<'_>,
        stdio: [OwnedFd; 3],
    ) -> Result<(Running, Option<OwnedFd>)> {
        if command.args.is_empty() {
            return Err(RuntimeError::InvalidArgument("exec command must not be empty".into()));
        }
        let id = format!("x{}", new_id());
        let entry = if command.tty { None } else { self.enter_request(command.container) };
        let own = entry.is_some();
        let (argv, console) = match entry {
            Some(entry) => (self.enter_command(&id, &entry, &command)?, None),
            None => self.runtime_exec(&id, &command)?,
        };
        let (pid_file, runtime_log) = (self.paths.transient(&id, "pid"), self.paths.transient(&id, "log"));
        self.keeper.settled().await?;
        let exit = self.waiters.add(&id, self.keeper.generation());
        let spec = ExecSpec { id: id.clone(), argv, own, pid_file, runtime_log };
        let fds = stdio.each_ref();
        let call = self.keeper.start(Call::Exec(spec), &fds);
        let started = match tokio::time::timeout(EXEC_START_TIMEOUT, call).await {
            Ok(started) => started,
            Err(_) => {
                self.keeper.abort(&id).await?;
                self.waiters.remove(&id);
                return Err(RuntimeError::DeadlineExceeded("the OCI runtime takes too long".into()));
            }
        };
        let terminal = match (&started, console) {
            (Ok(_), Some(console)) => {
                console.set_nonblocking(true).map_err(internal("terminal"))?;
                Some(take_terminal(&console).map_err(internal("terminal"))?)
            }
            _ => None,
        };
        self.paths.remove_transient(&id);
        match started {
            Ok(started) => Ok((Running { pidfd: started.held.pidfd, exit, id }, terminal)),
            Err(error) => {
                self.waiters.remove(&id);
                Err(match error {
                    keeper::Error::Failed(failure) => RuntimeError::Internal(format!(
                        "failed to exec in container: OCI runtime exec failed: {}",
                        failure.message
                    )),
                    other => other.into(),
                })
            }
        }
    }

    /// Writes the request file and returns the keeper command that executes it.
    fn enter_command(&self, id: &str, entry: &Request, command: &Command<'_>) -> Result<Vec<String>> {
        let path = |kind: &str| self.paths.transient(id, kind);
        let request = Request { args: command.args.clone(), ..entry.clone() };
        let text = serde_json::to_vec(&request).map_err(internal("exec"))?;
        fs::write(path("json"), text).map_err(internal("exec"))?;
        let text = |path: &Path| path.display().to_string();
        Ok(vec![
            text(&self.keeper_program),
            "--root".into(),
            text(&self.paths.runtime_state()),
            "exec".into(),
            text(&path("json")),
            text(&path("pid")),
            text(&path("log")),
        ])
    }

    /// The OCI runtime's `exec` command, and the console socket for a terminal.
    fn runtime_exec(&self, id: &str, command: &Command<'_>) -> Result<(Vec<String>, Option<UnixListener>)> {
        let path = |kind: &str| self.paths.transient(id, kind);
        let text = |kind: &str| path(kind).display().to_string();
        let process = serde_json::to_vec(&self.exec_process(command)?).map_err(internal("exec"))?;
        fs::write(path("json"), process).map_err(internal("exec"))?;
        let mut argv = self.oci.command(&self.oci.program_of(command.container), &path("log"));
        argv.extend(["exec", "--detach", "--process"].map(str::to_owned));
        argv.extend([text("json"), "--pid-file".into(), text("pid")]);
        let mut console = None;
        if command.tty {
            console = Some(UnixListener::bind(path("tty")).map_err(internal("console socket"))?);
            argv.extend(["--tty".to_owned(), "--console-socket".into(), text("tty")]);
        }
        argv.push(command.container.id.clone());
        Ok((argv, console))
    }

    /// The container's process configuration with another command.
    fn exec_process(&self, command: &Command<'_>) -> Result<Process> {
        let path = self.paths.bundle(&command.container.id).join("config.json");
        let text = fs::read(&path).map_err(internal("container configuration"))?;
        let ProcessOf { mut process } =
            serde_json::from_slice(&text).map_err(internal("container configuration"))?;
        process.set_args(Some(command.args.clone())).set_terminal(Some(command.tty));
        if command.tty
            && let Some(env) = process.env_mut()
            && !env.iter().any(|e| e.starts_with("TERM="))
        {
            env.push("TERM=xterm".into());
        }
        Ok(process)
    }

    /// Waits for the exit of a command.
    pub(super) async fn end(&self, running: Running) -> Result<i32> {
        let exit = running.exit.await.map_err(|_| RuntimeError::Unavailable("the keeper is gone".into()))?;
        let keeper = self.keeper.clone();
        tokio::spawn(async move { keeper.forget(&running.id).await });
        exit.code.ok_or_else(|| RuntimeError::Internal("the exit code of the command is not known".into()))
    }
}
