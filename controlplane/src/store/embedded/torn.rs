//! The end of a journal after a power cut. The disk may have kept the end of the last writes but not their middle; the
//! engine tells only that a checksum is wrong and does not open. What was not synced was not acknowledged (or lazy),
//! so such an end is cut off and kept aside.

use std::{
    fs, io,
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::Xxh3;

/// More than this cannot have been on its way to the disk; it is damage that a person has to look at.
const MAX_TORN: usize = 32 << 20;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";

/// Cuts the newest journal in the directory after its last whole batch. Returns how many bytes went, 0 if it is whole.
pub(super) fn repair(directory: &Path) -> io::Result<usize> {
    let Some(journal) = newest(directory)? else { return Ok(0) };
    let bytes = fs::read(&journal)?;
    let whole = whole(&bytes);
    // Behind the last write the file is zeros, as it was made.
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let torn = written.saturating_sub(whole);
    if torn == 0 {
        return Ok(0);
    }
    if torn > MAX_TORN {
        let why = format!("{} is damaged {torn} bytes before its end", journal.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    fs::write(journal.with_extension("torn"), &bytes[whole..written])?;
    let file = fs::OpenOptions::new().write(true).open(&journal)?;
    file.set_len(whole as u64)?;
    file.sync_all()?;
    Ok(torn)
}

fn newest(directory: &Path) -> io::Result<Option<PathBuf>> {
    let mut newest = None;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            newest = newest.max(number.map(|number| (number, path)));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

/// Where the last batch ends before which all are whole.
fn whole(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(length) = batch(&bytes[at..]) {
        at += length;
    }
    at
}

/// The length of the batch at the beginning, if it is whole.
fn batch(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    if take(&mut rest, 1)?[0] != START {
        return None;
    }
    let count = u32::from_le_bytes(take(&mut rest, 4)?.try_into().ok()?);
    take(&mut rest, 8)?;
    let mut sum = Xxh3::new();
    for _ in 0..count {
        let item = rest;
        match take(&mut rest, 1)?[0] {
            ITEM => {
                // Type, compression, keyspace.
                take(&mut rest, 1 + 1 + 8)?;
                let key = u16::from_le_bytes(take(&mut rest, 2)?.try_into().ok()?);
                take(&mut rest, 4)?;
                let value = u32::from_le_bytes(take(&mut rest, 4)?.try_into().ok()?);
                take(&mut rest, usize::from(key) + value as usize)?;
            }
            CLEAR => drop(take(&mut rest, 8)?),
            _ => return None,
        }
        sum.update(&item[..item.len() - rest.len()]);
    }
    let end = take(&mut rest, 1 + 8 + TRAILER.len())?;
    let same = end[1..9] == sum.digest().to_le_bytes();
    (end[0] == END && same && &end[9..] == TRAILER).then(|| bytes.len() - rest.len())
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::{Store, behaviour::put, embedded::Embedded};

    /// Writes of several pages; then a hole where the disk did not get to it.
    #[tokio::test]
    async fn a_torn_end_costs_only_what_was_not_synced() {
        // Text that the journal cannot make small.
        let value: String =
            (1..2000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        for (hole, left) in [(None, 20), (Some(3000), 19), (Some(20), 19)] {
            let dir = tempfile::tempdir().unwrap();
            let store = Embedded::open(dir.path()).unwrap();
            for n in 0..20 {
                put(&store, &format!("/registry/{n:02}"), 0, &value).await.unwrap();
            }
            drop(store);
            let journal = newest(dir.path()).unwrap().unwrap();
            let mut bytes = fs::read(&journal).unwrap();
            let end = whole(&bytes);
            assert!(bytes[end..].iter().all(|byte| *byte == 0), "this parser knows the whole journal");
            assert_eq!(repair(dir.path()).unwrap(), 0);
            if let Some(hole) = hole {
                let mut last = 0;
                while last + batch(&bytes[last..]).unwrap() < end {
                    last += batch(&bytes[last..]).unwrap();
                }
                bytes[last + hole..last + hole + 100].fill(0);
                fs::write(&journal, &bytes).unwrap();
            }
            let store = Embedded::open(dir.path()).unwrap();
            assert_eq!(store.range("/registry/", None).await.unwrap().0.len(), left, "{hole:?}");
            let again = put(&store, "/registry/again", 0, &value).await.unwrap();
            drop(store);
            assert_eq!(Embedded::open(dir.path()).unwrap().revision().await.unwrap(), again);
        }
    }
}
