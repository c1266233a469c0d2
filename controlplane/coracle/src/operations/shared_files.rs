//! The files of a server whose configuration of encryption at rest is that of its cluster.

use super::reload_error::ReloadError;
use coracle_cli::private_files;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Where a server of a cluster with several keeps the configuration.
pub(crate) struct SharedFiles {
    /// The file of `--encryption-provider-config`.
    pub(crate) flag: Option<PathBuf>,
    /// The copy beside the keys: in backups, and for starts without the flag.
    pub(crate) copy: PathBuf,
    /// The digest of the flag's file when it was last used or written here.
    pub(crate) seen: PathBuf,
}

impl SharedFiles {
    /// The file that operators change.
    pub(crate) fn path(&self) -> &Path {
        self.flag.as_deref().unwrap_or(&self.copy)
    }

    /// Whether the flag's file has not been changed by others since.
    pub(crate) fn is_seen(&self, text: &str) -> bool {
        std::fs::read_to_string(&self.seen).is_ok_and(|digest| digest.trim() == digest_of(text))
    }

    /// Writes the copy, notes what the flag's file has, and writes that, too, if the configuration comes from another server.
    pub(crate) fn keep(&self, text: Option<&str>, foreign: bool) -> Result<(), ReloadError> {
        let put = |path: &Path, text: Option<&str>| {
            let written = match text {
                Some(text) => private_files::write(path, text.as_bytes()),
                None => std::fs::remove_file(path),
            };
            match written {
                Err(error) if text.is_some() || error.kind() != std::io::ErrorKind::NotFound => {
                    Err(ReloadError::Write(path.into(), error))
                }
                _ => Ok(()),
            }
        };
        put(&self.copy, text)?;
        if let Some(flag) = &self.flag {
            if foreign && text.is_some() {
                put(flag, text)?;
            }
            put(&self.seen, text.map(digest_of).as_deref())?;
        }
        Ok(())
    }
}

fn digest_of(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
