//! Streams of one container: output goes to its log and to attached clients, input comes from attached clients.
//!
//! A slow attached client slows the container down, as a terminal would. A client that has disconnected is dropped.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::unistd::{read, write};

use super::launch::Ends;
use super::log::{ContainerLog, Stream};
use super::pipe_size::{self, PipeSize};
use super::poll::{Poll, Source, StreamId, Token};
use super::shared::Shared;
use super::wire::TerminalSize;

/// The most that is read from an attached client at once: it is kept until the container takes it.
const INPUT_CHUNK: usize = 32 << 10;
const READ: EpollFlags = EpollFlags::EPOLLIN;
const WRITE: EpollFlags = EpollFlags::EPOLLOUT;

/// A registered descriptor.
struct Watched {
    fd: OwnedFd,
    token: Token,
}

/// One output of an attachment, with bytes that are not written yet.
struct Sink {
    watched: Watched,
    pending: Vec<u8>,
}

struct Attachment {
    number: u64,
    stdin: Option<Watched>,
    out: Option<Sink>,
    err: Option<Sink>,
}

/// What the event loop must do after an event.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// Nothing.
    Nothing,
    /// Tell agents that stdin is closed.
    StdinClosed,
}

/// The streams of one container.
pub struct Streams {
    id: String,
    stdin: Option<Watched>,
    stdin_pending: Vec<u8>,
    /// Close stdin when what is pending is written.
    stdin_ending: bool,
    stdin_once: bool,
    tty: bool,
    stdout: Option<Watched>,
    stderr: Option<Watched>,
    /// Of stdout and stderr.
    pipes: [PipeSize; 2],
    log: Option<ContainerLog>,
    attachments: Vec<Attachment>,
    next: u64,
}

impl Streams {
    /// Starts to serve the ends of a container's streams.
    pub fn new(id: &str, ends: Ends, log: Option<ContainerLog>, poll: &mut Poll) -> nix::Result<Self> {
        let mut watch = |fd: Option<OwnedFd>, which, flags| -> nix::Result<Option<Watched>> {
            let Some(fd) = fd else { return Ok(None) };
            let token = poll.add(&fd, flags, Source::Stream(id.to_owned(), which))?;
            Ok(Some(Watched { fd, token }))
        };
        Ok(Self {
            id: id.to_owned(),
            stdin: watch(ends.stdin, StreamId::Stdin, EpollFlags::empty())?,
            stdin_pending: Vec::new(),
            stdin_ending: false,
            stdin_once: false,
            tty: false,
            stdout: watch(ends.stdout, StreamId::Stdout, READ)?,
            stderr: watch(ends.stderr, StreamId::Stderr, READ)?,
            pipes: Default::default(),
            log,
            attachments: Vec::new(),
            next: 0,
        })
    }

    /// With a terminal, input goes to the same descriptor that output comes from.
    pub fn with_tty(mut self, tty: bool, stdin_once: bool) -> Self {
        (self.tty, self.stdin_once) = (tty, stdin_once);
        self
    }

    /// The terminal's master.
    pub fn terminal(&self) -> Option<&OwnedFd> {
        self.stdout.as_ref().filter(|_| self.tty).map(|w| &w.fd)
    }

    /// Write end of stdin.
    pub fn stdin(&self) -> Option<&OwnedFd> {
        self.stdin.as_ref().map(|w| &w.fd)
    }

    /// Opens the log again.
    pub fn reopen(&mut self) -> std::io::Result<()> {
        self.log.as_mut().map_or(Ok(()), ContainerLog::reopen)
    }

    /// Sets the terminal's size.
    pub fn resize(&self, size: TerminalSize) -> nix::Result<()> {
        self.terminal().map_or(Ok(()), |fd| resize(fd, size))
    }

    /// Joins the streams.
    pub fn attach(&mut self, fds: [Option<OwnedFd>; 3], poll: &mut Poll) -> nix::Result<()> {
        self.next += 1;
        let number = self.next;
        let [stdin, out, err] = fds;
        let id = &self.id;
        let mut watch = |fd: Option<OwnedFd>, which, flags| -> nix::Result<Option<Watched>> {
            let Some(fd) = fd else { return Ok(None) };
            super::launch::set_nonblocking(&fd).map_err(|_| Errno::EBADF)?;
            let token = poll.add(&fd, flags, Source::Stream(id.clone(), which))?;
            Ok(Some(Watched { fd, token }))
        };
        let sink = |watched: Option<Watched>| watched.map(|watched| Sink { watched, pending: Vec::new() });
        let attachment = Attachment {
            number,
            stdin: watch(stdin, StreamId::AttachIn(number), READ)?,
            // Only errors and hang-ups until something is pending.
            out: sink(watch(out, StreamId::AttachOut(number), EpollFlags::empty())?),
            err: sink(watch(err, StreamId::AttachErr(number), EpollFlags::empty())?),
        };
        self.attachments.push(attachment);
        // If the container's output has ended already, the attachment sees the end at once.
        if self.stdout.is_none() {
            self.end_sinks(Stream::Stdout, poll);
        }
        if self.stderr.is_none() {
            self.end_sinks(Stream::Stderr, poll);
        }
        Ok(())
    }

    /// A descriptor is ready.
    pub fn ready(
        &mut self,
        which: StreamId,
        flags: EpollFlags,
        poll: &mut Poll,
        shared: &mut Shared,
    ) -> StreamEvent {
        match which {
            StreamId::Stdout => self.pump(Stream::Stdout, poll, shared),
            StreamId::Stderr => self.pump(Stream::Stderr, poll, shared),
            StreamId::Stdin => return self.feed(poll),
            StreamId::AttachIn(number) => return self.take_input(number, poll, shared),
            StreamId::AttachOut(number) => self.flush(number, Stream::Stdout, flags, poll),
            StreamId::AttachErr(number) => self.flush(number, Stream::Stderr, flags, poll),
        }
        StreamEvent::Nothing
    }

    /// The process ended: reads everything it wrote and closes the streams, even if its children keep them open, and write.
    pub fn finish(&mut self, poll: &mut Poll, shared: &mut Shared) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            // What the process itself wrote, and nobody has read, fits into the pipe.
            let mut left = self.source(stream).as_ref().map_or(0, |watched| pipe_size::capacity(&watched.fd));
            while left > 0
                && let read @ 1.. = self.read_once(stream, poll, shared)
            {
                left = left.saturating_sub(read);
            }
            self.end(stream, poll, shared);
        }
        self.close_stdin(poll);
    }

    /// Drops every descriptor.
    pub fn close(mut self, poll: &mut Poll, shared: &mut Shared) {
        self.close_stdin(poll);
        self.pipes.iter_mut().for_each(|pipe| pipe.release(&mut shared.large_pipes));
        for watched in [self.stdout.take(), self.stderr.take()].into_iter().flatten() {
            poll.remove(&watched.fd, watched.token);
        }
        for attachment in self.attachments {
            let sinks = [attachment.out, attachment.err].into_iter().flatten().map(|s| s.watched);
            for watched in sinks.chain(attachment.stdin) {
                poll.remove(&watched.fd, watched.token);
            }
        }
    }

    fn source(&mut self, stream: Stream) -> &mut Option<Watched> {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    fn pipe(&mut self, stream: Stream) -> (Option<&Watched>, &mut PipeSize) {
        let [stdout, stderr] = &mut self.pipes;
        match stream {
            Stream::Stdout => (self.stdout.as_ref(), stdout),
            Stream::Stderr => (self.stderr.as_ref(), stderr),
        }
    }

    fn sinks(&mut self, stream: Stream) -> impl Iterator<Item = &mut Option<Sink>> {
        self.attachments.iter_mut().map(move |a| match stream {
            Stream::Stdout => &mut a.out,
            Stream::Stderr => &mut a.err,
        })
    }

    fn pump(&mut self, stream: Stream, poll: &mut Poll, shared: &mut Shared) {
        self.read_once(stream, poll, shared);
        let blocked = self.sinks(stream).flatten().any(|s| !s.pending.is_empty());
        if blocked && let Some(watched) = self.source(stream) {
            poll.modify(&watched.fd, watched.token, EpollFlags::empty());
        }
    }

    /// Reads once; 0 at the end of the stream or if nothing is available.
    fn read_once(&mut self, stream: Stream, poll: &mut Poll, shared: &mut Shared) -> usize {
        let Some(watched) = self.source(stream) else { return 0 };
        let n = match read(&watched.fd, &mut shared.input) {
            Ok(n @ 1..) => n,
            Err(Errno::EAGAIN | Errno::EINTR) => return 0,
            // A terminal reports its end as EIO.
            Ok(_) | Err(_) => {
                self.end(stream, poll, shared);
                return 0;
            }
        };
        shared.output_read += n;
        if let (Some(watched), pipe) = self.pipe(stream) {
            pipe.adapt(&watched.fd, n, &mut shared.large_pipes);
        }
        let data = &shared.input[..n];
        if let Some(log) = &mut self.log {
            log.push(stream, data, &mut shared.lines);
        }
        for slot in self.sinks(stream) {
            let gone = slot.as_mut().is_some_and(|sink| sink.write(data, poll).is_err());
            if gone && let Some(sink) = slot.take() {
                poll.remove(&sink.watched.fd, sink.watched.token);
            }
        }
        n
    }

    /// A stream ended: logs the partial line; attachments are closed after their pending bytes.
    fn end(&mut self, stream: Stream, poll: &mut Poll, shared: &mut Shared) {
        if let Some(watched) = self.source(stream).take() {
            poll.remove(&watched.fd, watched.token);
            self.pipe(stream).1.release(&mut shared.large_pipes);
            if let Some(log) = &mut self.log {
                log.finish(stream, &mut shared.lines);
            }
        }
        self.end_sinks(stream, poll);
    }

    fn end_sinks(&mut self, stream: Stream, poll: &mut Poll) {
        for slot in self.sinks(stream) {
            if slot.as_ref().is_some_and(|s| s.pending.is_empty())
                && let Some(sink) = slot.take()
            {
                poll.remove(&sink.watched.fd, sink.watched.token);
            }
        }
    }

    fn flush(&mut self, number: u64, stream: Stream, flags: EpollFlags, poll: &mut Poll) {
        let ended = self.source(stream).is_none();
        let Some(index) = self.attachments.iter().position(|a| a.number == number) else { return };
        let slot = match stream {
            Stream::Stdout => &mut self.attachments[index].out,
            Stream::Stderr => &mut self.attachments[index].err,
        };
        let Some(sink) = slot else { return };
        let gone = flags.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP)
            || sink.write(&[], poll).is_err()
            || (ended && sink.pending.is_empty());
        if gone && let Some(sink) = slot.take() {
            poll.remove(&sink.watched.fd, sink.watched.token);
        }
        self.drop_if_empty(index, poll);
        if self.sinks(stream).flatten().all(|s| s.pending.is_empty())
            && let Some(watched) = self.source(stream)
        {
            poll.modify(&watched.fd, watched.token, READ);
        }
    }

    /// Closes an attachment, with its input, once it has no outputs.
    fn drop_if_empty(&mut self, index: usize, poll: &mut Poll) {
        let a = &self.attachments[index];
        if a.out.is_none() && a.err.is_none() && a.stdin.is_none() {
            self.attachments.swap_remove(index);
        } else if a.out.is_none() && a.err.is_none() && self.stdout.is_none() {
            let attachment = self.attachments.swap_remove(index);
            if let Some(watched) = attachment.stdin {
                poll.remove(&watched.fd, watched.token);
            }
        }
    }

    fn take_input(&mut self, number: u64, poll: &mut Poll, shared: &mut Shared) -> StreamEvent {
        let Some(index) = self.attachments.iter().position(|a| a.number == number) else {
            return StreamEvent::Nothing;
        };
        let Some(watched) = &self.attachments[index].stdin else { return StreamEvent::Nothing };
        let buffer = &mut shared.input[..INPUT_CHUNK];
        match read(&watched.fd, buffer) {
            Ok(n @ 1..) => {
                if self.stdin.is_some() || (self.tty && self.stdout.is_some()) {
                    self.stdin_pending.extend_from_slice(&buffer[..n]);
                }
                self.feed(poll)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => StreamEvent::Nothing,
            Ok(_) | Err(_) => {
                if let Some(watched) = self.attachments[index].stdin.take() {
                    poll.remove(&watched.fd, watched.token);
                }
                self.drop_if_empty(index, poll);
                self.stdin_ending |= self.stdin_once && !self.tty;
                self.feed(poll)
            }
        }
    }

    /// Writes pending input; stops reading more while the container's stdin is full.
    fn feed(&mut self, poll: &mut Poll) -> StreamEvent {
        let target = if self.tty { self.stdout.as_ref() } else { self.stdin.as_ref() };
        let Some(target) = target else {
            self.stdin_pending.clear();
            return StreamEvent::Nothing;
        };
        while !self.stdin_pending.is_empty() {
            match write(&target.fd, &self.stdin_pending) {
                Ok(n) => drop(self.stdin_pending.drain(..n)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(_) => {
                    self.stdin_pending.clear();
                    self.close_stdin(poll);
                    return StreamEvent::Nothing;
                }
            }
        }
        let blocked = !self.stdin_pending.is_empty();
        let wanted = match (self.tty, blocked) {
            (true, true) => READ | WRITE,
            (true, false) => READ,
            (false, true) => WRITE,
            (false, false) => EpollFlags::empty(),
        };
        poll.modify(&target.fd, target.token, wanted);
        for watched in self.attachments.iter().filter_map(|a| a.stdin.as_ref()) {
            poll.modify(&watched.fd, watched.token, if blocked { EpollFlags::empty() } else { READ });
        }
        if self.stdin_ending && !blocked && self.stdin.is_some() {
            self.close_stdin(poll);
            return StreamEvent::StdinClosed;
        }
        StreamEvent::Nothing
    }

    fn close_stdin(&mut self, poll: &mut Poll) {
        if let Some(watched) = self.stdin.take() {
            poll.remove(&watched.fd, watched.token);
        }
    }
}

impl Sink {
    /// Writes as much as possible and keeps the rest; an error means that the reader is gone.
    fn write(&mut self, data: &[u8], poll: &Poll) -> nix::Result<()> {
        self.pending.extend_from_slice(data);
        while !self.pending.is_empty() {
            match write(&self.watched.fd, &self.pending) {
                Ok(n) => drop(self.pending.drain(..n)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(e) => return Err(e),
            }
        }
        let wanted = if self.pending.is_empty() { EpollFlags::empty() } else { WRITE };
        poll.modify(&self.watched.fd, self.watched.token, wanted);
        Ok(())
    }
}

/// Sets a terminal's size through its master.
pub fn resize(terminal: impl AsFd, size: TerminalSize) -> nix::Result<()> {
    use std::os::fd::AsRawFd;
    nix::ioctl_write_ptr_bad!(set_window_size, libc::TIOCSWINSZ, libc::winsize);
    let size = libc::winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel reads one `winsize`.
    #[allow(unsafe_code)]
    unsafe { set_window_size(terminal.as_fd().as_raw_fd(), &size) }.map(drop)
}
