//! One connected agent.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::poll::{Poll, Token};
use super::wire::{self, Answer, Failure, Holds, Message};

/// A connection. It is dropped if the agent does not read its messages; after reconnecting, the agent lists the tasks again.
pub struct Client {
    socket: OwnedFd,
    token: Token,
    /// `Call::Hello` was received.
    pub greeted: bool,
    /// To be dropped.
    pub broken: bool,
}

impl Client {
    /// A connection before its first request.
    pub fn new(socket: OwnedFd, token: Token) -> Self {
        Self { socket, token, greeted: false, broken: false }
    }

    /// Its next request.
    pub fn receive(&self) -> nix::Result<Option<(wire::Request, Vec<OwnedFd>)>> {
        wire::receive(&self.socket)
    }

    /// Answers a request.
    pub fn reply(&mut self, seq: u64, result: Result<(Answer, Vec<&OwnedFd>), Failure>) {
        let (result, fds) = match result {
            Ok((answer, fds)) => (Ok(answer), fds.iter().map(|fd| fd.as_raw_fd()).collect()),
            Err(failure) => (Err(failure), Vec::new()),
        };
        self.send(&Message::Reply { seq, result }, &fds);
    }

    /// Sends an event, if `Call::Hello` was received.
    pub fn tell(&mut self, message: &Message) {
        if self.greeted {
            self.send(message, &[]);
        }
    }

    fn send(&mut self, message: &Message, fds: &[RawFd]) {
        self.broken |= wire::send(&self.socket, message, fds).is_err();
    }

    /// Unregisters and closes the connection.
    pub fn close(self, poll: &mut Poll) {
        poll.remove(&self.socket, self.token);
    }
}

/// The answer for a process with its descriptors.
pub fn started<'a>(
    pid: i32,
    pidfd: Option<&'a OwnedFd>,
    stdin: Option<&'a OwnedFd>,
    terminal: Option<&'a OwnedFd>,
) -> (Answer, Vec<&'a OwnedFd>) {
    let holds = Holds { pidfd: pidfd.is_some(), stdin: stdin.is_some(), terminal: terminal.is_some() };
    (Answer::Started { pid, holds }, [pidfd, stdin, terminal].into_iter().flatten().collect())
}
