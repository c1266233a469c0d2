//! Waits for a program to report that it is ready: it writes to a pipe of which it has the other end.

use anyhow::bail;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Timeout for the start of a process.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a program reports that it is ready. The pipe is closed when the program and the process that starts it again
/// have exited.
pub fn wait(what: &str, log: &Path, ready: PipeReader) -> anyhow::Result<()> {
    if is_ready_within(ready, PATIENCE) {
        return Ok(());
    }
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let tail: Vec<&str> = text.lines().rev().take(8).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    bail!("{what}: it did not happen; the end of {}:\n{}", log.display(), tail.join("\n"));
}

/// Waits for a byte; false on timeout, and as soon as every process that had the other end has exited without writing.
pub fn is_ready_within(mut pipe: PipeReader, timeout: Duration) -> bool {
    let begun = Instant::now();
    while let Some(left) = timeout.checked_sub(begun.elapsed()) {
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], left) {
            Ok(0) => return false,
            // A closed pipe reads as its end.
            Ok(_) => return pipe.read(&mut [0]).is_ok_and(|read| read == 1),
            // Interrupted by a signal.
            Err(_) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_line_says_that_it_is_ready() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let program = std::thread::spawn(move || writer.write_all(b"\n"));
        assert!(is_ready_within(reader, LONG));
        program.join().unwrap().unwrap();
    }

    #[test]
    fn a_line_counts_even_if_the_program_has_ended_since() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"\n").unwrap();
        drop(writer);
        assert!(is_ready_within(reader, LONG));
    }

    #[test]
    fn the_end_of_the_program_ends_the_wait() {
        let (reader, writer) = std::io::pipe().unwrap();
        let begun = Instant::now();
        let program = std::thread::spawn(move || drop(writer));
        assert!(!is_ready_within(reader, LONG));
        program.join().unwrap();
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn the_wait_has_an_end() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!is_ready_within(reader, Duration::from_millis(10)));
    }
}
