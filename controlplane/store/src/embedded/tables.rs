//! The engine's tables before it opens them. It keeps a checksum of every table in a version file, and one of the version
//! file in `current`, but compares neither; and it deletes a keyspace without a `current` as one that was never finished.

use super::damage::Damage;
use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The engine's own keyspace, the index and the log.
const KEYSPACES: [&str; 3] = ["0", "1", "2"];
const MARKER: &[u8] = b"FJL\x03";
/// How much of a table is read at once.
const PIECE: usize = 256 << 10;

/// Compares all version files and tables with their checksums.
pub(super) fn verify(store: &Path) -> Result<(), Damage> {
    let marker = store.join("version");
    if !fs::read(&marker).map_err(Damage::io(&marker))?.starts_with(MARKER) {
        return Err(Damage::bytes(&marker, 0, "it does not name the format of the store"));
    }
    KEYSPACES.iter().try_for_each(|keyspace| verify_keyspace(&store.join("keyspaces").join(keyspace)))
}

fn verify_keyspace(directory: &Path) -> Result<(), Damage> {
    let current = directory.join("current");
    let raw = match fs::read(&current) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Damage::bytes(&current, 0, "this file is missing"));
        }
        result => result.map_err(Damage::io(&current))?,
    };
    let mut fields = Fields(&raw);
    let (Some(id), Some(sum), Some(0)) = (fields.u64(), fields.u128(), fields.u8()) else {
        return Err(Damage::bytes(&current, 0, "it does not name a version with its checksum"));
    };
    let version = directory.join(format!("v{id}"));
    let raw = match fs::read(&version) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let what = format!("it names {}, which is missing", version.display());
            return Err(Damage::bytes(&current, 0, what));
        }
        result => result.map_err(Damage::io(&version))?,
    };
    if xxh3_128(&raw) != sum {
        return Err(Damage::bytes(
            &version,
            0,
            format!("its checksum is not the one in {}", current.display()),
        ));
    }
    let tables =
        tables(&raw).ok_or_else(|| Damage::bytes(&version, 0, "its list of tables cannot be read"))?;
    tables
        .into_iter()
        .try_for_each(|(id, sum)| verify_table(directory.join("tables").join(id.to_string()), sum))
}

fn verify_table(path: PathBuf, sum: u128) -> Result<(), Damage> {
    let found = match checksum(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Damage::bytes(&path, 0, "this table is missing"));
        }
        result => result.map_err(Damage::io(&path))?,
    };
    if found == sum {
        return Ok(());
    }
    let raw = fs::read(&path).map_err(Damage::io(&path))?;
    Err(Damage::bytes(&path, first_bad_block(&raw), "the checksum of the table is wrong from here on"))
}

/// The checksum of a file that may be large. It is read in pieces that stay in the processor's cache.
fn checksum(path: &Path) -> io::Result<u128> {
    let (mut file, mut sum, mut piece) = (File::open(path)?, Xxh3::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(sum.digest128()),
            Ok(length) => sum.update(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Identifiers and checksums of the tables that a version file lists.
fn tables(raw: &[u8]) -> Option<Vec<(u64, u128)>> {
    let mut list = Fields(section(raw, b"tables")?);
    let mut tables = Vec::new();
    for _ in 0..list.u8()? {
        for _ in 0..list.u8()? {
            for _ in 0..list.u32()? {
                let (id, kind, sum, _) = (list.u64()?, list.u8()?, list.u128()?, list.u64()?);
                if kind != 0 {
                    return None;
                }
                tables.push((id, sum));
            }
        }
    }
    Some(tables)
}

/// A section of an archive: the end of the file says where the table of contents is.
fn section<'a>(raw: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    // Magic, version, kind of checksum, checksum; then position and length.
    let mut trailer = Fields(raw.get(raw.len().checked_sub(38)?..)?);
    trailer.take(22)?;
    let mut contents = Fields(raw.get(usize::try_from(trailer.u64()?).ok()?..)?);
    contents.take(4)?;
    for _ in 0..contents.u32()? {
        let (from, length) = (usize::try_from(contents.u64()?).ok()?, usize::try_from(contents.u64()?).ok()?);
        let length_of_name = contents.u16()?;
        if contents.take(usize::from(length_of_name))? == name {
            return raw.get(from..from.checked_add(length)?);
        }
    }
    None
}

/// Where the first block begins that does not have its checksum.
fn first_bad_block(raw: &[u8]) -> usize {
    let mut at = 0;
    while let Some(length) = block(&raw[at..]) {
        at += length;
    }
    at
}

/// The length of the block at the beginning, if its checksums are right.
fn block(raw: &[u8]) -> Option<usize> {
    let mut fields = Fields(raw);
    fields.take(4 + 1)?;
    let (sum, length, _) = (fields.u128()?, fields.u32()?, fields.u32()?);
    let header = raw.len() - fields.0.len();
    let same = fields.u32()? == xxh3_128(&raw[..header]) as u32;
    let data = fields.take(length as usize)?;
    (same && xxh3_128(data) == sum).then(|| raw.len() - fields.0.len())
}

/// Little-endian numbers, one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(length)?;
        self.0 = left;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn u128(&mut self) -> Option<u128> {
        Some(u128::from_le_bytes(self.take(16)?.try_into().ok()?))
    }
}
