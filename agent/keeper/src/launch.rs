//! Runs the OCI runtime and adopts the container process that it starts.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::pidfd::Ended;
use super::wire::{Failure, FailureKind, LaunchSpec};
use crate::enter::sealed::Sealed;

/// The keeper's ends of a container's streams.
#[derive(Debug, Default)]
pub struct Ends {
    /// Write end.
    pub stdin: Option<OwnedFd>,
    /// Read end, or a terminal's master.
    pub stdout: Option<OwnedFd>,
    /// Read end.
    pub stderr: Option<OwnedFd>,
}

/// An OCI runtime that is running.
#[derive(Debug)]
pub struct Running {
    /// The runtime's process.
    pub pid: i32,
    /// Standard streams; a terminal is added when the runtime has exited.
    pub ends: Ends,
    console: Option<Console>,
}

/// Socket on which the runtime sends the terminal.
#[derive(Debug)]
struct Console {
    path: PathBuf,
    listener: UnixListener,
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Name of a stream's FIFO in a container's directory.
pub fn fifo(dir: &Path, stream: &str) -> PathBuf {
    dir.join(stream)
}

fn make_fifo(dir: &Path, stream: &str) -> io::Result<PathBuf> {
    let path = fifo(dir, stream);
    match mkfifo(&path, Mode::from_bits_truncate(0o600)) {
        Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
        Err(e) => return Err(e.into()),
    }
    // The container's user may reopen /dev/stdout. The directory's mode keeps other users out.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    Ok(path)
}

/// Opens a FIFO's read end without waiting for a writer.
pub fn open_reader(path: &Path) -> io::Result<OwnedFd> {
    Ok(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?.into())
}

/// Starts the runtime for a container.
///
/// The container's own ends are open for reading and writing, so that it neither gets SIGPIPE nor loses output while
/// there is no keeper. `copy` is run instead of the runtime's file.
pub fn start(spec: &LaunchSpec, copy: Option<&Sealed>) -> Result<Running, Failure> {
    let system = |what: &'static str| move |e: io::Error| Failure::system(what, e);
    let mut argv = spec.argv.clone();
    let mut ends = Ends::default();
    let mut console = None;
    let [mut stdin, mut stdout, mut stderr] = [Stdio::null(), Stdio::null(), Stdio::null()];
    if spec.tty {
        let path = spec.pid_file.with_extension("tty");
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(system("console socket"))?;
        listener.set_nonblocking(true).map_err(system("console socket"))?;
        let flags = ["--console-socket".to_owned(), path.to_string_lossy().into_owned()];
        argv.splice(spec.console_at..spec.console_at, flags);
        console = Some(Console { path, listener });
    } else {
        let both = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
        let output = |stream| -> io::Result<(OwnedFd, File)> {
            let path = make_fifo(&spec.dir, stream)?;
            Ok((open_reader(&path)?, both(&path)?))
        };
        let (reader, writer) = output("stdout").map_err(system("stdout"))?;
        (ends.stdout, stdout) = (Some(reader), writer.into());
        let (reader, writer) = output("stderr").map_err(system("stderr"))?;
        (ends.stderr, stderr) = (Some(reader), writer.into());
        if spec.stdin {
            let (reader, writer) = io::pipe().map_err(system("stdin"))?;
            set_nonblocking(&writer).map_err(system("stdin"))?;
            (ends.stdin, stdin) = (Some(writer.into()), reader.into());
        }
    }
    if let (Some(copy), Some(program)) = (copy, argv.first_mut()) {
        *program = copy.path().to_string_lossy().into_owned();
    }
    let pid = spawn(&argv, &spec.dir, [stdin, stdout, stderr])?;
    Ok(Running { pid, ends, console })
}

/// Starts the runtime, or the keeper's own replacement for it, for an exec with descriptors from the agent.
pub fn start_exec(
    argv: &[String],
    instead: Option<&Sealed>,
    stdio: [OwnedFd; 3],
) -> Result<Running, Failure> {
    let mut argv = argv.to_vec();
    if let (Some(sealed), Some(program)) = (instead, argv.first_mut()) {
        *program = sealed.path().to_string_lossy().into_owned();
    }
    let pid = spawn(&argv, Path::new("/"), stdio.map(Stdio::from))?;
    Ok(Running { pid, ends: Ends::default(), console: None })
}

fn spawn(argv: &[String], dir: &Path, [stdin, stdout, stderr]: [Stdio; 3]) -> Result<i32, Failure> {
    let (program, args) = argv.split_first().ok_or_else(|| Failure::system("launch", "no command"))?;
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).stdin(stdin).stdout(stdout).stderr(stderr);
    // If the keeper dies, the runtime must not start a container that nothing tracks. The container itself is not
    // affected: the kernel clears this setting at fork.
    let keeper = std::process::id() as i32;
    // SAFETY: prctl, getppid and sigprocmask are async-signal-safe, and all that runs between fork and exec.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
            // The parent died before prctl.
            if nix::unistd::getppid().as_raw() != keeper {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            nix::sys::signal::SigSet::empty().thread_set_mask()?;
            Ok(())
        });
    }
    let child = command.spawn().map_err(|e| Failure::system(program, e))?;
    // The event loop reaps every child.
    Ok(child.id() as i32)
}

impl Running {
    /// Called when the runtime has exited: the pid of the container process, or the runtime's error. Sets `ends.stdout`
    /// to the terminal, if there is one.
    pub fn finish(&mut self, ended: Ended, pid_file: &Path, runtime_log: &Path) -> Result<i32, Failure> {
        if ended.code != Some(0) {
            let message = runtime_error(runtime_log).unwrap_or_else(|| match ended.signal {
                Some(signal) => format!("the runtime was killed by signal {signal}"),
                None => format!("the runtime exited with code {}", ended.code.unwrap_or(-1)),
            });
            return Err(Failure { kind: FailureKind::Runtime, message });
        }
        if let Some(console) = self.console.take() {
            self.ends.stdout =
                Some(take_terminal(&console.listener).map_err(|e| Failure::system("terminal", e))?);
        }
        let text = fs::read_to_string(pid_file).map_err(|e| Failure::system(pid_file.display(), e))?;
        text.trim().parse().map_err(|e| Failure::system(pid_file.display(), e))
    }
}

/// Does not block: the runtime connects and sends the terminal before it exits.
pub fn take_terminal(listener: &UnixListener) -> io::Result<OwnedFd> {
    let (connection, _) = listener.accept()?;
    connection.set_nonblocking(true)?;
    let mut byte = [0; 64];
    let mut space = nix::cmsg_space!([i32; 1]);
    let mut slices = [io::IoSliceMut::new(&mut byte)];
    let flags = nix::sys::socket::MsgFlags::MSG_CMSG_CLOEXEC;
    let received =
        nix::sys::socket::recvmsg::<()>(connection.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
    for control in received.cmsgs()? {
        if let nix::sys::socket::ControlMessageOwned::ScmRights(fds) = control
            && let Some(fd) = fds.first()
        {
            // SAFETY: the kernel just made this descriptor for us; one fits in the buffer.
            #[allow(unsafe_code)]
            let terminal = unsafe { std::os::fd::FromRawFd::from_raw_fd(*fd) };
            set_nonblocking(&terminal)?;
            return Ok(terminal);
        }
    }
    Err(io::Error::other("the runtime sent no terminal"))
}

/// Makes reads and writes return `EAGAIN` instead of waiting.
pub fn set_nonblocking(fd: &impl std::os::fd::AsFd) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// The last error in a runtime's JSON log.
fn runtime_error(log: &Path) -> Option<String> {
    #[derive(serde::Deserialize, Default)]
    struct Fields {
        #[serde(default)]
        message: String,
    }
    /// runc and crun write `msg`, youki `message`, or before 0.6 `fields.message`.
    #[derive(serde::Deserialize)]
    struct Line {
        level: String,
        #[serde(default, alias = "message")]
        msg: String,
        #[serde(default)]
        fields: Fields,
    }
    let text = fs::read_to_string(log).ok()?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let last = lines.rev().find(|l| matches!(&*l.level.to_ascii_lowercase(), "error" | "fatal"))?;
    Some(if last.msg.is_empty() { last.fields.message } else { last.msg }).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_last_error_of_a_runtime_is_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log.json");
        assert_eq!(runtime_error(&log), None);
        fs::write(
            &log,
            concat!(
                r#"{"level":"warning","msg":"lazy"}"#,
                "\n",
                r#"{"level":"error","msg":"exec: \"nope\": executable file not found in $PATH","time":"x"}"#,
                "\n",
                "half a lin"
            ),
        )
        .unwrap();
        assert_eq!(runtime_error(&log).unwrap(), "exec: \"nope\": executable file not found in $PATH");
        // As youki writes it.
        fs::write(&log, r#"{"timestamp":"x","level":"ERROR","message":"'nope' not found","target":"y"}"#)
            .unwrap();
        assert_eq!(runtime_error(&log).unwrap(), "'nope' not found");
    }
}
