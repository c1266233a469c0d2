//! Files of the store: listing, removal, atomic replacement.

use std::{fs, io, path::Path, time::UNIX_EPOCH};

use super::{Error, Result};

pub(super) fn names_in(dir: &Path) -> Result<Vec<String>> {
    let listing = match fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io("listing", dir)(e)),
    };
    let names = listing.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    Ok(names)
}

pub(super) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("removing", path)(e)),
        _ => Ok(()),
    }
}

/// Replaces a file atomically, also with respect to power failures.
pub(super) fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("file");
    let temporary = path.with_file_name(format!(".{name}.tmp"));
    let write = || -> io::Result<()> {
        let mut file = fs::File::create(&temporary)?;
        io::Write::write_all(&mut file, bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(Error::io("writing", path))
}

/// Seconds since 1970; 0 for a file that does not exist.
pub(super) fn modified(path: &Path) -> i64 {
    let time = fs::metadata(path).and_then(|m| m.modified()).unwrap_or(UNIX_EPOCH);
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}
