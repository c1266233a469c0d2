//! Which directory positions are of.

use std::fs;
use std::io;
use std::path::Path;

use coracle_trace::SpanId;

use crate::varint::Reader;

/// The random number of a directory, and whether it was opened since the machine booted. Without segments positions begin anew, so
/// it gets a new number.
pub(crate) fn spool_id(dir: &Path, is_empty: bool, boot: u128) -> io::Result<(u64, bool)> {
    let path = dir.join("id");
    let known = fs::read(&path).unwrap_or_default();
    let mut reader = Reader::new(&known);
    let (known, opened) = (reader.u64().filter(|_| !is_empty), reader.u128());
    let id = known.unwrap_or_else(|| SpanId::fresh().0);
    let is_same_boot = opened == Some(boot);
    if known.is_none() || !is_same_boot {
        let mut bytes = id.to_le_bytes().to_vec();
        bytes.extend(boot.to_le_bytes());
        fs::write(&path, bytes)?;
    }
    Ok((id, is_same_boot))
}
