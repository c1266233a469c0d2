//! Files and directories that only their owner can read.

use super::error::PkiError;
use std::fs::File;
use std::path::Path;

/// Makes a directory that only its owner can look into.
pub fn private_directory(path: &Path) -> Result<(), PkiError> {
    coracle_cli::private_files::directory(path).map_err(|source| PkiError::File { path: path.into(), source })
}

/// Writes a file that only its owner can read, by rename, so that it is whole or absent.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
    coracle_cli::private_files::write(path, bytes)
        .map_err(|source| PkiError::File { path: path.into(), source })
}

/// Makes the names in a directory survive a power cut.
pub(crate) fn sync_directory(dir: &Path) -> Result<(), PkiError> {
    // The parent of a relative path of one component.
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|source| PkiError::File { path: dir.into(), source })
}
