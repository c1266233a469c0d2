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
            StreamId::Stdout => {
                // A terminal takes input again.
                if flags.contains(WRITE) {
                    self.feed(poll);
                }
                if flags != WRITE {
                    self.pump(Stream::Stdout, poll, shared);
                }
            }
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
        if self.is_blocked(stream) {
            self.watch_output(stream, poll);
        }
    }

    /// An attached client has not taken all output yet.
    fn is_blocked(&self, stream: Stream) -> bool {
        let mut sinks = self.attachments.iter().filter_map(|a| match stream {
            Stream::Stdout => a.out.as_ref(),
            Stream::Stderr => a.err.as_ref(),
        });
        sinks.any(|sink| !sink.pending.is_empty())
    }

    /// Waits for output, unless clients are slow; at a terminal also for room for input.
    fn watch_output(&mut self, stream: Stream, poll: &Poll) {
        let mut wanted = if self.is_blocked(stream) { EpollFlags::empty() } else { READ };
        if self.tty && stream == Stream::Stdout && !self.stdin_pending.is_empty() {
            wanted |= WRITE;
        }
        if let Some(watched) = self.source(stream) {
            poll.modify(&watched.fd, watched.token, wanted);
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
        if !self.is_blocked(stream) {
            self.watch_output(stream, poll);
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
        match write_some(&target.fd, &self.stdin_pending) {
            Ok(n) => drop(self.stdin_pending.drain(..n)),
            Err(_) => {
                self.stdin_pending.clear();
                self.close_stdin(poll);
                return StreamEvent::Nothing;
            }
        }
        let blocked = !self.stdin_pending.is_empty();
        if self.tty {
            self.watch_output(Stream::Stdout, poll);
        } else {
            poll.modify(&target.fd, target.token, if blocked { WRITE } else { EpollFlags::empty() });
        }
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
        let was_blocked = !self.pending.is_empty();
        if was_blocked {
            self.pending.extend_from_slice(data);
            let written = write_some(&self.watched.fd, &self.pending)?;
            drop(self.pending.drain(..written));
        } else {
            let written = write_some(&self.watched.fd, data)?;
            self.pending.extend_from_slice(&data[written..]);
        }
        let blocked = !self.pending.is_empty();
        if blocked != was_blocked {
            let wanted = if blocked { WRITE } else { EpollFlags::empty() };
            poll.modify(&self.watched.fd, self.watched.token, wanted);
        }
        Ok(())
    }
}

/// Writes what fits at the moment; an error means that the reader is gone.
fn write_some(fd: &OwnedFd, data: &[u8]) -> nix::Result<usize> {
    let mut written = 0;
    while written < data.len() {
        match write(fd, &data[written..]) {
            Ok(0) | Err(Errno::EAGAIN) => break,
            Ok(n) => written += n,
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(written)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use nix::sys::epoll::EpollTimeout;
    use nix::sys::termios;
    use std::io::{PipeReader, PipeWriter, Read, Write};
    use std::path::Path;
    use std::time::{Duration, Instant};

    /// A container with a log, and where it writes to.
    fn container(id: &str, log: &Path, poll: &mut Poll) -> (Streams, PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        crate::launch::set_nonblocking(&reader).unwrap();
        let ends = Ends { stdout: Some(reader.into()), ..Ends::default() };
        let log = ContainerLog::open(log).unwrap();
        (Streams::new(id, ends, Some(log), poll).unwrap(), writer)
    }

    /// Handles what is ready.
    fn turn(streams: &mut [(&str, &mut Streams)], poll: &mut Poll, shared: &mut Shared) {
        for (token, flags) in poll.wait(EpollTimeout::from(20u16)).unwrap() {
            let Some(Source::Stream(id, which)) = poll.source(token) else { continue };
            let (_, streams) = streams.iter_mut().find(|(name, _)| *name == id).unwrap();
            streams.ready(which, flags, poll, shared);
        }
    }

    fn drain(mut reader: PipeReader) -> std::thread::JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            bytes
        })
    }

    /// The text of a log's lines.
    fn text(log: &Path) -> String {
        let lines = std::fs::read_to_string(log).unwrap();
        lines.lines().map(|line| format!("{}\n", line.splitn(4, ' ').last().unwrap())).collect()
    }

    #[test]
    fn a_busy_container_does_not_keep_others_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let (mut poll, mut shared) = (Poll::new().unwrap(), Shared::default());
        let (busy_log, quiet_log) = (dir.path().join("busy/0.log"), dir.path().join("quiet/0.log"));
        let (mut busy, mut writer) = container("busy", &busy_log, &mut poll);
        let (mut quiet, mut quiet_writer) = container("quiet", &quiet_log, &mut poll);
        // Until the pipe is closed.
        let thread = std::thread::spawn(move || while writer.write_all(&[b'x'; 4096]).is_ok() {});
        // Its thread may need a moment to begin.
        while text(&busy_log).is_empty() {
            turn(&mut [("busy", &mut busy), ("quiet", &mut quiet)], &mut poll, &mut shared);
        }
        quiet_writer.write_all(b"hello\n").unwrap();
        let mut turns = 0;
        while text(&quiet_log).is_empty() {
            turn(&mut [("busy", &mut busy), ("quiet", &mut quiet)], &mut poll, &mut shared);
            turns += 1;
            assert!(turns < 100, "not read");
        }
        assert_eq!(text(&quiet_log), "hello\n");
        // It still writes: what it left behind does not matter.
        busy.finish(&mut poll, &mut shared);
        thread.join().unwrap();
    }

    #[test]
    fn a_client_that_reads_late_gets_everything() {
        let dir = tempfile::tempdir().unwrap();
        let (mut poll, mut shared) = (Poll::new().unwrap(), Shared::default());
        let log = dir.path().join("c/0.log");
        let (mut streams, mut writer) = container("c", &log, &mut poll);
        let (client, sink) = std::io::pipe().unwrap();
        streams.attach([None, Some(sink.into()), None], &mut poll).unwrap();
        let sent: String = (0..300_000).map(|n| format!("line {n}\n")).collect();
        let bytes = sent.clone().into_bytes();
        let thread = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
        while !streams.is_blocked(Stream::Stdout) {
            turn(&mut [("c", &mut streams)], &mut poll, &mut shared);
        }
        // While the client does not read, nothing is read from the container either.
        let before = text(&log);
        for _ in 0..5 {
            turn(&mut [("c", &mut streams)], &mut poll, &mut shared);
        }
        assert!(before.len() < sent.len() && text(&log) == before);
        let client = drain(client);
        while streams.stdout.is_some() || streams.is_blocked(Stream::Stdout) {
            turn(&mut [("c", &mut streams)], &mut poll, &mut shared);
        }
        thread.join().unwrap();
        streams.close(&mut poll, &mut shared);
        assert!(client.join().unwrap() == sent.as_bytes() && text(&log) == sent);
    }

    #[test]
    fn a_terminal_that_is_read_late_gets_all_input() {
        let (mut poll, mut shared) = (Poll::new().unwrap(), Shared::default());
        let pty = nix::pty::openpty(None, None).unwrap();
        let mut modes = termios::tcgetattr(&pty.slave).unwrap();
        termios::cfmakeraw(&mut modes);
        termios::tcsetattr(&pty.slave, termios::SetArg::TCSANOW, &modes).unwrap();
        crate::launch::set_nonblocking(&pty.master).unwrap();
        let ends = Ends { stdout: Some(pty.master), ..Ends::default() };
        let mut streams = Streams::new("c", ends, None, &mut poll).unwrap().with_tty(true, false);
        let (input, mut client) = std::io::pipe().unwrap();
        streams.attach([Some(input.into()), None, None], &mut poll).unwrap();
        client.write_all(&[b'x'; 40_000]).unwrap();
        drop(client);
        // More than a terminal holds.
        for _ in 0..5 {
            turn(&mut [("c", &mut streams)], &mut poll, &mut shared);
        }
        let mut terminal = std::fs::File::from(pty.slave);
        let reader = std::thread::spawn(move || {
            let mut read = vec![0; 40_000];
            terminal.read_exact(&mut read).unwrap();
            read
        });
        let begun = Instant::now();
        while !reader.is_finished() {
            turn(&mut [("c", &mut streams)], &mut poll, &mut shared);
            assert!(begun.elapsed() < Duration::from_secs(60), "input is missing");
        }
        assert!(reader.join().unwrap() == [b'x'; 40_000]);
    }
}
