//! The protocol between agent and keeper: one JSON message per packet on a unix seqpacket socket, descriptors beside it.
//!
//! Fields are only ever added: an agent and a keeper of different releases work together while [`VERSION`] is equal. An agent
//! that finds another version leaves the keeper running and reports an error.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::exits::Exit;

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// Protocol version.
pub const VERSION: u32 = 1;
/// No message is longer.
pub const MAX_PACKET: usize = 128 << 10;
/// No message carries more descriptors.
pub const MAX_FDS: usize = 4;

/// A message of the agent.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// Comes back in the reply.
    pub seq: u64,
    /// The call.
    pub call: Call,
}

/// Requests of the agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// First message on a connection; exits are reported from here on.
    Hello {
        /// Protocol version of the agent.
        version: u32,
    },
    /// Clone `pause`. With a descriptor: the cgroup to clone it into. Reply: pidfd.
    Sandbox(SandboxSpec),
    /// Run the OCI runtime for a container. Reply: [`Answer::Started`].
    Launch(LaunchSpec),
    /// Run the OCI runtime for an exec. Descriptors: stdin, stdout, stderr. Reply when the process is started: pidfd.
    Exec(ExecSpec),
    /// Kill the OCI runtime of a launch or exec that takes too long.
    Abort {
        /// Id of the launch.
        id: String,
    },
    /// Join a container's streams. Descriptors: those asked for, in this order.
    Attach {
        /// Id of the container.
        id: String,
        /// First descriptor is read from.
        stdin: bool,
        /// Next is written to.
        stdout: bool,
        /// Next is written to.
        stderr: bool,
    },
    /// Open the log path again.
    Reopen {
        /// Id of the container.
        id: String,
    },
    /// Set the terminal's size.
    Resize {
        /// Id of the container.
        id: String,
        /// New size.
        size: TerminalSize,
    },
    /// Descriptors of a task, for an agent that was started after it.
    Descriptors {
        /// Id of the task.
        id: String,
    },
    /// Adopt a task of a keeper that died. Descriptors as in [`Answer::Started`].
    Adopt(AdoptSpec),
    /// Every task, with exits not yet forgotten.
    List,
    /// The agent has recorded the exit and removed the task.
    Forget {
        /// Id of the task.
        id: String,
    },
}

/// A sandbox's namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Sandbox id.
    pub id: String,
    /// Directory that becomes the root of `pause`; holds only it.
    pub root: PathBuf,
    /// New network namespace.
    pub net: bool,
    /// New IPC namespace.
    pub ipc: bool,
    /// New UTS namespace.
    pub uts: bool,
    /// New PID namespace.
    pub pid: bool,
    /// New user namespace with these lines of uid_map and gid_map.
    pub user: Option<UserMaps>,
    /// Host name, empty to leave.
    pub hostname: String,
    /// Kernel parameters in the namespaces, dots in their names.
    pub sysctls: BTreeMap<String, String>,
    /// Who `pause` runs as.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// oom_score_adj; refused values are left out.
    pub oom_score_adj: i32,
}

/// Contents of uid_map and gid_map.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserMaps {
    /// Lines of `container host length`.
    pub uid: String,
    /// Likewise for groups.
    pub gid: String,
}

/// One run of the OCI runtime for a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// Container id.
    pub id: String,
    /// Runtime and arguments, without `--console-socket`.
    pub argv: Vec<String>,
    /// A sealed copy of the runtime runs, which the keeper keeps: it need not make one itself.
    #[serde(default)]
    pub sealed: bool,
    /// Where the runtime's flags `--console-socket` go: before this index.
    pub console_at: usize,
    /// Working directory of the runtime: the bundle; FIFOs live here.
    pub dir: PathBuf,
    /// Where the runtime writes the container's pid.
    pub pid_file: PathBuf,
    /// The runtime's own log (JSON lines), for errors.
    pub runtime_log: PathBuf,
    /// CRI log file; none to drop output.
    pub log: Option<PathBuf>,
    /// With a terminal.
    pub tty: bool,
    /// With stdin.
    pub stdin: bool,
    /// stdin ends with the first attach.
    pub stdin_once: bool,
}

/// One run of the OCI runtime for an exec.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecSpec {
    /// Exec id, unique among tasks.
    pub id: String,
    /// Runtime and arguments, complete.
    pub argv: Vec<String>,
    /// The program is the keeper itself: a sealed copy runs.
    #[serde(default)]
    pub own: bool,
    /// Where the runtime writes the process's pid.
    pub pid_file: PathBuf,
    /// The runtime's own log.
    pub runtime_log: PathBuf,
}

/// A task as its agent knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptSpec {
    /// Task id.
    pub id: String,
    /// Its process.
    pub pid: i32,
    /// As it was launched; none for sandboxes.
    pub launch: Option<LaunchSpec>,
    /// Which descriptors come with it.
    pub holds: Holds,
}

/// Which descriptors stand beside a message, in this order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// A pidfd.
    pub pidfd: bool,
    /// Write end of stdin.
    pub stdin: bool,
    /// A terminal's master.
    pub terminal: bool,
}

/// A message of the keeper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Reply to a request.
    Reply {
        /// Sequence number of the request.
        seq: u64,
        /// The result.
        result: Result<Answer, Failure>,
    },
    /// A task ended; its output is in the log already.
    Exited(Exit),
    /// stdin of a `stdin_once` container ended; agents close their write end.
    StdinClosed {
        /// Id of the container.
        id: String,
    },
}

/// Successful results of calls.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The call succeeded.
    Done,
    /// Reply to [`Call::Hello`].
    Hello {
        /// Protocol version of the keeper.
        version: u32,
        /// The keeper's process.
        pid: i32,
    },
    /// A process runs (or has already ended: its exit follows).
    Started {
        /// As the keeper sees it.
        pid: i32,
        /// Descriptors beside this message.
        holds: Holds,
    },
    /// Reply to [`Call::List`].
    Tasks(Vec<Task>),
}

/// An entry of `List`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Task id.
    pub id: String,
    /// Its process; 0 while the OCI runtime is running.
    pub pid: i32,
    /// How it ended, when it did.
    pub exit: Option<Exit>,
}

/// An error of the keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What the caller can do about it.
    pub kind: FailureKind,
    /// Human-readable; the OCI runtime's own error if it failed.
    pub message: String,
}

/// Kinds of [`Failure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// No task with this id.
    NotFound,
    /// The id is taken.
    Exists,
    /// The OCI runtime failed.
    Runtime,
    /// A system call failed.
    System,
}

impl Failure {
    /// A failed system call.
    pub fn system(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Self { kind: FailureKind::System, message: format!("{what}: {error}") }
    }
}

/// Sends one packet. `EAGAIN` when the peer does not read.
pub fn send<T: Serialize>(socket: impl AsFd, message: &T, fds: &[RawFd]) -> Result<(), Errno> {
    let bytes = serde_json::to_vec(message).map_err(|_| Errno::EINVAL)?;
    if bytes.len() > MAX_PACKET {
        return Err(Errno::EMSGSIZE);
    }
    let control = [ControlMessage::ScmRights(fds)];
    let control: &[_] = if fds.is_empty() { &[] } else { &control };
    let raw = socket.as_fd().as_raw_fd();
    sendmsg::<()>(raw, &[IoSlice::new(&bytes)], control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Receives one packet; `None` at the end. A packet that is not a `T` is `EBADMSG`.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> Result<Option<(T, Vec<OwnedFd>)>, Errno> {
    let mut buffer = vec![0; MAX_PACKET];
    let mut space = cmsg_space!([RawFd; MAX_FDS]);
    let (length, fds) = {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let raw = socket.as_fd().as_raw_fd();
        let received = recvmsg::<()>(raw, &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
        let mut fds = Vec::new();
        for control in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = control {
                // SAFETY: the kernel just created these descriptors for this process; nothing else owns them.
                #[allow(unsafe_code)]
                fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        (received.bytes, fds)
    };
    if length == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&buffer[..length]).map_err(|_| Errno::EBADMSG)?;
    Ok(Some((message, fds)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use std::io::{Read, Write};

    #[test]
    fn packets_carry_messages_and_descriptors() {
        let (a, b) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let request = Request { seq: 7, call: Call::Forget { id: "x".into() } };
        send(&a, &request, &[writer.as_raw_fd()]).unwrap();
        drop(writer);
        let (received, fds) = receive::<Request>(&b).unwrap().unwrap();
        assert_eq!(received.seq, 7);
        assert!(matches!(received.call, Call::Forget { id } if id == "x"));
        std::fs::File::from(fds.into_iter().next().unwrap()).write_all(b"hi").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hi");
        drop(a);
        assert!(receive::<Request>(&b).unwrap().is_none());
    }

    #[test]
    fn junk_is_an_error_not_a_panic() {
        let (a, b) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        nix::unistd::write(&a, b"\0junk").unwrap();
        assert_eq!(receive::<Request>(&b).unwrap_err(), Errno::EBADMSG);
    }
}
