//! A netlink socket in the network namespace of the thread that opened it.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockname, recv,
        send, setsockopt, socket, sockopt,
    },
};

use super::{
    Error, Message, Result,
    message::{Answer, Attributes, answers, u32_at},
};

/// Which part of the kernel is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Links, addresses, routes.
    Route,
    /// Netfilter.
    Netfilter,
}

/// A socket; requests on it are answered in order.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket in the current network namespace, where it stays.
    pub fn open(protocol: Protocol) -> Result<Self> {
        let protocol = match protocol {
            Protocol::Route => SockProtocol::NetlinkRoute,
            Protocol::Netfilter => SockProtocol::NetlinkNetFilter,
        };
        Self::with_groups(protocol, 0, SockFlag::SOCK_CLOEXEC)
    }

    /// Opens a socket that only hears notifications of multicast groups (a mask) and never blocks.
    pub fn listen(protocol: Protocol, groups: u32) -> Result<Self> {
        let protocol = match protocol {
            Protocol::Route => SockProtocol::NetlinkRoute,
            Protocol::Netfilter => SockProtocol::NetlinkNetFilter,
        };
        Self::with_groups(protocol, groups, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)
    }

    fn with_groups(protocol: SockProtocol, groups: u32, flags: SockFlag) -> Result<Self> {
        let open = || -> nix::Result<OwnedFd> {
            let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
            bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
            Ok(fd)
        };
        Ok(Socket { fd: open().map_err(Error::Socket)?, sequence: 0, buffer: vec![0; 64 << 10] })
    }

    /// The number the kernel knows the socket by.
    pub fn port(&self) -> Result<u32> {
        let address: NetlinkAddr = getsockname(self.fd.as_raw_fd()).map_err(Error::Socket)?;
        Ok(address.pid())
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
            datagram.extend_from_slice(message.seal(self.sequence, libc::NLM_F_ACK as u16));
        }
        self.send(&datagram)?;
        let mut failure: Option<(usize, Error)> = None;
        let mut open = messages.len();
        while open > 0 {
            let n = self.receive()?;
            for answer in answers(&self.buffer[..n]) {
                let Some(index) = answer.sequence.checked_sub(first).map(|i| i as usize) else { continue };
                let (true, Some(message)) = (answer.kind == libc::NLMSG_ERROR as u16, messages.get(index))
                else {
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
    pub fn query(&mut self, mut message: Message, mut each: impl FnMut(&[u8])) -> Result<()> {
        message.check()?;
        self.sequence += 1;
        let sequence = self.sequence;
        self.send(message.seal(sequence, libc::NLM_F_ACK as u16))?;
        loop {
            let n = self.receive()?;
            for answer in answers(&self.buffer[..n]).filter(|a| a.sequence == sequence) {
                match i32::from(answer.kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return outcome(&answer, message.action()),
                    libc::NLMSG_NOOP => {}
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
            let flags = if at == last { libc::NLM_F_ACK as u16 } else { 0 };
            datagram.extend_from_slice(message.seal(first + 1 + at as u32, flags));
        }
        self.sequence = first + messages.len() as u32 + 1;
        datagram.extend_from_slice(end.seal(self.sequence, 0));
        if datagram.len() > 100_000 {
            // A send buffer that is too small fails the send below: nothing else is lost.
            let _ = setsockopt(&self.fd, sockopt::SndBufForce, &(datagram.len() * 2));
        }
        self.send(&datagram)?;
        let mut failure = None;
        loop {
            let n = self.receive()?;
            for answer in answers(&self.buffer[..n]) {
                let Some(offset) = answer.sequence.checked_sub(first).map(|o| o as usize) else { continue };
                if answer.kind != libc::NLMSG_ERROR as u16 {
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
            match send(self.fd.as_raw_fd(), bytes, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::Socket(errno)),
                Ok(_) => return Ok(()),
            }
        }
    }

    fn receive(&mut self) -> Result<usize> {
        loop {
            match recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::Socket(errno)),
                Ok(n) => return Ok(n),
            }
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn outcome(answer: &Answer<'_>, action: &str) -> Result<()> {
    let code = u32_at(answer.payload, 0) as i32;
    if code == 0 {
        return Ok(());
    }
    // With an extended acknowledgement, attributes follow the echoed header; they are only there if asked for.
    let message = Some(answer)
        .filter(|a| a.flags & 0x200 != 0)
        .and_then(|a| Attributes::new(a.payload.get(20..)?).find_kind(1))
        .map(|text| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
    Err(Error::Refused {
        action: action.to_owned(),
        errno: Errno::from_raw(-code),
        message: message.unwrap_or_default(),
    })
}
