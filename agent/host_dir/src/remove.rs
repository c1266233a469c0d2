//! Removes a tree of any depth and width with few descriptors and little memory; never through a link or a mount.

use nix::errno::Errno;
use nix::fcntl::renameat;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{OsStr, OsString};
use std::io;

use super::{HostDir, TRIES, busy, is_no_directory, single};

/// Directories that are held open inside each other. What is deeper is moved up first.
const DEPTH: usize = 64;
/// Names that are read at once.
const BATCH: usize = 1024;

struct Level {
    name: OsString,
    dir: HostDir,
    names: Vec<OsString>,
    /// How often rmdir failed with ENOTEMPTY after everything in it was removed.
    refilled: usize,
}

impl HostDir {
    /// Removes an entry and everything in it. Succeeds if it does not exist; fails if something is mounted on or in it.
    pub fn remove_tree(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let mut levels: Vec<Level> = Vec::new();
        let mut moved = 0_u64;
        if let Some(level) = self.remove_or_open(name.as_ref())? {
            levels.push(level);
        }
        while let Some(level) = levels.last_mut() {
            if level.names.is_empty() {
                level.names = level.dir.names()?.take(BATCH).collect::<io::Result<_>>()?;
            }
            let depth = levels.len();
            let Some(level) = levels.last_mut() else { break };
            let Some(name) = level.names.pop() else {
                let Some(level) = levels.pop() else { break };
                let parent = levels.last().map_or(self, |parent| &parent.dir);
                if let Some(again) = parent.remove_empty(level)? {
                    levels.push(again);
                }
                continue;
            };
            if depth < DEPTH {
                if let Some(below) = level.dir.remove_or_open(&name)? {
                    levels.push(below);
                }
            } else if level.dir.unlink(&name)? {
                moved += 1;
                levels[depth - 1].dir.move_up(&name, &levels[0].dir, moved)?;
            }
        }
        Ok(())
    }

    /// Removes an entry that is no directory; says whether it is one.
    fn unlink(&self, name: &OsStr) -> io::Result<bool> {
        match unlinkat(&self.0, single(name)?, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(false),
            Err(Errno::EISDIR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes an entry, or opens it when it is a directory.
    fn remove_or_open(&self, name: &OsStr) -> io::Result<Option<Level>> {
        for _ in 0..TRIES {
            if !self.unlink(name)? {
                return Ok(None);
            }
            match self.open_dir_of_mount(name) {
                Ok(dir) => {
                    let level = Level { name: name.to_owned(), dir, names: vec![], refilled: 0 };
                    return Ok(Some(level));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                // The entry was replaced meanwhile.
                Err(error) if is_no_directory(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(busy(name))
    }

    /// Removes an emptied directory; returns it if new entries were added meanwhile.
    fn remove_empty(&self, mut level: Level) -> io::Result<Option<Level>> {
        match unlinkat(&self.0, level.name.as_os_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(None),
            Err(Errno::ENOTEMPTY) if level.refilled < TRIES => {
                level.refilled += 1;
                Ok(Some(level))
            }
            // Another file has its name now.
            Err(Errno::ENOTDIR) => self.remove_or_open(&level.name),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Moves a directory to the top of the tree, to be removed later: bounds the depth.
    fn move_up(&self, name: &OsStr, top: &HostDir, number: u64) -> io::Result<()> {
        let mut fresh = OsString::from(format!(".removed-{number}-"));
        fresh.push(format!("{:08x}", rand::random::<u32>()));
        match renameat(&self.0, single(name)?, &top.0, fresh.as_os_str()) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_behind_links_goes() {
        let temp = tempfile::tempdir().unwrap();
        let dir = HostDir::open(temp.path()).unwrap();
        fs::create_dir_all(temp.path().join("outside/sub")).unwrap();
        fs::create_dir_all(temp.path().join("tree/a/b")).unwrap();
        symlink("../../outside", temp.path().join("tree/a/link")).unwrap();
        symlink("outside", temp.path().join("link")).unwrap();
        fs::write(temp.path().join("tree/a/file"), "").unwrap();
        for name in ["tree", "link", "tree", "never-there"] {
            dir.remove_tree(name).unwrap();
        }
        assert!(temp.path().join("outside/sub").exists());
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }

    #[test]
    fn trees_of_any_depth_and_width() {
        let temp = tempfile::tempdir().unwrap();
        let dir = HostDir::open(temp.path()).unwrap();
        let mut at = dir.make_dir("tree", 0o755).unwrap();
        for _ in 0..3000 {
            at = at.make_dir("deep", 0o755).unwrap();
            at.rewrite("file", b"", 0o600).unwrap();
        }
        let wide = dir.open_dir("tree").unwrap().make_dir("wide", 0o755).unwrap();
        for number in 0..2 * BATCH {
            wide.new_file(number.to_string(), 0o600).unwrap();
        }
        dir.remove_tree("tree").unwrap();
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    }
}
