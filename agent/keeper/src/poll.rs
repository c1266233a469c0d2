//! epoll with a token per descriptor.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// What a descriptor is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Agents connect.
    Listener,
    /// Children end.
    Signals,
    /// An agent speaks.
    Client(u64),
    /// A task's process.
    Process(String),
    /// A task's stream.
    Stream(String, StreamId),
}

/// Streams of a task; the number is an attachment's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamId {
    /// Container's stdout or terminal.
    Stdout,
    /// Container's stderr.
    Stderr,
    /// Container's stdin has room.
    Stdin,
    /// An attachment's input.
    AttachIn(u64),
    /// An attachment's output has room or is gone.
    AttachOut(u64),
    /// An attachment's error output has room or is gone.
    AttachErr(u64),
}

/// Handle of a registered descriptor.
pub type Token = u64;

/// All registered descriptors.
pub struct Poll {
    epoll: Epoll,
    next: Token,
    sources: HashMap<Token, Source>,
}

impl Poll {
    /// An empty set.
    pub fn new() -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, next: 0, sources: HashMap::new() })
    }

    /// Registers a descriptor until it is closed or removed.
    pub fn add(&mut self, fd: impl AsFd, flags: EpollFlags, source: Source) -> nix::Result<Token> {
        self.next += 1;
        self.epoll.add(fd, EpollEvent::new(flags, self.next))?;
        self.sources.insert(self.next, source);
        Ok(self.next)
    }

    /// Changes what is waited for.
    pub fn modify(&self, fd: impl AsFd, token: Token, flags: EpollFlags) {
        let _ = self.epoll.modify(fd, &mut EpollEvent::new(flags, token));
    }

    /// Unregisters a descriptor. Call it before closing: a duplicate elsewhere would keep it registered.
    pub fn remove(&mut self, fd: impl AsFd, token: Token) {
        debug_assert!(fd.as_fd().as_raw_fd() >= 0);
        let _ = self.epoll.delete(fd);
        self.sources.remove(&token);
    }

    /// Waits for the next events.
    pub fn wait(&self, timeout: EpollTimeout) -> nix::Result<Vec<(Token, EpollFlags)>> {
        let mut events = [EpollEvent::empty(); 64];
        match self.epoll.wait(&mut events, timeout) {
            Ok(n) => Ok(events[..n].iter().map(|e| (e.data(), e.events())).collect()),
            Err(Errno::EINTR) => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// What a token stands for; none if it was removed while its event was pending.
    pub fn source(&self, token: Token) -> Option<Source> {
        self.sources.get(&token).cloned()
    }
}
