//! The keeper's event loop.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::epoll::{EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr};

use super::client::{Client, started};
use super::exits::{Exit, ExitLog};
use super::launch::{self, Ends, Running};
use super::log::ContainerLog;
use super::pidfd::{self, Ended};
use super::pipe_size;
use super::poll::{Poll, Source, StreamId, Token};
use super::sandbox::clone_pause;
use super::shared::Shared;
use super::stale_runtimes;
use super::streams::{StreamEvent, Streams};
use super::wire::{
    self, AdoptSpec, Answer, Call, Failure, FailureKind, LaunchSpec, Message, Request, VERSION,
};
use crate::enter::sealed::{Copies, Sealed};

/// How long to wait for the exit code of a zombie that is not our child.
const ZOMBIE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for the lock of a keeper that is exiting.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause after a turn that read only a little output: what containers write one line at a time is then handled together.
const OUTPUT_PAUSE: Duration = Duration::from_micros(100);
/// Less output than this is a little.
const LITTLE_OUTPUT: usize = 32 << 10;
/// Fits a full node's answer to List.
const SOCKET_BUFFER: usize = 1 << 20;

/// Paths used by the keeper.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Its socket.
    pub socket: PathBuf,
    /// Lock file: one keeper per directory.
    pub lock: PathBuf,
    /// The exit log.
    pub exits: PathBuf,
    /// State directory of the OCI runtime; its processes have this path among their arguments.
    pub runtime_state: PathBuf,
}

impl Paths {
    /// In a run directory.
    pub fn under(run: &Path) -> Self {
        Self {
            socket: run.join("keeper.sock"),
            lock: run.join("keeper.lock"),
            exits: run.join("exits.jsonl"),
            runtime_state: run.join("runtime"),
        }
    }
}

/// One process and what belongs to it.
struct Task {
    pid: i32,
    pidfd: Option<OwnedFd>,
    /// Registered when it is not our child.
    token: Option<Token>,
    zombie_since: Option<Instant>,
    streams: Option<Streams>,
    exit: Option<Exit>,
}

/// A running OCI runtime.
struct Pending {
    id: String,
    client: u64,
    seq: u64,
    running: Running,
    pid_file: PathBuf,
    runtime_log: PathBuf,
    launch: Option<LaunchSpec>,
}

/// State of the event loop.
struct Keeper {
    poll: Poll,
    listener: OwnedFd,
    signals: OwnedFd,
    clients: HashMap<u64, Client>,
    next_client: u64,
    tasks: HashMap<String, Task>,
    /// By pid of the runtime.
    pending: HashMap<i32, Pending>,
    /// Exit statuses of unknown children: a running OCI runtime may report one of them as its container.
    unclaimed: HashMap<i32, Ended>,
    exits: ExitLog,
    /// Of all streams.
    shared: Shared,
    /// The sealed copy of this program, created by the first exec that needs it.
    sealed: Option<Sealed>,
    /// Sealed copies of OCI runtimes.
    copies: Copies,
}

/// Serves until killed. Fails when another keeper holds the lock.
pub fn run(paths: &Paths) -> io::Result<()> {
    let _lock = lock(&paths.lock)?;
    // The previous keeper may have just died, and OCI runtimes that it started may still be running.
    stale_runtimes::kill_all(&paths.runtime_state)?;
    nix::sys::prctl::set_child_subreaper(true)?;
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_block()?;
    let signals = signal_fd(&mask)?;
    let listener = listen(&paths.socket)?;
    let mut poll = Poll::new()?;
    poll.add(&listener, EpollFlags::EPOLLIN, Source::Listener)?;
    poll.add(&signals, EpollFlags::EPOLLIN, Source::Signals)?;
    let mut keeper = Keeper {
        poll,
        listener,
        signals,
        clients: HashMap::new(),
        next_client: 0,
        tasks: HashMap::new(),
        pending: HashMap::new(),
        unclaimed: HashMap::new(),
        exits: ExitLog::open(&paths.exits)?,
        shared: Shared::default(),
        sealed: None,
        copies: Copies::default(),
    };
    loop {
        keeper.poll_once()?;
    }
}

fn lock(path: &Path) -> io::Result<nix::fcntl::Flock<std::fs::File>> {
    use nix::fcntl::{Flock, FlockArg};
    let mut file = std::fs::File::create(path)?;
    // Any process that can open the file can take the lock.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let begun = Instant::now();
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            // A killed keeper holds the lock until the kernel has cleaned it up.
            Err((back, Errno::EWOULDBLOCK)) if begun.elapsed() < LOCK_TIMEOUT => file = back,
            Err((_, errno)) => return Err(errno.into()),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal_fd(mask: &SigSet) -> io::Result<OwnedFd> {
    // SAFETY: the kernel copies the set; the result is a new descriptor.
    #[allow(unsafe_code)]
    unsafe {
        let fd = libc::signalfd(-1, mask.as_ref(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        Ok(OwnedFd::from_raw_fd(Errno::result(fd)?))
    }
}

fn listen(path: &Path) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket::socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    let _ = std::fs::remove_file(path);
    // Bound under a temporary name and renamed: once the socket exists under its final name, it accepts connections.
    let fresh = path.with_extension("new");
    let _ = std::fs::remove_file(&fresh);
    socket::bind(listener.as_raw_fd(), &UnixAddr::new(&fresh)?)?;
    std::fs::set_permissions(&fresh, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    socket::listen(&listener, Backlog::new(8)?)?;
    std::fs::rename(&fresh, path)?;
    Ok(listener)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn not_found(id: &str) -> Failure {
    Failure { kind: FailureKind::NotFound, message: format!("no task {id}") }
}

impl Keeper {
    fn poll_once(&mut self) -> io::Result<()> {
        let zombies = self.tasks.values().any(|t| t.zombie_since.is_some());
        let timeout = if zombies { EpollTimeout::from(200u16) } else { EpollTimeout::NONE };
        let (mut children, mut only_output) = (false, true);
        self.shared.output_read = 0;
        for (token, flags) in self.poll.wait(timeout)? {
            let source = self.poll.source(token);
            only_output &= matches!(source, Some(Source::Stream(_, StreamId::Stdout | StreamId::Stderr)));
            match source {
                Some(Source::Listener) => self.accept(),
                // After the streams of this turn.
                Some(Source::Signals) => children = true,
                Some(Source::Client(number)) => self.receive(number),
                Some(Source::Process(id)) => self.check(&id, flags),
                Some(Source::Stream(id, which)) => self.stream(&id, which, flags),
                None => {}
            }
        }
        if children {
            self.reap();
        }
        if zombies {
            let waiting: Vec<String> = self
                .tasks
                .iter()
                .filter(|(_, t)| t.zombie_since.is_some())
                .map(|(id, _)| id.clone())
                .collect();
            for id in waiting {
                self.check(&id, EpollFlags::empty());
            }
        }
        let broken: Vec<u64> = self.clients.iter().filter(|(_, c)| c.broken).map(|(n, _)| *n).collect();
        for number in broken {
            if let Some(client) = self.clients.remove(&number) {
                client.close(&mut self.poll);
            }
        }
        if only_output && (1..LITTLE_OUTPUT).contains(&self.shared.output_read) {
            std::thread::sleep(OUTPUT_PAUSE);
        }
        Ok(())
    }

    fn accept(&mut self) {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let Ok(fd) = socket::accept4(self.listener.as_raw_fd(), flags) else { return };
        // SAFETY: accept4 just made it.
        #[allow(unsafe_code)]
        let connection = unsafe { OwnedFd::from_raw_fd(fd) };
        let _ = socket::setsockopt(&connection, socket::sockopt::SndBuf, &SOCKET_BUFFER);
        self.next_client += 1;
        let source = Source::Client(self.next_client);
        if let Ok(token) = self.poll.add(&connection, EpollFlags::EPOLLIN, source) {
            self.clients.insert(self.next_client, Client::new(connection, token));
        }
    }

    fn receive(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number).filter(|client| !client.broken) else { return };
        match client.receive() {
            Ok(Some((request, fds))) => self.serve(number, request, fds),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            // End of stream, or an invalid message.
            Ok(None) | Err(_) => client.broken = true,
        }
    }

    fn serve(&mut self, number: u64, request: Request, fds: Vec<OwnedFd>) {
        let seq = request.seq;
        let result = match request.call {
            Call::Hello { .. } => {
                // One agent at a time: pending requests of an earlier connection are not executed.
                for (_, other) in self.clients.iter_mut().filter(|(n, c)| **n != number && c.greeted) {
                    other.broken = true;
                }
                if let Some(client) = self.clients.get_mut(&number) {
                    client.greeted = true;
                }
                Ok(Answer::Hello { version: VERSION, pid: std::process::id() as i32 })
            }
            Call::Launch(spec) => match self.launch(number, seq, spec) {
                Ok(()) => return,
                Err(failure) => Err(failure),
            },
            Call::Exec(spec) => match self.exec(number, seq, spec, fds) {
                Ok(()) => return,
                Err(failure) => Err(failure),
            },
            Call::Sandbox(spec) => {
                let result = self.sandbox(spec, fds);
                return self.reply_started(number, seq, result);
            }
            Call::Adopt(spec) => {
                let result = self.adopt(spec, fds);
                return self.reply_started(number, seq, result);
            }
            Call::Descriptors { id } => {
                let result = if self.tasks.contains_key(&id) { Ok(id) } else { Err(not_found(&id)) };
                return self.reply_started(number, seq, result);
            }
            Call::Abort { id } => self.abort(&id),
            Call::Attach { id, stdin, stdout, stderr } => self.attach(&id, [stdin, stdout, stderr], fds),
            Call::Reopen { id } => self.streams(&id).and_then(|(streams, _)| {
                streams.reopen().map_err(|e| Failure::system("reopen log", e))?;
                Ok(Answer::Done)
            }),
            Call::Resize { id, size } => self.streams(&id).and_then(|(streams, _)| {
                streams.resize(size).map_err(|e| Failure::system("resize", e))?;
                Ok(Answer::Done)
            }),
            Call::List => Ok(self.list()),
            Call::Forget { id } => {
                self.forget(&id);
                Ok(Answer::Done)
            }
        };
        if let Some(client) = self.clients.get_mut(&number) {
            client.reply(seq, result.map(|answer| (answer, Vec::new())));
        }
    }

    fn reply_started(&mut self, number: u64, seq: u64, result: Result<String, Failure>) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let result = result.and_then(|id| {
            let task = self.tasks.get(&id).ok_or_else(|| not_found(&id))?;
            let streams = task.streams.as_ref();
            let stdin = streams.and_then(Streams::stdin);
            Ok(started(task.pid, task.pidfd.as_ref(), stdin, streams.and_then(Streams::terminal)))
        });
        client.reply(seq, result);
    }

    fn check_id_free(&self, id: &str) -> Result<(), Failure> {
        if self.tasks.contains_key(id) || self.pending.values().any(|p| p.id == id) {
            return Err(Failure { kind: FailureKind::Exists, message: format!("task {id} exists") });
        }
        Ok(())
    }

    fn sandbox(&mut self, spec: wire::SandboxSpec, fds: Vec<OwnedFd>) -> Result<String, Failure> {
        self.check_id_free(&spec.id)?;
        let pause = clone_pause(&spec, fds.first())?;
        self.insert(&spec.id, pause.pid, Some(pause.pidfd), None);
        Ok(spec.id)
    }

    fn launch(&mut self, client: u64, seq: u64, spec: LaunchSpec) -> Result<(), Failure> {
        self.check_id_free(&spec.id)?;
        // A runtime that cannot be copied is started from its file.
        let copy = spec.argv.first().filter(|_| spec.sealed).map(Path::new);
        let copy = copy.and_then(|program| self.copies.of(program).ok());
        let running = launch::start(&spec, copy)?;
        let pending = Pending {
            id: spec.id.clone(),
            client,
            seq,
            pid_file: spec.pid_file.clone(),
            runtime_log: spec.runtime_log.clone(),
            launch: Some(spec),
            running,
        };
        self.pending.insert(pending.running.pid, pending);
        Ok(())
    }

    fn exec(
        &mut self,
        client: u64,
        seq: u64,
        spec: wire::ExecSpec,
        fds: Vec<OwnedFd>,
    ) -> Result<(), Failure> {
        self.check_id_free(&spec.id)?;
        let stdio: [OwnedFd; 3] =
            fds.try_into().map_err(|_| Failure::system("exec", "three descriptors are needed"))?;
        if spec.own && self.sealed.is_none() {
            self.sealed = Some(Sealed::of_self().map_err(|e| Failure::system("a copy of the keeper", e))?);
        }
        let running = launch::start_exec(&spec.argv, self.sealed.as_ref().filter(|_| spec.own), stdio)?;
        let wire::ExecSpec { id, pid_file, runtime_log, .. } = spec;
        let pending = Pending { id, client, seq, running, pid_file, runtime_log, launch: None };
        self.pending.insert(pending.running.pid, pending);
        Ok(())
    }

    fn abort(&mut self, id: &str) -> Result<Answer, Failure> {
        let pid = self.pending.iter().find(|(_, p)| p.id == id).map(|(pid, _)| *pid);
        let pid = pid.ok_or_else(|| not_found(id))?;
        // Our child until it is reaped below, so the pid cannot have been reused.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
        Ok(Answer::Done)
    }

    fn streams(&mut self, id: &str) -> Result<(&mut Streams, &mut Poll), Failure> {
        let task = self.tasks.get_mut(id).ok_or_else(|| not_found(id))?;
        let streams = task.streams.as_mut().ok_or_else(|| not_found(id))?;
        Ok((streams, &mut self.poll))
    }

    fn attach(&mut self, id: &str, wanted: [bool; 3], fds: Vec<OwnedFd>) -> Result<Answer, Failure> {
        let (streams, poll) = self.streams(id)?;
        let mut fds = fds.into_iter();
        let fds = wanted.map(|wanted| if wanted { fds.next() } else { None });
        streams.attach(fds, poll).map_err(|e| Failure::system("attach", e))?;
        Ok(Answer::Done)
    }

    fn list(&self) -> Answer {
        let task = |(id, task): (&String, &Task)| wire::Task {
            id: id.clone(),
            pid: task.pid,
            exit: task.exit.clone(),
        };
        let launch = |p: &Pending| wire::Task { id: p.id.clone(), pid: 0, exit: None };
        Answer::Tasks(self.tasks.iter().map(task).chain(self.pending.values().map(launch)).collect())
    }

    fn forget(&mut self, id: &str) {
        if let Some(task) = self.tasks.remove(id) {
            if let (Some(fd), Some(token)) = (&task.pidfd, task.token) {
                self.poll.remove(fd, token);
            }
            if let Some(streams) = task.streams {
                streams.close(&mut self.poll, &mut self.shared);
            }
        }
        let _ = self.exits.compact(self.tasks.values().filter_map(|t| t.exit.as_ref()));
    }

    fn insert(&mut self, id: &str, pid: i32, pidfd: Option<OwnedFd>, streams: Option<Streams>) {
        let task = Task { pid, pidfd, token: None, zombie_since: None, streams, exit: None };
        self.tasks.insert(id.to_owned(), task);
    }

    fn adopt(&mut self, spec: AdoptSpec, fds: Vec<OwnedFd>) -> Result<String, Failure> {
        self.check_id_free(&spec.id)?;
        let mut fds = fds.into_iter();
        let mut next = |held: bool| if held { fds.next() } else { None };
        let pidfd = next(spec.holds.pidfd);
        let mut ends =
            Ends { stdin: next(spec.holds.stdin), stdout: next(spec.holds.terminal), stderr: None };
        let streams = match &spec.launch {
            Some(launch) => {
                if !launch.tty {
                    ends.stdout = launch::open_reader(&launch::fifo(&launch.dir, "stdout")).ok();
                    ends.stderr = launch::open_reader(&launch::fifo(&launch.dir, "stderr")).ok();
                    [&ends.stdout, &ends.stderr].into_iter().flatten().for_each(pipe_size::shrink);
                }
                Some(self.open_streams(launch, ends)?)
            }
            None => None,
        };
        self.insert(&spec.id, spec.pid, pidfd, streams);
        let task = self.tasks.get_mut(&spec.id).ok_or_else(|| not_found(&spec.id))?;
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        match &task.pidfd {
            Some(fd) => task.token = self.poll.add(fd, flags, Source::Process(spec.id.clone())).ok(),
            None => self.record(&spec.id, Ended::UNKNOWN),
        }
        self.check(&spec.id, EpollFlags::empty());
        Ok(spec.id)
    }

    fn open_streams(&mut self, launch: &LaunchSpec, ends: Ends) -> Result<Streams, Failure> {
        let log = match &launch.log {
            Some(path) => Some(ContainerLog::open(path).map_err(|e| Failure::system(path.display(), e))?),
            None => None,
        };
        let streams = Streams::new(&launch.id, ends, log, &mut self.poll);
        let streams = streams.map_err(|e| Failure::system("streams", e))?;
        Ok(streams.with_tty(launch.tty, launch.stdin_once))
    }

    fn stream(&mut self, id: &str, which: StreamId, flags: EpollFlags) {
        let Some(streams) = self.tasks.get_mut(id).and_then(|task| task.streams.as_mut()) else { return };
        if streams.ready(which, flags, &mut self.poll, &mut self.shared) == StreamEvent::StdinClosed {
            self.broadcast(&Message::StdinClosed { id: id.to_owned() });
        }
    }

    fn broadcast(&mut self, message: &Message) {
        for client in self.clients.values_mut() {
            client.tell(message);
        }
    }

    /// A process that is not our child may have ended.
    fn check(&mut self, id: &str, flags: EpollFlags) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let (None, Some(fd)) = (&task.exit, &task.pidfd) else { return };
        if let Some(ended) = pidfd::ended(fd) {
            return self.record(id, ended);
        }
        if flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP) {
            task.zombie_since.get_or_insert_with(Instant::now);
        }
        if task.zombie_since.is_some_and(|since| since.elapsed() > ZOMBIE_TIMEOUT) {
            self.record(id, Ended::UNKNOWN);
        }
    }

    fn reap(&mut self) {
        let mut info = [0; 128 * 8];
        while nix::unistd::read(&self.signals, &mut info).is_ok_and(|n| n > 0) {}
        while let Some((pid, ended)) = pidfd::reap_any() {
            if let Some(pending) = self.pending.remove(&pid) {
                self.adopt_started(pending, ended);
            } else if let Some(id) = self.running(pid) {
                self.record(&id, ended);
            } else if !self.pending.is_empty() {
                self.unclaimed.insert(pid, ended);
            }
        }
        if self.pending.is_empty() {
            self.unclaimed.clear();
        }
    }

    fn running(&self, pid: i32) -> Option<String> {
        self.tasks.iter().find(|(_, t)| t.pid == pid && t.exit.is_none()).map(|(id, _)| id.clone())
    }

    /// The runtime has exited: registers its container as a task, even if that has ended already.
    fn adopt_started(&mut self, mut pending: Pending, ended: Ended) {
        let result = pending.running.finish(ended, &pending.pid_file, &pending.runtime_log).and_then(|pid| {
            let ends = std::mem::take(&mut pending.running.ends);
            let streams = match &pending.launch {
                Some(launch) => Some(self.open_streams(launch, ends)?),
                None => None,
            };
            self.insert(&pending.id, pid, pidfd::open(pid).ok(), streams);
            Ok(pid)
        });
        match result {
            Ok(pid) => {
                self.reply_started(pending.client, pending.seq, Ok(pending.id.clone()));
                if let Some(ended) = self.unclaimed.remove(&pid) {
                    self.record(&pending.id, ended);
                }
            }
            Err(failure) => self.reply_started(pending.client, pending.seq, Err(failure)),
        }
    }

    /// A task ended: reads its remaining output, writes the exit log, then notifies agents.
    fn record(&mut self, id: &str, ended: Ended) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if let Some(streams) = &mut task.streams {
            streams.finish(&mut self.poll, &mut self.shared);
        }
        if let (Some(fd), Some(token)) = (&task.pidfd, task.token.take()) {
            self.poll.remove(fd, token);
        }
        task.zombie_since = None;
        let exit =
            Exit { id: id.to_owned(), pid: task.pid, code: ended.code, signal: ended.signal, at: now() };
        task.exit = Some(exit.clone());
        // On a full disk the log line is lost, but the exit is kept in memory and sent to agents.
        let _ = self.exits.append(&exit);
        self.broadcast(&Message::Exited(exit));
    }
}
