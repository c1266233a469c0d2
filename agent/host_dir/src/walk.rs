//! Visits every entry of a tree, directory by directory, through descriptors.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::{HostDir, Names};

/// A tree that is deeper or larger than this is not walked to its end.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Directories inside each other. Each takes two descriptors while it is walked.
    pub depth: usize,
    /// Entries in all.
    pub entries: u64,
}

impl Default for Limits {
    /// More than normal programs create.
    fn default() -> Self {
        Self { depth: 128, entries: 8_000_000 }
    }
}

/// Why a tree was not walked to its end.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// Too many directories inside each other.
    #[error("directories are nested more than {limit} deep")]
    TooDeep {
        /// How many there may be.
        limit: usize,
    },
    /// Too many entries.
    #[error("there are more than {limit} files")]
    TooMany {
        /// How many there may be.
        limit: u64,
    },
    /// An operation failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<WalkError> for io::Error {
    fn from(error: WalkError) -> Self {
        match error {
            WalkError::Io(error) => error,
            other => io::Error::other(other),
        }
    }
}

struct Level {
    dir: HostDir,
    names: Names,
    /// From where the walk began.
    path: PathBuf,
}

impl HostDir {
    /// Calls `visit` for every entry below this directory. If `visit` returns an open directory, its entries are visited too.
    /// A directory that is removed meanwhile counts as empty.
    pub fn walk(
        self,
        limits: Limits,
        mut visit: impl FnMut(&HostDir, &OsStr) -> io::Result<Option<HostDir>>,
    ) -> Result<(), WalkError> {
        self.walk_paths(limits, |dir, _, name| visit(dir, name))
    }

    /// Like [`HostDir::walk`]; `visit` also gets the path of the entry's directory, relative to this one.
    pub fn walk_paths(
        self,
        limits: Limits,
        mut visit: impl FnMut(&HostDir, &Path, &OsStr) -> io::Result<Option<HostDir>>,
    ) -> Result<(), WalkError> {
        let names = self.names()?;
        let mut levels = vec![Level { dir: self, names, path: PathBuf::new() }];
        let mut seen = 0;
        while let Some(level) = levels.last_mut() {
            let name = match level.names.next() {
                Some(Ok(name)) => name,
                Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {
                    levels.pop();
                    continue;
                }
            };
            seen += 1;
            if seen > limits.entries {
                return Err(WalkError::TooMany { limit: limits.entries });
            }
            let Some(dir) = visit(&level.dir, &level.path, &name)? else { continue };
            let path = level.path.join(&name);
            if levels.len() >= limits.depth {
                return Err(WalkError::TooDeep { limit: limits.depth });
            }
            match dir.names() {
                Ok(names) => levels.push(Level { dir, names, path }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
