//! Starting and ending processes: holders of namespaces, and programs inside them.

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::PipeReader;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(20);

/// A process, told apart from a later one with the same number by its start time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub started: u64,
}

impl Process {
    /// The process behind a number right now.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: started(pid)? })
    }

    /// Whether it still runs.
    pub fn alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }
}

/// Field 22 of `/proc/<pid>/stat`; `None` for processes that are gone or zombies.
fn started(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18)?.parse().ok())?
}

/// A program that was built or installed beside this one.
pub fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if !path.exists() {
        bail!("{} is missing", path.display());
    }
    Ok(path)
}

/// The loop of a holder: reaps the orphans of its pid namespace.
pub fn hold_forever() -> ! {
    // SAFETY: ignoring a signal installs no handler.
    #[allow(unsafe_code)]
    let ignored = unsafe {
        nix::sys::signal::signal(nix::sys::signal::Signal::SIGCHLD, nix::sys::signal::SigHandler::SigIgn)
    };
    if let Err(error) = ignored {
        eprintln!("children will stay as zombies: {error}");
    }
    loop {
        nix::unistd::pause();
    }
}

/// What the first process of a holder does. A name server's file that is a link into /run leads nowhere beneath the new
/// one: it is made there.
const HOLD: &str = r#"mount -t proc proc /proc && mount -t tmpfs -o mode=755 tmpfs /run && hostname "$1" || exit
names=$(readlink -m /etc/resolv.conf)
case $names in /run/*) mkdir -p "${names%/*}" && : > "$names" ;; esac
[ ! -e "$names" ] || mount --bind "$3" "$names"
exec "$2" hold"#;

/// Starts a holder: the first process of new net, mount, pid, uts and ipc namespaces, where `names` is the file that
/// says who is asked for names. When it ends, the kernel ends every process inside and drops links and mounts with the
/// namespaces.
pub fn hold(hostname: &str, names: &Path) -> anyhow::Result<Process> {
    let holder = std::env::current_exe()?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount", "--pid", "--uts", "--ipc", "--propagation", "private", "--fork", "--"]);
    unshare.args(["sh", "-c", HOLD, "sh", hostname]).arg(&holder).arg(names);
    let child = unshare
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group_of_its_own()
        .spawn()
        .context("unshare")?;
    // unshare forks: the holder is its only child.
    only_child(child.id(), &holder).with_context(|| {
        format!("the namespaces of {hostname} could not be made (unshare, mount and hostname are needed)")
    })
}

/// How long a program may take to begin. The kernel makes network namespaces one after the other: where many are being removed, a
/// new one waits for seconds.
const BEGINS: Duration = Duration::from_secs(60);

/// The only child of a process, when it has become a program; `None` when that takes too long, or they have ended.
fn only_child(parent: u32, program: &Path) -> Option<Process> {
    let begun = Instant::now();
    loop {
        let children =
            std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        if let Some(process) =
            children.split_whitespace().next().and_then(|pid| Process::of(pid.parse().ok()?))
            && std::fs::read_link(format!("/proc/{}/exe", process.pid)).is_ok_and(|exe| exe == program)
        {
            return Some(process);
        }
        if begun.elapsed() > BEGINS || Process::of(parent).is_none() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets a command outlive the terminal it was started from.
trait OwnGroup {
    fn process_group_of_its_own(&mut self) -> &mut Self;
}

impl OwnGroup for Command {
    fn process_group_of_its_own(&mut self) -> &mut Self {
        use std::os::unix::process::CommandExt;
        self.process_group(0)
    }
}

/// Where a program finds its listening socket: the first descriptor of `LISTEN_FDS`.
const LISTENER: RawFd = 3;

/// Starts a program inside a holder's namespaces, its output in `log`. A listening socket is handed over as systemd does. A
/// line in the pipe that is returned says that the program is ready.
fn start_inside(
    holder: &Process,
    program: &Path,
    flags: &[String],
    log: &Path,
    listener: Option<RawFd>,
) -> anyhow::Result<(Process, PipeReader)> {
    let (ready, writer) = std::io::pipe()?;
    // What has the number of the listener would be replaced by it.
    let writer = if writer.as_raw_fd() == LISTENER { writer.try_clone()? } else { writer };
    let output = File::create(log).with_context(|| log.display().to_string())?;
    let mut command = Command::new("nsenter");
    command.args(["-t", &holder.pid.to_string(), "--net", "--mount", "--pid", "--uts", "--ipc", "--"]);
    if let Some(fd) = listener {
        // Descriptor 3 and LISTEN_FDS; the shell is there to put the socket in its place.
        nix::fcntl::fcntl(borrowed(fd), nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
        let script = format!("exec 3<&{fd}; [ {fd} = 3 ] || exec {fd}<&-; export LISTEN_FDS=1; exec \"$@\"");
        command.args(["sh", "-c", &script, "sh"]);
    }
    command.env(coracle_cli::ready::DESCRIPTOR, inherited(&writer)?.to_string());
    command.arg(program).args(flags).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    Ok((start(command, program, log)?, ready))
}

/// Starts a program inside a holder's namespaces, below a process that starts it again; that one is returned, and the pipe
/// in which the program says that it is ready.
pub fn start_supervised(
    holder: &Process,
    program: &Path,
    flags: Vec<String>,
    log: &Path,
    listener: Option<RawFd>,
) -> anyhow::Result<(Process, PipeReader)> {
    let mut words = vec!["supervise".to_owned(), "--".to_owned(), program.display().to_string()];
    words.extend(flags);
    start_inside(holder, &beside("coracle")?, &words, log, listener)
}

/// Starts a program in a holder's pid namespace, so that it ends with the holder, and everything else as it is here.
pub fn start_beside(
    holder: &Process,
    program: &Path,
    flags: &[String],
    log: &Path,
) -> anyhow::Result<Process> {
    let output = File::create(log).with_context(|| log.display().to_string())?;
    let mut command = Command::new("nsenter");
    command.args(["-t", &holder.pid.to_string(), "--pid", "--"]).arg(program).args(flags);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    start(command, program, log)
}

/// nsenter forks to enter the pid namespace; the program is its child.
fn start(mut nsenter: Command, program: &Path, log: &Path) -> anyhow::Result<Process> {
    let child = nsenter.process_group_of_its_own().spawn().context("nsenter")?;
    only_child(child.id(), program).with_context(|| {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        format!("{} did not start: {text}", program.display())
    })
}

/// Lets programs started from now on have a descriptor; returns its number.
pub fn inherited(fd: impl AsFd) -> anyhow::Result<RawFd> {
    nix::fcntl::fcntl(fd.as_fd(), nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
    Ok(fd.as_fd().as_raw_fd())
}

fn borrowed(fd: RawFd) -> std::os::fd::BorrowedFd<'static> {
    // SAFETY: the caller's listener stays open until the child was started.
    #[allow(unsafe_code)]
    unsafe {
        std::os::fd::BorrowedFd::borrow_raw(fd)
    }
}

fn signal(process: &Process, signal: nix::sys::signal::Signal) {
    if process.alive() {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(process.pid as i32), signal);
    }
}

/// Asks a process to end and waits; one that does not is killed.
pub fn stop(process: &Process) {
    signal(process, nix::sys::signal::Signal::SIGTERM);
    let begun = Instant::now();
    while process.alive() && begun.elapsed() < GRACE {
        std::thread::sleep(Duration::from_millis(5));
    }
    end(process);
}

/// Kills a process and waits until it is gone.
pub fn end(process: &Process) {
    signal(process, nix::sys::signal::Signal::SIGKILL);
    let begun = Instant::now();
    while process.alive() && begun.elapsed() < GRACE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The control group of a node. Several clusters may run on one machine, in pid namespaces of their own too.
pub fn cgroup(hub: &Process, node: &str) -> String {
    format!("coracle-{}-{}-{node}", hub.pid, hub.started)
}

/// Removes a node's control groups, deepest first, wherever a cgroup2 hierarchy is mounted.
pub fn remove_cgroups(name: &str) {
    for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
        let top = Path::new(root).join(name);
        let begun = Instant::now();
        // What was killed takes a moment to leave its groups.
        while top.exists() && begun.elapsed() < GRACE {
            remove_tree(&top);
            if top.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

fn remove_tree(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(dir);
}
