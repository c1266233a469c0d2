//! The listening sockets of the server. They stay open over an upgrade: on SIGUSR2 the server executes the current binary in
//! its place and passes the sockets on, so that clients wait in the accept queue instead of being refused.

use anyhow::Context as _;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigHandler, Signal, signal};
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use tokio::net::TcpSocket;

/// Environment variable with the file descriptor of the listening socket of the previous process.
const INHERITED: &str = "CORACLE_LISTENER";
/// Accept queue of the socket.
const QUEUE: u32 = 1024;

/// The listening sockets.
#[derive(Debug)]
pub struct Listeners<L = tokio::net::TcpListener> {
    /// Bound to the address of the configuration.
    pub own: L,
    /// Inherited by socket activation (`LISTEN_FDS`); its address is the one that is published to clients.
    pub front: Option<L>,
}

impl Listeners {
    /// Takes over the socket of the previous process, or binds a new one when the address has changed.
    pub fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let left = std::env::var(INHERITED).ok().and_then(|number| number.parse().ok());
        let left = left.and_then(|number| inherited(number).ok());
        let own = match left.filter(|left| left.local_addr().is_ok_and(|bound| same(bound, address))) {
            Some(left) => listening(left),
            None => listen(address),
        };
        let own = own.with_context(|| format!("listen on {address}"))?;
        let handed = std::env::var("LISTEN_FDS").as_deref() == Ok("1");
        let front = handed.then(|| inherited(3)).transpose().context("the socket in LISTEN_FDS")?;
        Ok(Self { own, front: front.map(listening).transpose()? })
    }

    /// Detaches the sockets from the runtime.
    pub fn into_std(self) -> io::Result<Listeners<TcpListener>> {
        let front = self.front.map(tokio::net::TcpListener::into_std).transpose()?;
        Ok(Listeners { own: self.own.into_std()?, front })
    }
}

impl Listeners<TcpListener> {
    /// Executes the binary that is now at the path of this one, with the same arguments. Returns only on failure.
    pub fn exec_replacement(self) -> io::Error {
        let kept = std::iter::once(&self.own).chain(&self.front);
        let kept: nix::Result<Vec<_>> =
            kept.map(|socket| fcntl(socket.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))).collect();
        if let Err(error) = kept {
            return error.into();
        }
        // SAFETY: nothing is run by it. The next program is not ended by a second request before it listens for them.
        #[allow(unsafe_code)]
        let _ = unsafe { signal(Signal::SIGUSR2, SigHandler::SigIgn) };
        let program = match std::fs::read_link("/proc/self/exe") {
            Ok(program) => replaced(program.into_os_string()),
            Err(error) => return error,
        };
        let number = self.own.as_raw_fd().to_string();
        let mut command = Command::new(program);
        // Its number may be that of another descriptor by now.
        command.env_remove(coracle_cli::ready::DESCRIPTOR);
        command.args(std::env::args_os().skip(1)).env(INHERITED, number).exec()
    }
}

/// The path of a binary without the suffix that the kernel adds when the file was replaced.
fn replaced(program: OsString) -> OsString {
    match program.as_bytes().strip_suffix(b" (deleted)") {
        Some(path) => OsString::from_vec(path.to_vec()),
        None => program,
    }
}

/// Whether a socket is bound to the configured address; port 0 matches any port.
fn same(bound: SocketAddr, asked: SocketAddr) -> bool {
    bound == asked || (asked.port() == 0 && bound.ip() == asked.ip())
}

/// The listening socket with this file descriptor.
pub(crate) fn inherited(number: RawFd) -> io::Result<TcpListener> {
    // SAFETY: the environment says that the descriptor is ours, and nothing else in this program opens it. One that is not
    // there fails below; one that is no socket is found out by whoever asks for its address.
    #[allow(unsafe_code)]
    let listener = unsafe { TcpListener::from_raw_fd(number) };
    let known = fcntl(listener.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    match known {
        Ok(_) => Ok(listener),
        Err(error) => {
            std::mem::forget(listener);
            Err(error.into())
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}

/// The same for the runtime.
pub(crate) fn listening(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_is_taken_over_when_it_is_the_one_asked_for() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(same(at("127.0.0.1:6443"), at("127.0.0.1:6443")));
        assert!(same(at("127.0.0.1:40001"), at("127.0.0.1:0")));
        assert!(!same(at("127.0.0.1:6443"), at("0.0.0.0:6443")));
        assert!(!same(at("127.0.0.1:6443"), at("127.0.0.1:6444")));
    }

    #[test]
    fn the_newer_program_is_at_the_path_of_the_one_that_is_gone() {
        assert_eq!(replaced("/usr/local/bin/coracle (deleted)".into()), "/usr/local/bin/coracle");
        assert_eq!(replaced("/usr/local/bin/coracle".into()), "/usr/local/bin/coracle");
    }

    #[test]
    fn a_descriptor_that_is_not_there_is_not_taken() {
        assert!(inherited(1_000_000).is_err());
    }
}
