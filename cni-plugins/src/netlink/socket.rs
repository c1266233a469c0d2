//! A netlink socket in the network namespace of the thread that opened it.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
};

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP};
use netlink_sys::{
    SocketAddr,
    protocols::{NETLINK_NETFILTER, NETLINK_ROUTE},
};
use nix::{
    errno::Errno,
    sys::socket::{setsockopt, sockopt},
};

use super::{
    Error, Message, Result,
    message::answers,
    outcome::{done, outcome},
};

/// Attempts to read a list that changes while it is read (`NLM_F_DUMP_INTR`).
const ATTEMPTS: usize = 10;

/// Netlink protocol family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Links, addresses, routes.
    Route,
    /// Netfilter.
    Netfilter,
}

impl Protocol {
    fn open(self, groups: u32) -> io::Result<netlink_sys::Socket> {
        let mut socket = netlink_sys::Socket::new(match self {
            Protocol::Route => NETLINK_ROUTE,
            Protocol::Netfilter => NETLINK_NETFILTER,
        })?;
        socket.bind(&SocketAddr::new(0, groups))?;
        Ok(socket)
    }
}

/// A socket; requests on it are answered in order.
#[derive(Debug)]
pub struct Socket {
    inner: netlink_sys::Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket in the current network namespace, where it stays.
    pub fn open(protocol: Protocol) -> Result<Self> {
        let inner = protocol.open(0).map_err(Error::io)?;
        // Ask for extended error messages without a copy of the request; older kernels return only a code.
        let _ = inner.set_ext_ack(true);
        let _ = inner.set_cap_ack(true);
        Ok(Self::new(inner))
    }

    /// Opens a non-blocking socket that receives notifications of multicast groups (a mask).
    pub fn listen(protocol: Protocol, groups: u32) -> Result<Self> {
        let inner = protocol.open(groups).map_err(Error::io)?;
        inner.set_non_blocking(true).map_err(Error::io)?;
        Ok(Self::new(inner))
    }

    fn new(inner: netlink_sys::Socket) -> Self {
        Socket { inner, sequence: 0, buffer: vec![0; 64 << 10] }
    }

    /// Netlink port id of the socket.
    pub fn port(&self) -> Result<u32> {
        let mut address = SocketAddr::new(0, 0);
        self.inner.get_address(&mut address).map_err(Error::io)?;
        Ok(address.port_number())
    }

    /// Reads notifications until there are no more: type, sender's port and payload of each.
    ///
    /// `ENOBUFS` says that some were lost.
    pub fn notifications(&mut self, mut each: impl FnMut(u16, u32, &[u8])) -> Result<()> {
        loop {
            match self.receive() {
                Err(Error::Socket(Errno::EAGAIN)) => return Ok(()),
                Err(error) => return Err(error),
                Ok(n) => {
                    answers(&self.buffer[..n]).for_each(|a| each(a.kind, a.port, a.payload));
                }
            }
        }
    }

    /// Runs requests, all sent at once; the first failure in their order. All were tried.
    pub fn execute(&mut self, mut messages: Vec<Message>) -> Result<()> {
        messages.iter().try_for_each(Message::check)?;
        let first = self.sequence + 1;
        let mut datagram = Vec::new();
        for message in &mut messages {
            self.sequence += 1;
            datagram.extend_from_slice(message.seal(self.sequence, NLM_F_ACK));
        }
        self.send(&datagram)?;
        let mut failure: Option<(usize, Error)> = None;
        let mut open = messages.len();
        while open > 0 {
            let n = self.receive()?;
            for answer in answers(&self.buffer[..n]) {
                let Some(index) = answer.sequence.checked_sub(first).map(|i| i as usize) else { continue };
                let (true, Some(message)) = (answer.kind == NLMSG_ERROR, messages.get(index)) else {
                    continue;
                };
                open -= 1;
                if let Err(e) = outcome(&answer, message.action())
                    && failure.as_ref().is_none_or(|(at, _)| index < *at)
                {
                    failure = Some((index, e));
                }
            }
        }
        failure.map_or(Ok(()), |(_, e)| Err(e))
    }

    /// Runs one request.
    pub fn run(&mut self, message: Message) -> Result<()> {
        self.execute(vec![message])
    }

    /// Asks for one object or, with `NLM_F_DUMP`, for all; calls `each` with every payload.
    pub fn query(&mut self, mut message: Message, each: impl FnMut(&[u8])) -> Result<()> {
        self.exchange(&mut message, each).map(drop)
    }

    /// Asks for all objects: what `read` makes of their payloads. A list that changed while it was read is read again.
    pub(crate) fn list<T>(
        &mut self,
        mut message: Message,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>> {
        for _ in 0..ATTEMPTS {
            let mut found = Vec::new();
            if self.exchange(&mut message, |payload| found.extend(read(payload)))? {
                return Ok(found);
            }
        }
        Err(Error::Refused {
            action: message.action().to_owned(),
            errno: Errno::EINTR,
            message: format!("changed {ATTEMPTS} times while it was read"),
        })
    }

    /// Sends a request and reads all of its answer; false when objects changed meanwhile, so that some may be missing.
    fn exchange(&mut self, message: &mut Message, mut each: impl FnMut(&[u8])) -> Result<bool> {
        message.check()?;
        self.sequence += 1;
        let sequence = self.sequence;
        self.send(message.seal(sequence, NLM_F_ACK))?;
        let mut consistent = true;
        loop {
            let n = self.receive()?;
            for answer in answers(&self.buffer[..n]).filter(|a| a.sequence == sequence) {
                consistent &= answer.flags & NLM_F_DUMP_INTR == 0;
                match answer.kind {
                    NLMSG_DONE => return done(&answer, message.action()).map(|()| consistent),
                    NLMSG_ERROR => return outcome(&answer, message.action()).map(|()| consistent),
                    NLMSG_NOOP => {}
                    _ => each(answer.payload),
                }
            }
        }
    }

    /// Sends a batch that is applied as a whole or not at all: `begin`, requests, `end`.
    ///
    /// Only the last request is acknowledged, so that thousands of them do not flood the socket.
    pub(crate) fn transact(
        &mut self,
        begin: Message,
        mut messages: Vec<Message>,
        end: Message,
    ) -> Result<()> {
        messages.iter().try_for_each(Message::check)?;
        let first = self.sequence + 1;
        let last = messages.len().saturating_sub(1);
        let (mut begin, mut end) = (begin, end);
        let mut datagram = begin.seal(first, 0).to_vec();
        for (at, message) in messages.iter_mut().enumerate() {
            let flags = if at == last { NLM_F_ACK } else { 0 };
            datagram.extend_from_slice(message.seal(first + 1 + at as u32, flags));
        }
        self.sequence = first + messages.len() as u32 + 1;
        datagram.extend_from_slice(end.seal(self.sequence, 0));
        if datagram.len() > 100_000 {
            // A send buffer that is too small fails the send below: nothing else is lost.
            let _ = setsockopt(&self.inner, sockopt::SndBufForce, &(datagram.len() * 2));
        }
        self.send(&datagram)?;
        let mut failure = None;
        loop {
            let n = self.receive()?;
            for answer in answers(&self.buffer[..n]) {
                let Some(offset) = answer.sequence.checked_sub(first).map(|o| o as usize) else { continue };
                if answer.kind != NLMSG_ERROR {
                    continue;
                }
                let message = offset.checked_sub(1).and_then(|index| messages.get(index));
                let action = message.map_or("committing the batch", Message::action);
                let result = outcome(&answer, action);
                if failure.is_none() {
                    failure = result.err();
                }
                if offset == last + 1 || message.is_none() {
                    return failure.map_or(Ok(()), Err);
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        loop {
            match self.inner.send(bytes, 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map(drop).map_err(Error::io),
            }
        }
    }

    fn receive(&mut self) -> Result<usize> {
        loop {
            let mut space = self.buffer.as_mut_slice();
            match self.inner.recv(&mut space, 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map_err(Error::io),
            }
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}
