//! The sockets that clients come to. They outlive the program behind them: a server that is told to begin again executes the
//! newest program in its place and hands them on, and clients wait in the kernel's queue for a moment instead of being refused.

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

/// Says which descriptor is the listening socket of the program before.
const INHERITED: &str = "CORACLE_LISTENER";
/// How many clients may wait to be let in.
const QUEUE: u32 = 1024;

/// Where clients come in.
#[derive(Debug)]
pub struct Doors<L = tokio::net::TcpListener> {
    /// At the address of the configuration.
    pub own: L,
    /// Handed over by whoever started us, the way systemd does; it is where clients are told to come.
    pub front: Option<L>,
}

impl Doors {
    /// Takes over what the program before left open, or listens anew when the address is another one.
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

    /// Without the runtime that waited for clients.
    pub fn leave(self) -> io::Result<Doors<TcpListener>> {
        let front = self.front.map(tokio::net::TcpListener::into_std).transpose()?;
        Ok(Doors { own: self.own.into_std()?, front })
    }
}

impl Doors<TcpListener> {
    /// Executes the program that is now where this one was, with the same arguments. Returns only when that fails.
    pub fn hand_on(self) -> io::Error {
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
        Command::new(program).args(std::env::args_os().skip(1)).env(INHERITED, number).exec()
    }
}

/// The path of a program of which the kernel says that it was replaced.
fn replaced(program: OsString) -> OsString {
    match program.as_bytes().strip_suffix(b" (deleted)") {
        Some(path) => OsString::from_vec(path.to_vec()),
        None => program,
    }
}

/// Any port is good when none was asked for.
fn same(bound: SocketAddr, asked: SocketAddr) -> bool {
    bound == asked || (asked.port() == 0 && bound.ip() == asked.ip())
}

/// The listening socket with this number.
fn inherited(number: RawFd) -> io::Result<TcpListener> {
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

fn listening(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
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
