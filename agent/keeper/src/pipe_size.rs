//! Sizes of the pipes that containers write to: a pipe is enlarged while its container writes more than a pipe of the usual size holds.
//!
//! The pages of all pipes that root made count against one limit (`fs.pipe-user-pages-soft`, 64 MiB); beyond it, processes without
//! capabilities get pipes of two pages. So few pipes are large at a time.

use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, fcntl};

/// The size of a new pipe.
const USUAL: usize = 64 << 10;
/// The most that Linux allows by default.
const LARGE: usize = 1 << 20;
/// How many pipes are large at a time.
const MAX_LARGE: usize = 32;
/// After so many reads in a row that a usual pipe would have sufficed for, a pipe gets the usual size again.
const SMALL_READS: u8 = 16;

/// How many pipes are large.
#[derive(Debug, Default)]
pub struct LargePipes(usize);

/// Size of one pipe.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum PipeSize {
    /// As the kernel made it.
    #[default]
    Usual,
    /// Enlarged.
    Large {
        /// Reads since one that filled a usual pipe.
        small_reads: u8,
    },
    /// It cannot be enlarged: a terminal, or a limit of the kernel.
    Refused,
}

impl PipeSize {
    /// Adapts the pipe behind a read end, from which `read` bytes were just read.
    pub fn adapt(&mut self, fd: impl AsFd, read: usize, pipes: &mut LargePipes) {
        match self {
            Self::Usual if read >= USUAL && pipes.0 < MAX_LARGE => {
                if resize(fd, LARGE) {
                    *self = Self::Large { small_reads: 0 };
                    pipes.0 += 1;
                } else {
                    *self = Self::Refused;
                }
            }
            Self::Large { small_reads } if read >= USUAL => *small_reads = 0,
            Self::Large { small_reads } => {
                *small_reads += 1;
                if *small_reads == SMALL_READS {
                    *small_reads = 0;
                    // The kernel refuses while the pipe holds more than that.
                    if resize(fd, USUAL) {
                        self.release(pipes);
                    }
                }
            }
            Self::Usual | Self::Refused => {}
        }
    }

    /// The pipe counts no longer.
    pub fn release(&mut self, pipes: &mut LargePipes) {
        if matches!(std::mem::take(self), Self::Large { .. }) {
            pipes.0 -= 1;
        }
    }
}

/// Gives a pipe that another keeper may have enlarged the usual size. The kernel refuses while the pipe holds more than that: it is
/// enlarged again, and counts, when that is read.
pub fn shrink(fd: impl AsFd) {
    if capacity(&fd) > USUAL {
        resize(fd, USUAL);
    }
}

/// False if the kernel refuses.
fn resize(fd: impl AsFd, size: usize) -> bool {
    i32::try_from(size).is_ok_and(|size| fcntl(fd, FcntlArg::F_SETPIPE_SZ(size)).is_ok())
}

/// Bytes that a pipe can hold; for a terminal, more than it holds.
pub fn capacity(fd: impl AsFd) -> usize {
    fcntl(fd, FcntlArg::F_GETPIPE_SZ).ok().and_then(|size| usize::try_from(size).ok()).unwrap_or(LARGE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    #[test]
    fn a_pipe_is_large_while_its_container_is_busy() {
        let (reader, _writer) = std::io::pipe().unwrap();
        // The kernel makes smaller pipes while its user has many.
        assert!(resize(&reader, USUAL));
        let (mut size, mut pipes) = (PipeSize::default(), LargePipes::default());
        size.adapt(&reader, USUAL - 1, &mut pipes);
        assert_eq!((capacity(&reader), pipes.0), (USUAL, 0));
        size.adapt(&reader, USUAL, &mut pipes);
        assert_eq!((capacity(&reader), pipes.0), (LARGE, 1));
        for _ in 1..SMALL_READS {
            size.adapt(&reader, 1, &mut pipes);
        }
        assert_eq!((capacity(&reader), pipes.0), (LARGE, 1));
        size.adapt(&reader, 1, &mut pipes);
        assert_eq!((capacity(&reader), pipes.0), (USUAL, 0));
    }

    #[test]
    fn a_pipe_that_another_keeper_enlarged_gets_the_usual_size() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert!(resize(&reader, LARGE));
        shrink(&reader);
        assert_eq!(capacity(&reader), USUAL);
        // Smaller ones stay, and what a pipe holds is not lost.
        assert!(resize(&reader, USUAL / 2));
        shrink(&reader);
        assert_eq!(capacity(&reader), USUAL / 2);
        assert!(resize(&reader, LARGE));
        writer.write_all(&[0; 2 * USUAL]).unwrap();
        shrink(&reader);
        assert_eq!(capacity(&reader), LARGE);
    }

    #[test]
    fn few_pipes_are_large_at_a_time() {
        let mut pipes = LargePipes(MAX_LARGE - 1);
        let ends = [std::io::pipe().unwrap(), std::io::pipe().unwrap()];
        let mut sizes = [PipeSize::default(), PipeSize::default()];
        for (size, (reader, _)) in sizes.iter_mut().zip(&ends) {
            size.adapt(reader, USUAL, &mut pipes);
        }
        assert_eq!(sizes, [PipeSize::Large { small_reads: 0 }, PipeSize::Usual]);
        sizes[0].release(&mut pipes);
        sizes[1].adapt(&ends[1].0, USUAL, &mut pipes);
        assert_eq!(sizes[1], PipeSize::Large { small_reads: 0 });
    }

    #[test]
    fn what_is_no_pipe_keeps_its_size() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (mut size, mut pipes) = (PipeSize::default(), LargePipes::default());
        size.adapt(&socket, USUAL, &mut pipes);
        assert_eq!((size, pipes.0), (PipeSize::Refused, 0));
    }
}
