//! Exec: runs a command in a container, with its streams connected to the engine.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coracle_proto::cri;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};

use super::error::internal;
use super::record::ContainerPhase;
use super::{Container, Engine, new_id};
use crate::runtime::{Output, Result, RuntimeError, Session, TerminalSize};
use coracle_keeper::enter::Request;
use coracle_keeper::exits::Exit;
use coracle_keeper::launch::take_terminal;
use coracle_keeper::pidfd;
use coracle_keeper::wire::{Call, ExecSpec};

/// Longer output is truncated, as the kubelet does.
const MAX_OUTPUT: usize = 16 << 20;
/// How long to wait for output that children of an ended command keep open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
const EXEC_START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running command.
pub(super) struct Running {
    pub(super) pidfd: Option<Arc<OwnedFd>>,
    /// Receives its exit.
    pub(super) exit: oneshot::Receiver<Exit>,
    id: String,
}

/// A validated request.
struct Command<'a> {
    container: &'a Container,
    args: Vec<String>,
    tty: bool,
}

impl Engine {
    fn running(&self, id: &str) -> Result<Arc<Container>> {
        let container = self.container(id)?;
        let phase = container.phase();
        if phase == ContainerPhase::Running {
            return Ok(container);
        }
        let state = match phase {
            ContainerPhase::Exited | ContainerPhase::Removing => "CONTAINER_EXITED",
            _ => "CONTAINER_CREATED",
        };
        Err(RuntimeError::FailedPrecondition(format!("container is in {state} state")))
    }

    /// Starts a command with these descriptors; a terminal is received over the console socket instead.
    async fn start_exec(
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
        let (pid_file, runtime_log) =
            (self.inner.paths.transient(&id, "pid"), self.inner.paths.transient(&id, "log"));
        let (sender, exit) = oneshot::channel();
        self.inner.execs.lock().insert(id.clone(), (self.inner.keeper.generation(), sender));
        let spec = ExecSpec { id: id.clone(), argv, own, pid_file, runtime_log };
        let fds = stdio.each_ref();
        let call = self.inner.keeper.start(Call::Exec(spec), &fds);
        let started = match tokio::time::timeout(EXEC_START_TIMEOUT, call).await {
            Ok(started) => started,
            Err(_) => {
                self.inner.keeper.abort(&id).await?;
                self.inner.execs.lock().remove(&id);
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
        self.remove_transient(&id);
        match started {
            Ok(started) => Ok((Running { pidfd: started.held.pidfd, exit, id }, terminal)),
            Err(error) => {
                self.inner.execs.lock().remove(&id);
                Err(match error {
                    super::keeper::Error::Failed(failure) => RuntimeError::Internal(format!(
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
        let path = |kind: &str| self.inner.paths.transient(id, kind);
        let request = Request { args: command.args.clone(), ..entry.clone() };
        let text = serde_json::to_vec(&request).map_err(internal("exec"))?;
        fs::write(path("json"), text).map_err(internal("exec"))?;
        let text = |path: &Path| path.display().to_string();
        Ok(vec![
            text(&self.inner.options.keeper),
            "--root".into(),
            text(&self.inner.paths.runtime_state()),
            "exec".into(),
            text(&path("json")),
            text(&path("pid")),
            text(&path("log")),
        ])
    }

    /// The OCI runtime's `exec` command, and the console socket for a terminal.
    fn runtime_exec(&self, id: &str, command: &Command<'_>) -> Result<(Vec<String>, Option<UnixListener>)> {
        let path = |kind: &str| self.inner.paths.transient(id, kind);
        let text = |kind: &str| path(kind).display().to_string();
        fs::write(path("json"), self.exec_process(command)?.to_string()).map_err(internal("exec"))?;
        let mut argv = self.runtime_command(&self.runtime_of(command.container), &path("log"));
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
    fn exec_process(&self, command: &Command<'_>) -> Result<Value> {
        let path = self.inner.paths.bundle(&command.container.id).join("config.json");
        let text = fs::read(&path).map_err(internal("container configuration"))?;
        let mut spec: Value = serde_json::from_slice(&text).map_err(internal("container configuration"))?;
        let mut process = spec["process"].take();
        process["args"] = command.args.clone().into();
        process["terminal"] = command.tty.into();
        if command.tty
            && let Some(env) = process["env"].as_array_mut()
            && !env.iter().any(|e| e.as_str().is_some_and(|e| e.starts_with("TERM=")))
        {
            env.push("TERM=xterm".into());
        }
        Ok(process)
    }

    async fn end_exec(&self, running: Running) -> Result<i32> {
        let exit = running.exit.await.map_err(|_| RuntimeError::Unavailable("the keeper is gone".into()))?;
        let keeper = self.inner.keeper.clone();
        tokio::spawn(async move { keeper.forget(&running.id).await });
        exit.code.ok_or_else(|| RuntimeError::Internal("the exit code of the command is not known".into()))
    }

    pub(super) async fn run_exec_sync(
        &self,
        id: &str,
        args: Vec<String>,
        timeout: Duration,
    ) -> Result<cri::ExecSyncResponse> {
        let container = self.running(id)?;
        let command = Command { container: &container, args, tty: false };
        let ((stdout, out), (stderr, err)) = (output()?, output()?);
        let (running, _) = self.start_exec(command, [null()?, out, err]).await?;
        let pidfd = running.pidfd.clone();
        let (stdout, stderr) = (Collector::start(stdout), Collector::start(stderr));
        let limit = if timeout.is_zero() { Duration::MAX } else { timeout };
        // Continues after a timeout, so that the keeper forgets the task when the command ends.
        let engine = self.clone();
        let mut ending = tokio::spawn(async move { engine.end_exec(running).await });
        let code = match tokio::time::timeout(limit, &mut ending).await {
            Ok(code) => code.map_err(internal("exec"))??,
            Err(_) => {
                if let Some(pidfd) = pidfd {
                    let _ = pidfd::kill(&pidfd, libc::SIGKILL);
                }
                return Err(RuntimeError::DeadlineExceeded(format!(
                    "failed to exec in container: timeout {timeout:?} exceeded: context deadline exceeded"
                )));
            }
        };
        let (stdout, stderr) = tokio::join!(stdout.finish(), stderr.finish());
        Ok(cri::ExecSyncResponse { stdout, stderr, exit_code: code })
    }

    pub(super) async fn open_exec(&self, request: cri::ExecRequest) -> Result<Session> {
        let container = self.running(&request.container_id)?;
        let command = Command { container: &container, args: request.cmd, tty: request.tty };
        let (resize, mut sizes) = mpsc::channel::<TerminalSize>(4);
        let (done, exit) = oneshot::channel();
        let mut session = Session { stdin: None, stdout: None, stderr: None, resize, exit };
        let running = if request.tty {
            let (running, terminal) = self.start_exec(command, [null()?, null()?, null()?]).await?;
            let terminal = Arc::new(terminal.ok_or_else(|| RuntimeError::Internal("no terminal".into()))?);
            let (reader, writer) = super::attach::terminal_streams(&terminal)?;
            session.stdout = Some(reader);
            session.stdin = request.stdin.then_some(writer);
            tokio::spawn(async move {
                while let Some(size) = sizes.recv().await {
                    let _ = super::attach::resize(terminal.as_fd(), size);
                }
            });
            running
        } else {
            let stdin = if request.stdin {
                let (writer, reader) = pipe::pipe().map_err(internal("pipe"))?;
                session.stdin = Some(Box::new(writer));
                reader.into_blocking_fd().map_err(internal("pipe"))?
            } else {
                null()?
            };
            let sink = |wanted: bool| -> Result<(Option<Output>, OwnedFd)> {
                if !wanted {
                    return Ok((None, null()?));
                }
                let (reader, writer) = output()?;
                Ok((Some(Box::new(reader)), writer))
            };
            let ((stdout, out), (stderr, err)) = (sink(request.stdout)?, sink(request.stderr)?);
            (session.stdout, session.stderr) = (stdout, stderr);
            self.start_exec(command, [stdin, out, err]).await?.0
        };
        let engine = self.clone();
        tokio::spawn(async move {
            let _ = done.send(engine.end_exec(running).await);
        });
        Ok(session)
    }
}

fn null() -> Result<OwnedFd> {
    let file = fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    Ok(file.map_err(internal("/dev/null"))?.into())
}

/// Our end, and the end for the process.
fn output() -> Result<(pipe::Receiver, OwnedFd)> {
    let (writer, reader) = pipe::pipe().map_err(internal("pipe"))?;
    Ok((reader, writer.into_blocking_fd().map_err(internal("pipe"))?))
}

/// Reads a stream in the background, so that partial output is available after a timeout.
struct Collector {
    bytes: Arc<parking_lot::Mutex<Vec<u8>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Collector {
    fn start(stream: pipe::Receiver) -> Self {
        let bytes = Arc::<parking_lot::Mutex<Vec<u8>>>::default();
        let shared = bytes.clone();
        let task = tokio::spawn(async move {
            let mut stream = stream;
            let mut chunk = vec![0; 32 << 10];
            while let Ok(n @ 1..) = stream.read(&mut chunk).await {
                let mut bytes = shared.lock();
                let room = MAX_OUTPUT.saturating_sub(bytes.len());
                bytes.extend_from_slice(&chunk[..n.min(room)]);
            }
        });
        Self { bytes, task }
    }

    async fn finish(mut self) -> Vec<u8> {
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, &mut self.task).await;
        std::mem::take(&mut *self.bytes.lock())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}
