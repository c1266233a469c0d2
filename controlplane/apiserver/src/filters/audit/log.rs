//! Writes audit events to a file, one JSON object per line, with rotation.

use coracle_cli::causes;
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

/// When a log is put aside, and how long old ones are kept.
#[derive(Debug, Clone, Copy)]
pub struct Rotation {
    /// Bytes of a log.
    pub size: u64,
    /// How many old ones are kept; all when 0.
    pub backups: usize,
    /// How long old ones are kept; for ever when zero.
    pub age: Duration,
}

/// A log file.
pub struct Log {
    path: PathBuf,
    rotation: Rotation,
    file: std::fs::File,
    written: u64,
}

fn open(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl Log {
    /// Opens or makes the file, readable by its owner only.
    pub fn open(path: &Path, rotation: Rotation) -> std::io::Result<Self> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let file = open(path)?;
        let written = file.metadata()?.len();
        Ok(Self { path: path.into(), rotation, file, written })
    }

    fn write(&mut self, event: &Value) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        if self.written > 0 && self.written + line.len() as u64 > self.rotation.size {
            self.rotate()?;
        }
        self.file.write_all(&line)?;
        self.written += line.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> std::io::Result<()> {
        let stamp = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S.%6f").to_string();
        std::fs::rename(
            &self.path,
            self.path.with_file_name(format!("{}-{stamp}{}", self.stem(), self.suffix())),
        )?;
        self.file = open(&self.path)?;
        self.written = 0;
        self.prune();
        Ok(())
    }

    fn stem(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn suffix(&self) -> String {
        self.path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default()
    }

    /// Removes old logs: too many, or too old. Names sort by time.
    fn prune(&self) {
        let Some(dir) = self.path.parent() else { return };
        let (begin, end) = (format!("{}-", self.stem()), self.suffix());
        let mut old: Vec<PathBuf> = std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|e| {
                let name = e.file_name().to_string_lossy().into_owned();
                name.starts_with(&begin) && name.ends_with(&end)
            })
            .map(|e| e.path())
            .collect();
        old.sort();
        let keep = if self.rotation.backups == 0 { usize::MAX } else { self.rotation.backups };
        let surplus = old.len().saturating_sub(keep);
        let aged = |path: &PathBuf| {
            let written = std::fs::metadata(path).and_then(|m| m.modified()).ok();
            let age = written.and_then(|at| SystemTime::now().duration_since(at).ok()).unwrap_or_default();
            !self.rotation.age.is_zero() && age > self.rotation.age
        };
        for (index, path) in old.iter().enumerate() {
            if index < surplus || aged(path) {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Writes what comes until nobody sends any more; on a thread of its own, because disks are slow.
    pub fn run(&mut self, events: &mut mpsc::Receiver<Arc<Value>>) {
        while let Some(event) = events.blocking_recv() {
            if let Err(error) = self.write(&event) {
                tracing::error!(path = %self.path.display(), error = %causes::chain(&error), "audit event not written");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn logs_are_put_aside_and_pruned() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let rotation = Rotation { size: 100, backups: 2, age: Duration::ZERO };
        let mut log = Log::open(&path, rotation).unwrap();
        for number in 0..20 {
            log.write(&json!({"number": number, "text": "x".repeat(40)})).unwrap();
        }
        let mut names: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names.contains(&"audit.log".to_owned()));
        let last = std::fs::read_to_string(&path).unwrap();
        assert!(last.contains("\"number\":19") && last.len() <= 100);
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
