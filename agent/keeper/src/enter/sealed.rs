//! Sealed in-memory copies (memfd) of programs.
//!
//! A process that joins a container exposes its program to the container through `/proc/<pid>/exe`. A file on disk could be
//! opened there and overwritten once it is no longer running (CVE-2019-5736).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Marks a memfd as executable. Older kernels do not know the flag; newer ones may require it.
const MFD_EXEC: u32 = 0x10;

/// The copy. Its path is valid in this process and its children.
#[derive(Debug)]
pub struct Sealed(File);

/// Seals of a copy: nothing can change it, not even its seals.
const SEALS: SealFlag = SealFlag::F_SEAL_SEAL
    .union(SealFlag::F_SEAL_SHRINK)
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_WRITE);

/// Whether this process runs a sealed copy.
pub fn is_sealed() -> io::Result<bool> {
    match fcntl(&File::open("/proc/self/exe")?, FcntlArg::F_GET_SEALS) {
        Ok(seals) => Ok(SealFlag::from_bits_retain(seals).contains(SEALS)),
        // A file on disk.
        Err(nix::errno::Errno::EINVAL) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Which version of a file a copy is of.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// Sealed copies of programs, each kept until its file changes.
#[derive(Debug, Default)]
pub struct Copies(HashMap<PathBuf, (Version, Sealed)>);

impl Copies {
    /// A copy of the program, by its absolute path.
    pub fn of(&mut self, program: &Path) -> io::Result<&Sealed> {
        if !program.is_absolute() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = File::open(program)?;
        let found = file.metadata()?;
        let version = Version {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
        };
        match self.0.entry(program.to_owned()) {
            Entry::Occupied(mut known) => {
                if known.get().0 != version {
                    known.insert((version, Sealed::of(file)?));
                }
                Ok(&known.into_mut().1)
            }
            Entry::Vacant(free) => Ok(&free.insert((version, Sealed::of(file)?)).1),
        }
    }
}

impl Sealed {
    /// Copies this program.
    pub fn of_self() -> io::Result<Self> {
        Self::of(File::open("/proc/self/exe")?)
    }

    fn of(mut program: File) -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let executable = flags | MFdFlags::from_bits_retain(MFD_EXEC as _);
        let copy = match memfd_create(c"coracle-enter", executable) {
            Err(nix::errno::Errno::EINVAL) => memfd_create(c"coracle-enter", flags)?,
            other => other?,
        };
        let mut copy = File::from(copy);
        io::copy(&mut program, &mut copy)?;
        fcntl(&copy, FcntlArg::F_ADD_SEALS(SEALS))?;
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
        assert!(!is_sealed().unwrap(), "the test itself is a file on disk");
    }

    #[test]
    fn a_copy_is_kept_until_the_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        std::fs::write(&path, "one").unwrap();
        let mut copies = Copies::default();
        let first = copies.of(&path).unwrap().path();
        assert_eq!(copies.of(&path).unwrap().path(), first);
        std::fs::write(&path, "other").unwrap();
        let text = std::fs::read(copies.of(&path).unwrap().path()).unwrap();
        assert_eq!(text, b"other");
        assert!(copies.of(Path::new("program")).is_err(), "no search");
    }
}
