//! Runs this program as a sealed copy in memory.
//!
//! A container sees the program of a process that enters it at `/proc/<pid>/exe`, and could overwrite a file on disk
//! (CVE-2019-5736). A caller that runs a sealed copy already, as the keeper does, saves the second start.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use coracle_keeper::enter::sealed::{Sealed, is_sealed};

use super::error::Error;

/// Returns in a sealed copy. Call it before anything of a container is touched.
pub fn ensure() -> Result<(), Error> {
    let program = Error::file("/proc/self/exe");
    if is_sealed().map_err(Error::file("/proc/self/exe"))? {
        return Ok(());
    }
    let copy = Sealed::of_self().map_err(Error::file("a sealed copy of this program"))?;
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_else(|| OsString::from("coracle-runtime"));
    Err(program(Command::new(copy.path()).arg0(name).args(args).exec()))
}
