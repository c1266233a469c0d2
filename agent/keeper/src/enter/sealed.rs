//! A sealed in-memory copy (memfd) of this program.
//!
//! A process that joins a container exposes its program to the container through `/proc/<pid>/exe`. A file on disk could be
//! opened there and overwritten once it is no longer running (CVE-2019-5736).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Marks a memfd as executable. Older kernels do not know the flag; newer ones may require it.
const MFD_EXEC: u32 = 0x10;

/// The copy. Its path is valid in this process and its children.
#[derive(Debug)]
pub struct Sealed(File);

impl Sealed {
    /// Copies this program.
    pub fn of_self() -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let executable = flags | MFdFlags::from_bits_retain(MFD_EXEC as _);
        let copy = match memfd_create(c"coracle-enter", executable) {
            Err(nix::errno::Errno::EINVAL) => memfd_create(c"coracle-enter", flags)?,
            other => other?,
        };
        let mut copy = File::from(copy);
        io::copy(&mut File::open("/proc/self/exe")?, &mut copy)?;
        let seals =
            SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
        fcntl(&copy, FcntlArg::F_ADD_SEALS(seals))?;
        Ok(Self(copy))
    }

    /// Path to execute it by.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    #[test]
    fn it_is_this_program_and_stays_so() {
        let mut sealed = Sealed::of_self().unwrap();
        assert_eq!(std::fs::read(sealed.path()).unwrap(), std::fs::read("/proc/self/exe").unwrap());
        assert!(sealed.0.write_all(b"x").is_err());
        assert!(sealed.0.set_len(0).is_err());
        // Not by opening it again, either.
        let again = std::fs::OpenOptions::new().write(true).open(sealed.path());
        assert!(again.and_then(|mut file| file.write_all(b"x")).is_err());
    }
}
