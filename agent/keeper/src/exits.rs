//! The exit log: one JSON line per ended process, appended before agents are notified, never synced.
//!
//! A reboot ends the processes too, so the log only has to survive a crash of the keeper. The page cache is enough for that.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Above this size, lines of forgotten tasks are removed from the file.
const COMPACT_AT: u64 = 256 << 10;

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Task id.
    pub id: String,
    /// Its process.
    pub pid: i32,
    /// Exit code, 128 + signal for a killed one; none when it cannot be known.
    pub code: Option<i32>,
    /// The signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Nanoseconds since 1970.
    pub at: i64,
}

/// The file, open for appending.
///
/// ```
/// use coracle_keeper::exits::{Exit, ExitLog, read};
///
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("exits");
/// let exit = Exit { id: "web".into(), pid: 42, code: Some(0), signal: None, at: 1 };
/// ExitLog::open(&path)?.append(&exit)?;
/// assert_eq!(read(&path)?.get("web"), Some(&exit));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ExitLog {
    path: PathBuf,
    file: File,
    length: u64,
    /// The file may end in the middle of a line.
    cut: bool,
}

impl ExitLog {
    /// Opens or creates the log.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Left by a keeper that was killed while it compacted the log.
        let _ = std::fs::remove_file(path.with_extension("new"));
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        let length = file.metadata()?.len();
        let mut last = [b'\n'];
        if length > 0 {
            file.read_exact_at(&mut last, length - 1)?;
        }
        Ok(Self { path: path.to_owned(), file, length, cut: last != [b'\n'] })
    }

    /// Appends one exit; one `write`, so that a reader sees whole lines.
    pub fn append(&mut self, exit: &Exit) -> io::Result<()> {
        // Ends a partial line, so that it does not corrupt the next one.
        let mut line = if self.cut { vec![b'\n'] } else { Vec::new() };
        serde_json::to_writer(&mut line, exit)?;
        line.push(b'\n');
        self.length += line.len() as u64;
        let written = self.file.write_all(&line);
        self.cut = written.is_err();
        written
    }

    /// Rewrites the log with `keep` only, when it has grown.
    pub fn compact<'a>(&mut self, keep: impl Iterator<Item = &'a Exit>) -> io::Result<()> {
        if self.length < COMPACT_AT {
            return Ok(());
        }
        let temporary = self.path.with_extension("new");
        let file = File::create(&temporary)?;
        let mut new = Self { path: self.path.clone(), file, length: 0, cut: false };
        for exit in keep {
            new.append(exit)?;
        }
        std::fs::rename(&temporary, &self.path)?;
        *self = Self::open(&self.path)?;
        Ok(())
    }
}

/// Every exit in the log by task id. A truncated last line is skipped; a missing file counts as empty.
pub fn read(path: &Path) -> io::Result<HashMap<String, Exit>> {
    let text = match std::fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        other => other?,
    };
    let lines = text.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice::<Exit>(line).ok());
    Ok(lines.map(|exit| (exit.id.clone(), exit)).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn exit(id: &str, code: i32) -> Exit {
        Exit { id: id.into(), pid: 1, code: Some(code), signal: None, at: 5 }
    }

    #[test]
    fn a_cut_line_loses_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exits");
        assert!(read(&path).unwrap().is_empty());
        let mut log = ExitLog::open(&path).unwrap();
        log.append(&exit("a", 1)).unwrap();
        log.append(&exit("b", 2)).unwrap();
        let length = std::fs::metadata(&path).unwrap().len();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 3).unwrap();
        let exits = read(&path).unwrap();
        assert_eq!(exits.len(), 1);
        assert_eq!(exits["a"].code, Some(1));
        // A keeper that starts then, and one that goes on after a write that failed in the middle.
        let mut log = ExitLog::open(&path).unwrap();
        log.append(&exit("c", 3)).unwrap();
        let file = std::mem::replace(&mut log.file, File::options().append(true).open("/dev/full").unwrap());
        log.append(&exit("d", 4)).unwrap_err();
        log.file = file;
        log.file.write_all(b"{\"id\":\"d").unwrap();
        log.append(&exit("e", 5)).unwrap();
        let exits = read(&path).unwrap();
        assert_eq!(exits.len(), 3);
        assert_eq!((exits["c"].code, exits["e"].code), (Some(3), Some(5)));
    }

    #[test]
    fn compacting_keeps_what_is_wanted_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exits");
        let mut log = ExitLog::open(&path).unwrap();
        for n in 0..6000 {
            log.append(&exit(&format!("task-{n}"), n)).unwrap();
        }
        assert!(log.length > COMPACT_AT);
        log.compact([exit("kept", 9)].iter()).unwrap();
        log.append(&exit("after", 8)).unwrap();
        let exits = read(&path).unwrap();
        assert_eq!(exits.len(), 2);
        assert_eq!((exits["kept"].code, exits["after"].code), (Some(9), Some(8)));
    }
}
