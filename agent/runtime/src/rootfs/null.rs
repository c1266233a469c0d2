//! The null device of a container.

use std::fs::File;
use std::io::{stderr, stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::failure::{RootfsError, file, kernel};
use super::tree;

const PATH: &str = "/dev/null";

fn is_null(fd: impl AsFd) -> bool {
    fstat(fd).is_ok_and(|found| {
        let device = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
        device && found.st_rdev == libc::makedev(1, 3)
    })
}

/// Its place. It is checked: an image could have something else there.
pub fn device() -> Result<File, RootfsError> {
    let path = Path::new(PATH);
    let null = tree::place_inside(path).map_err(file("open", path))?;
    if is_null(&null) { Ok(null) } else { Err(RootfsError::NullDevice) }
}

/// Opens standard streams that are the null device again, for reading and writing: libcontainer has opened them for reading
/// alone.
pub fn open_streams() -> Result<(), RootfsError> {
    let path = Path::new(PATH);
    let flags = libc::O_NOFOLLOW | libc::O_NOCTTY;
    let null = File::options().read(true).write(true).custom_flags(flags).open(path);
    let null = null.map_err(file("open", path))?;
    // What is there may have been exchanged by a container that shares a volume at `/dev`.
    if !is_null(&null) {
        return Err(RootfsError::NullDevice);
    }
    if is_null(stdin()) {
        dup2_stdin(&null).map_err(kernel("standard input", path))?;
    }
    if is_null(stdout()) {
        dup2_stdout(&null).map_err(kernel("standard output", path))?;
    }
    if is_null(stderr()) {
        dup2_stderr(&null).map_err(kernel("standard error", path))?;
    }
    Ok(())
}
