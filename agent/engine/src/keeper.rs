//! The agent's side of the keeper: one connection, made again with a new keeper when the old one dies.

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

use coracle_cli::supervise::Supervisor;
use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr};
use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

use coracle_keeper::server::Paths;
use coracle_keeper::wire::{self, Answer, Call, Failure, Message, Request, VERSION};

/// How long a launch of an earlier agent is waited for.
const LAUNCH_PATIENCE: Duration = Duration::from_secs(20);
/// How long a keeper may take to be there.
const HEIR_PATIENCE: Duration = Duration::from_secs(30);
/// How long an OCI runtime that was killed may take to be gone.
const ABORT_PATIENCE: Duration = Duration::from_secs(10);

/// Why the keeper did not do it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The keeper cannot be started.
    #[error("starting the keeper {}", program.display())]
    Start {
        /// Its executable.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The connection broke while the answer was awaited; a new keeper is on its way.
    #[error("the keeper is gone")]
    Gone,
    /// An older or newer keeper holds the node's containers.
    #[error("the running keeper speaks version {found}, this agent {VERSION}")]
    Version {
        /// Of the keeper.
        found: u32,
    },
    /// The keeper's own answer.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// An answer of another kind than asked for.
    #[error("unexpected answer of the keeper: {0}")]
    Unexpected(String),
}

/// What the keeper says unasked.
#[derive(Debug)]
pub enum Notice {
    /// See [`Message::Exited`].
    Exited(coracle_keeper::exits::Exit),
    /// See [`Message::StdinClosed`].
    StdinClosed(String),
    /// The keeper is a new one: it holds nothing yet.
    Replaced,
}

type Waiting = HashMap<u64, oneshot::Sender<Result<(Answer, Vec<OwnedFd>), Error>>>;

struct Connection {
    socket: AsyncFd<OwnedFd>,
    waiting: Mutex<Option<Waiting>>,
}

/// A handle on the node's keeper.
#[derive(Clone)]
pub struct Keeper {
    connection: Arc<arc_swap::ArcSwap<Connection>>,
    seq: Arc<AtomicU64>,
    /// Counts connections.
    generation: Arc<AtomicU64>,
}

impl Keeper {
    /// Connects to the keeper of a run directory, starting one when there is none. Notices end only with the process; the
    /// supervisor keeps the connection being read.
    pub async fn connect(
        program: &Path,
        run: &Path,
        supervisor: &Supervisor,
    ) -> Result<(Self, mpsc::UnboundedReceiver<Notice>), Error> {
        let connection = open(program, run).await?;
        let keeper = Self {
            connection: Arc::new(arc_swap::ArcSwap::from(connection)),
            seq: Arc::default(),
            generation: Arc::default(),
        };
        let (notices, receiver) = mpsc::unbounded_channel();
        let parts = (keeper.clone(), program.to_owned(), run.to_owned(), notices);
        tokio::spawn(supervisor.clone().finish("keeper connection", move || {
            let (keeper, program, run, notices) = parts.clone();
            async move { keeper.serve(&program, &run, notices).await }
        }));
        keeper.greet().await?;
        Ok((keeper, receiver))
    }

    /// Says hello until a keeper answers: the one found may be dying, and its heir takes a moment.
    ///
    /// An heir that answers has seen the end of every OCI runtime that the dead one had at work.
    pub async fn greet(&self) -> Result<(), Error> {
        let begun = std::time::Instant::now();
        loop {
            match self.hello().await {
                Err(Error::Gone) if begun.elapsed() < HEIR_PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                other => return other,
            }
        }
    }

    /// Which connection this is; grows with every new one.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    async fn hello(&self) -> Result<(), Error> {
        match self.call(Call::Hello { version: VERSION }, &[]).await?.0 {
            Answer::Hello { version: VERSION, .. } => Ok(()),
            Answer::Hello { version: found, .. } => Err(Error::Version { found }),
            other => Err(Error::Unexpected(format!("{other:?}"))),
        }
    }

    /// Asks and waits. Cancelling stops the waiting, not the work.
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

    /// As `call`, for verbs with nothing to say.
    pub async fn order(&self, call: Call, fds: &[&OwnedFd]) -> Result<(), Error> {
        self.call(call, fds).await.map(drop)
    }

    /// As `call`, for verbs that start or find a process.
    pub async fn start(&self, call: Call, fds: &[&OwnedFd]) -> Result<Started, Error> {
        match self.call(call, fds).await? {
            (Answer::Started { pid, holds }, fds) => {
                let mut fds = fds.into_iter();
                let mut next = |held: bool| if held { fds.next().map(Arc::new) } else { None };
                let (pidfd, stdin, terminal) = (next(holds.pidfd), next(holds.stdin), next(holds.terminal));
                Ok(Started { pid, held: Held { pidfd, stdin, terminal } })
            }
            (other, _) => Err(Error::Unexpected(format!("{other:?}"))),
        }
    }

    /// Everything the keeper holds.
    pub async fn list(&self) -> Result<Vec<wire::Task>, Error> {
        match self.call(Call::List, &[]).await?.0 {
            Answer::Tasks(tasks) => Ok(tasks),
            other => Err(Error::Unexpected(format!("{other:?}"))),
        }
    }

    /// Everything the keeper holds, once no OCI runtime of an earlier agent is at work any more.
    pub async fn list_settled(&self) -> Result<Vec<wire::Task>, Error> {
        let begun = std::time::Instant::now();
        let mut aborted = false;
        loop {
            let tasks = match self.list().await {
                Err(Error::Gone) => {
                    self.greet().await?;
                    continue;
                }
                other => other?,
            };
            let Some(busy) = tasks.iter().find(|task| task.pid == 0) else { return Ok(tasks) };
            if begun.elapsed() > LAUNCH_PATIENCE && !aborted {
                tracing::warn!(task = busy.id, "an OCI runtime does not end, killing it");
                self.order(Call::Abort { id: busy.id.clone() }, &[]).await?;
                aborted = true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Kills the OCI runtime of a launch or exec and waits until it is gone.
    pub async fn abort(&self, id: &str) -> Result<(), Error> {
        self.order(Call::Abort { id: id.to_owned() }, &[]).await?;
        let begun = std::time::Instant::now();
        while self.list().await?.iter().any(|task| task.id == id && task.pid == 0) {
            if begun.elapsed() > ABORT_PATIENCE {
                return Err(Error::Unexpected(format!("the OCI runtime of {id} does not end")));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// The task is recorded and removed. A keeper that is gone has forgotten it anyway.
    pub async fn forget(&self, id: &str) {
        if let Err(error) = self.order(Call::Forget { id: id.to_owned() }, &[]).await {
            tracing::debug!(task = id, %error, "forgetting");
        }
    }

    /// Reads until the keeper is gone, then starts the next one, for ever. Begun again, it goes on with the connection that
    /// there is.
    async fn serve(&self, program: &Path, run: &Path, notices: mpsc::UnboundedSender<Notice>) {
        let mut connection = self.connection.load_full();
        loop {
            connection.read(&notices).await;
            // Whoever waits is told; whoever asks from here on, too.
            drop(connection.waiting.lock().take());
            if notices.is_closed() {
                return;
            }
            tracing::warn!("the keeper is gone, starting another");
            connection = loop {
                match open(program, run).await {
                    Ok(connection) => break connection,
                    Err(error) => {
                        tracing::error!(%error, "keeper; trying again");
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
                    Ok(()) => drop(notices.send(Notice::Replaced)),
                    Err(error) => tracing::error!(%error, "keeper"),
                }
            });
        }
    }
}

/// Descriptors that only agent and keeper can have.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// Of the process.
    pub pidfd: Option<Arc<OwnedFd>>,
    /// Write end.
    pub stdin: Option<Arc<OwnedFd>>,
    /// Master.
    pub terminal: Option<Arc<OwnedFd>>,
}

/// A process of the keeper's.
#[derive(Debug)]
pub struct Started {
    /// As seen from here.
    pub pid: i32,
    /// To be kept for the next keeper.
    pub held: Held,
}

impl Connection {
    async fn read(&self, notices: &mpsc::UnboundedSender<Notice>) {
        loop {
            let Ok(mut ready) = self.socket.readable().await else { return };
            let received =
                ready.try_io(|socket| wire::receive::<Message>(socket.get_ref()).map_err(io::Error::from));
            let (message, fds) = match received {
                Ok(Ok(Some(message))) => message,
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::EBADMSG as i32) => {
                    // A message that a later keeper has and we do not.
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
                Message::Exited(exit) => drop(notices.send(Notice::Exited(exit))),
                Message::StdinClosed { id } => drop(notices.send(Notice::StdinClosed(id))),
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
    while begun.elapsed() < HEIR_PATIENCE {
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

/// In its own session and process group, so that what ends the agent does not end it.
fn spawn(program: &Path, run: &Path) -> io::Result<()> {
    let log =
        std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(run.join("keeper.log"))?;
    log.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    let mut command = std::process::Command::new(program);
    command.arg(run).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // SAFETY: setsid and close_range are async-signal-safe, and all that runs between fork and exec.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| {
            // It outlives us, and so must not keep the engine's lock, which other children inherit.
            libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            nix::unistd::setsid().map(drop).map_err(io::Error::from)
        });
    }
    let mut child = command.spawn()?;
    // Reaped when it dies before us; a thread, because it must not end with a runtime that is shut down.
    std::thread::Builder::new()
        .name("keeper-reaper".into())
        .stack_size(64 << 10)
        .spawn(move || child.wait())?;
    Ok(())
}
