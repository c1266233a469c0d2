//! Client of the keeper: one connection; when the keeper dies, a new one is started and connected.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coracle_cli::causes;
use coracle_cli::supervise::Supervisor;
use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr};
use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};

use coracle_keeper::server::Paths;
use coracle_keeper::wire::{self, Answer, Call, Failure, Message, Request, VERSION};

/// How long to wait for a launch that an earlier agent requested.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(20);
/// How long to wait for a keeper to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a killed OCI runtime may take to exit.
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a call to the keeper failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The keeper cannot be started.
    #[error("starting the keeper {}", program.display())]
    Start {
        /// Its executable.
        program: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The connection closed before the reply; a new keeper is being started.
    #[error("the keeper is gone")]
    Gone,
    /// The running keeper speaks another protocol version.
    #[error("the running keeper speaks version {found}, this agent {VERSION}")]
    Version {
        /// Protocol version of the keeper.
        found: u32,
    },
    /// The keeper returned an error.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A reply of an unexpected type.
    #[error("unexpected answer of the keeper: {0:?}")]
    Unexpected(Answer),
    /// A killed OCI runtime has not exited.
    #[error("unexpected answer of the keeper: the OCI runtime of {id} does not end")]
    Stuck {
        /// Id of the launch or exec.
        id: String,
    },
}

/// Events of the keeper.
#[derive(Debug)]
pub enum KeeperEvent {
    /// See [`Message::Exited`].
    Exited(coracle_keeper::exits::Exit),
    /// See [`Message::StdinClosed`].
    StdinClosed(String),
    /// The keeper was replaced: the new one has no tasks yet.
    Replaced,
}

type Waiting = HashMap<u64, oneshot::Sender<Result<(Answer, Vec<OwnedFd>), Error>>>;

struct Connection {
    socket: AsyncFd<OwnedFd>,
    waiting: Mutex<Option<Waiting>>,
}

/// Handle to the keeper. Clones share one connection.
#[derive(Clone)]
pub struct Keeper {
    connection: Arc<arc_swap::ArcSwap<Connection>>,
    seq: Arc<AtomicU64>,
    /// Number of connections so far.
    generation: Arc<AtomicU64>,
    /// The last generation whose keeper was given the tasks of its predecessor.
    handed: Arc<watch::Sender<u64>>,
}

impl Keeper {
    /// Connects to the keeper of a run directory and starts one if there is none. A supervised task reads the connection
    /// for as long as the process runs.
    pub async fn connect(
        program: &Path,
        run: &Path,
        supervisor: &Supervisor,
    ) -> Result<(Self, mpsc::UnboundedReceiver<KeeperEvent>), Error> {
        let connection = open(program, run).await?;
        let keeper = Self {
            connection: Arc::new(arc_swap::ArcSwap::from(connection)),
            seq: Arc::default(),
            generation: Arc::default(),
            handed: Arc::default(),
        };
        let (notices, receiver) = mpsc::unbounded_channel();
        let parts = (keeper.clone(), program.to_owned(), run.to_owned(), notices);
        tokio::spawn(supervisor.clone().finish("keeper connection", move || {
            let (keeper, program, run, notices) = parts.clone();
            async move { keeper.serve(&program, &run, notices).await }
        }));
        keeper.wait_ready().await?;
        Ok((keeper, receiver))
    }

    /// Waits until a keeper answers: the current one may be exiting, and its successor needs time to start.
    ///
    /// A keeper answers only after all OCI runtimes of its predecessor have exited.
    pub async fn wait_ready(&self) -> Result<(), Error> {
        let begun = std::time::Instant::now();
        loop {
            match self.hello().await {
                Err(Error::Gone) if begun.elapsed() < CONNECT_TIMEOUT => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                other => return other,
            }
        }
    }

    /// Generation of the connection; increases with every reconnect.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Says that the keeper of this generation has all tasks.
    pub(crate) fn handed(&self, generation: u64) {
        self.handed.send_replace(generation);
    }

    /// Waits until there is a keeper that has all tasks: after the death of one, until its successor was given them.
    pub async fn settled(&self) -> Result<(), Error> {
        let mut handed = self.handed.subscribe();
        let wait = async {
            loop {
                let open = self.connection.load().waiting.lock().is_some();
                let current = *handed.borrow_and_update() == self.generation();
                if (open && current) || handed.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(CONNECT_TIMEOUT, wait).await.map_err(|_| Error::Gone)
    }

    async fn hello(&self) -> Result<(), Error> {
        match self.call(Call::Hello { version: VERSION }, &[]).await?.0 {
            Answer::Hello { version: VERSION, .. } => Ok(()),
            Answer::Hello { version: found, .. } => Err(Error::Version { found }),
            other => Err(Error::Unexpected(other)),
        }
    }

    /// Sends a request and waits for the reply. Cancelling does not stop the request.
    pub async fn call(&self, call: Call, fds: &[&OwnedFd]) -> Result<(Answer, Vec<OwnedFd>), Error> {
        let connection = self.connection.load_full();
        let seq = self.seq.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        match &mut *connection.waiting.lock() {
            Some(waiting) => drop(waiting.insert(seq, sender)),
            None => return Err(Error::Gone),
        }
        let fds: Vec<i32> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
        let request = Request { seq, call };
        loop {
            let mut ready = connection.socket.writable().await.map_err(|_| Error::Gone)?;
            let sent =
                ready.try_io(|socket| wire::send(socket.get_ref(), &request, &fds).map_err(io::Error::from));
            match sent {
                Ok(Ok(())) => break,
                Ok(Err(_)) => return Err(Error::Gone),
                Err(_would_block) => {}
            }
        }
        receiver.await.unwrap_or(Err(Error::Gone))
    }

    /// As [`Keeper::call`], for requests without a result.
    pub async fn call_ok(&self, call: Call, fds: &[&OwnedFd]) -> Result<(), Error> {
        self.call(call, fds).await.map(drop)
    }

    /// As [`Keeper::call`], for requests that start or find a process.
    pub async fn start(&self, call: Call, fds: &[&OwnedFd]) -> Result<Started, Error> {
        match self.call(call, fds).await? {
            (Answer::Started { pid, holds }, fds) => {
                let mut fds = fds.into_iter();
                let mut next = |held: bool| if held { fds.next().map(Arc::new) } else { None };
                let (pidfd, stdin, terminal) = (next(holds.pidfd), next(holds.stdin), next(holds.terminal));
                Ok(Started { pid, held: TaskFds { pidfd, stdin, terminal } })
            }
            (other, _) => Err(Error::Unexpected(other)),
        }
    }

    /// All tasks of the keeper.
    pub async fn list(&self) -> Result<Vec<wire::Task>, Error> {
        match self.call(Call::List, &[]).await?.0 {
            Answer::Tasks(tasks) => Ok(tasks),
            other => Err(Error::Unexpected(other)),
        }
    }

    /// All tasks of the keeper, after OCI runtimes of an earlier agent have exited.
    pub async fn list_settled(&self) -> Result<Vec<wire::Task>, Error> {
        let begun = std::time::Instant::now();
        let mut aborted = false;
        loop {
            let tasks = match self.list().await {
                Err(Error::Gone) => {
                    self.wait_ready().await?;
                    continue;
                }
                other => other?,
            };
            let Some(busy) = tasks.iter().find(|task| task.pid == 0) else { return Ok(tasks) };
            if begun.elapsed() > LAUNCH_TIMEOUT && !aborted {
                tracing::warn!(task = busy.id, "OCI runtime did not exit in time, killing it");
                self.call_ok(Call::Abort { id: busy.id.clone() }, &[]).await?;
                aborted = true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Kills the OCI runtime of a launch or exec and waits until it has exited.
    pub async fn abort(&self, id: &str) -> Result<(), Error> {
        self.call_ok(Call::Abort { id: id.to_owned() }, &[]).await?;
        let begun = std::time::Instant::now();
        while self.list().await?.iter().any(|task| task.id == id && task.pid == 0) {
            if begun.elapsed() > ABORT_TIMEOUT {
                return Err(Error::Stuck { id: id.to_owned() });
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Makes the keeper forget a task after its exit was recorded. Errors are ignored: a new keeper does not know the task.
    pub async fn forget(&self, id: &str) {
        if let Err(error) = self.call_ok(Call::Forget { id: id.to_owned() }, &[]).await {
            tracing::debug!(task = id, error = %causes::chain(&error), "task not forgotten");
        }
    }

    /// Reads events until the connection closes, then starts the next keeper; runs forever. After a restart of the task it
    /// continues with the current connection.
    async fn serve(&self, program: &Path, run: &Path, notices: mpsc::UnboundedSender<KeeperEvent>) {
        let mut connection = self.connection.load_full();
        loop {
            connection.read(&notices).await;
            // Fails pending and new calls.
            drop(connection.waiting.lock().take());
            if notices.is_closed() {
                return;
            }
            tracing::warn!("keeper connection lost, starting a new keeper");
            connection = loop {
                match open(program, run).await {
                    Ok(connection) => break connection,
                    Err(error) => {
                        tracing::error!(error = %causes::chain(&error), "keeper not started, will retry");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            };
            self.generation.fetch_add(1, Ordering::Relaxed);
            self.connection.store(connection.clone());
            let keeper = self.clone();
            let notices = notices.clone();
            tokio::spawn(async move {
                match keeper.hello().await {
                    Ok(()) => drop(notices.send(KeeperEvent::Replaced)),
                    Err(error) => tracing::error!(error = %causes::chain(&error), "keeper"),
                }
            });
        }
    }
}

/// Descriptors of a task that cannot be reopened; kept by agent and keeper.
#[derive(Debug, Clone, Default)]
pub struct TaskFds {
    /// Of the process.
    pub pidfd: Option<Arc<OwnedFd>>,
    /// Write end.
    pub stdin: Option<Arc<OwnedFd>>,
    /// Master.
    pub terminal: Option<Arc<OwnedFd>>,
}

/// A process started by the keeper.
#[derive(Debug)]
pub struct Started {
    /// Its pid in the agent's PID namespace.
    pub pid: i32,
    /// Descriptors to hand to the next keeper.
    pub held: TaskFds,
}

impl Connection {
    async fn read(&self, notices: &mpsc::UnboundedSender<KeeperEvent>) {
        loop {
            let Ok(mut ready) = self.socket.readable().await else { return };
            let received =
                ready.try_io(|socket| wire::receive::<Message>(socket.get_ref()).map_err(io::Error::from));
            let (message, fds) = match received {
                Ok(Ok(Some(message))) => message,
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::EBADMSG as i32) => {
                    // A message type of a newer keeper.
                    tracing::debug!("unknown message of the keeper");
                    continue;
                }
                Ok(Ok(None) | Err(_)) => return,
                Err(_would_block) => continue,
            };
            match message {
                Message::Reply { seq, result } => {
                    let waiter = self.waiting.lock().as_mut().and_then(|w| w.remove(&seq));
                    if let Some(waiter) = waiter {
                        let _ = waiter.send(result.map(|a| (a, fds)).map_err(Error::from));
                    }
                }
                Message::Exited(exit) => drop(notices.send(KeeperEvent::Exited(exit))),
                Message::StdinClosed { id } => drop(notices.send(KeeperEvent::StdinClosed(id))),
            }
        }
    }
}

async fn open(program: &Path, run: &Path) -> Result<Arc<Connection>, Error> {
    let socket = Paths::under(run).socket;
    let failed = |source: io::Error| Error::Start { program: program.to_owned(), source };
    if let Ok(connection) = connect(&socket) {
        return Ok(connection);
    }
    spawn(program, run).map_err(failed)?;
    let mut last = Errno::ENOENT;
    let begun = std::time::Instant::now();
    while begun.elapsed() < CONNECT_TIMEOUT {
        match connect(&socket) {
            Ok(connection) => return Ok(connection),
            Err(errno) => last = errno,
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Err(failed(last.into()))
}

fn connect(path: &Path) -> Result<Arc<Connection>, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket::socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    socket::connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    // SAFETY: an `OwnedFd` is the same descriptor for as long as it lives.
    #[allow(unsafe_code)]
    let socket = unsafe { AsyncFd::register(fd) }.map_err(|_| Errno::EBADF)?;
    Ok(Arc::new(Connection { socket, waiting: Mutex::new(Some(HashMap::new())) }))
}

/// Starts the keeper in a session of its own, so that signals to the agent's process group do not reach it.
fn spawn(program: &Path, run: &Path) -> io::Result<()> {
    let log =
        std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(run.join("keeper.log"))?;
    log.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    let mut command = std::process::Command::new(program);
    command.arg(run).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    for variable in coracle_cli::service::VARIABLES {
        command.env_remove(variable);
    }
    // SAFETY: setsid and close_range are async-signal-safe, and all that runs between fork and exec.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| {
            // The keeper outlives this process, so it must not inherit the engine's lock, as other children do.
            libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            nix::unistd::setsid().map(drop).map_err(io::Error::from)
        });
    }
    let mut child = command.spawn()?;
    // Reaps the keeper if it dies first. A thread, because it must not end with the async runtime.
    std::thread::Builder::new()
        .name("keeper-reaper".into())
        .stack_size(64 << 10)
        .spawn(move || child.wait())?;
    Ok(())
}
