//! A kubeconfig on disk: changed under the lock that kubectl uses, replaced as a whole, with the former one beside it.

use super::merge::MergeError;
use coracle_cli::yaml::{self, YamlError};
use serde_json::Value;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No kubeconfig is longer.
const LIMIT: u64 = 16 << 20;
/// How long to wait for another program that changes the file.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why a kubeconfig is as before.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(PathBuf, #[source] io::Error),
    /// It is too long.
    #[error("{0} is longer than 16 MiB: nothing was changed")]
    TooLong(PathBuf),
    /// It is not YAML.
    #[error("{0} cannot be read: nothing was changed")]
    Parse(PathBuf, #[source] YamlError),
    /// Its content does not fit.
    #[error("{0}: nothing was changed")]
    Merge(PathBuf, #[source] MergeError),
    /// Another program changes it.
    #[error(
        "{0} exists: another program changes the kubeconfig, or ended without removing it; nothing was changed"
    )]
    Locked(PathBuf),
}

/// What was done.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) changed: bool,
    /// The former content, if there was any.
    pub(super) backup: Option<PathBuf>,
}

/// Changes the file by a function of its content, which is null if there is none.
pub(super) fn update(
    path: &Path,
    change: impl FnOnce(Value) -> Result<Value, MergeError>,
) -> Result<Changed, FileError> {
    // A link stays one: what it leads to is replaced.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let at = |error| FileError::Io(path.clone(), error);
    if let Some(dir) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(at)?;
    }
    let _lock = Lock::take(path)?;
    let before = read(path)?;
    let config = match &before {
        Some(text) => yaml::from_str(text).map_err(|error| FileError::Parse(path.clone(), error))?,
        None => Value::Null,
    };
    let after = change(config.clone()).map_err(|error| FileError::Merge(path.clone(), error))?;
    if after == config {
        return Ok(Changed { changed: false, backup: None });
    }
    let mode = std::fs::metadata(path).map_or(0o600, |known| known.permissions().mode() & 0o777);
    let backup = match &before {
        Some(text) => {
            let backup = beside(path, "coracle-backup");
            write(&backup, text, mode)?;
            Some(backup)
        }
        None => None,
    };
    write(path, &yaml::to_string(&after), mode)?;
    Ok(Changed { changed: true, backup })
}

fn read(path: &Path) -> Result<Option<String>, FileError> {
    let at = |error| FileError::Io(path.to_owned(), error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at(error)),
    };
    let mut text = String::new();
    file.take(LIMIT + 1).read_to_string(&mut text).map_err(at)?;
    if text.len() as u64 > LIMIT {
        return Err(FileError::TooLong(path.to_owned()));
    }
    Ok(Some(text))
}

/// Replaces a file: whoever reads it sees the former or the new one.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), FileError> {
    let at = |error| FileError::Io(path.to_owned(), error);
    let new = beside(path, &format!("coracle-{}", std::process::id()));
    let written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    written().map_err(|error| {
        let _ = std::fs::remove_file(&new);
        at(error)
    })
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{suffix}"));
    path.with_file_name(name)
}

/// The lock of kubectl: a file that must not exist.
struct Lock(PathBuf);

impl Lock {
    fn take(path: &Path) -> Result<Self, FileError> {
        let lock = beside(path, "lock");
        let begun = Instant::now();
        loop {
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    return Err(FileError::Locked(lock));
                }
                Err(error) => return Err(FileError::Io(lock, error)),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn files(dir: &Path) -> Vec<String> {
        let names =
            std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_file_is_private_and_a_known_one_keeps_its_mode_and_has_a_backup() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".kube/config");
        let first = update(&path, |there| Ok(json!({"there": there}))).unwrap();
        assert!(first.changed && first.backup.is_none());
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let second = update(&path, |_| Ok(json!({"a": 1}))).unwrap();
        assert_eq!((mode(&path), std::fs::read_to_string(&path).unwrap().as_str()), (0o640, "a: 1\n"));
        let backup = second.backup.unwrap();
        assert_eq!(
            (mode(&backup), std::fs::read_to_string(backup).unwrap().as_str()),
            (0o640, "there: null\n")
        );
        assert!(!update(&path, Ok).unwrap().changed);
        assert_eq!(files(path.parent().unwrap()), ["config", "config.coracle-backup"]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::write(&real, "{}").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        update(&link, |_| Ok(json!({"a": 1}))).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "a: 1\n");
    }

    #[test]
    fn what_cannot_be_changed_is_as_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        for broken in ["{", "a: b: c\n"] {
            std::fs::write(&path, broken).unwrap();
            assert!(matches!(update(&path, |_| Ok(json!({}))), Err(FileError::Parse(..))));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
        }
        std::fs::write(&path, "a: 1\n").unwrap();
        assert!(matches!(update(&path, |_| Err(MergeError::NoMapping)), Err(FileError::Merge(..))));
        std::fs::write(dir.path().join("config.lock"), "").unwrap();
        assert!(matches!(update(&path, |_| Ok(json!({}))), Err(FileError::Locked(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a: 1\n");
        assert_eq!(files(dir.path()), ["config", "config.lock"], "the lock of the other program stays");
    }
}
