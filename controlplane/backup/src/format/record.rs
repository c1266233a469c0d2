//! Records inside a chunk.

use super::{DIGEST, File, FormatError, MAX_CHUNK};
use bytes::{Buf, Bytes};
use coracle_store::KeyValue;

/// Length of tag, lengths and digest.
pub(super) const CHUNK_HEAD: usize = 1 + 4 + 4 + DIGEST;
const KEY_HEAD: usize = 4 + 4 + 8 + 8;
const FILE_HEAD: usize = 4 + 4;

/// What a chunk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Tag {
    Files = b'F',
    Keys = b'K',
    Counts = b'C',
}

impl Tag {
    pub(super) fn of(byte: u8) -> Option<Self> {
        [Self::Files, Self::Keys, Self::Counts].into_iter().find(|tag| *tag as u8 == byte)
    }
}

/// The length of a part as it stands in the file.
pub(super) fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).expect("parts are at most MAX_CHUNK long").to_be_bytes()
}

pub(super) fn put_key(one: &KeyValue, out: &mut Vec<u8>) -> Result<(), FormatError> {
    if one.key.len() + one.value.len() + KEY_HEAD > MAX_CHUNK {
        return Err(FormatError::TooLarge(one.key.chars().take(100).collect()));
    }
    out.extend_from_slice(&length(one.key.len()));
    out.extend_from_slice(&length(one.value.len()));
    out.extend_from_slice(&one.created.to_be_bytes());
    out.extend_from_slice(&one.modified.to_be_bytes());
    out.extend_from_slice(one.key.as_bytes());
    out.extend_from_slice(&one.value);
    Ok(())
}

/// The keys of a chunk; `None` if it is not made of keys.
pub(super) fn keys(mut plain: Bytes) -> Option<Vec<KeyValue>> {
    let mut keys = Vec::new();
    while plain.has_remaining() {
        if plain.remaining() < KEY_HEAD {
            return None;
        }
        let (key, value) = (plain.get_u32() as usize, plain.get_u32() as usize);
        let (created, modified) = (plain.get_u64(), plain.get_u64());
        if plain.remaining() < key.checked_add(value)? {
            return None;
        }
        let key = String::from_utf8(plain.split_to(key).into()).ok()?;
        keys.push(KeyValue { key, value: plain.split_to(value), created, modified });
    }
    Some(keys)
}

/// Whether a file of a backup may have the name: it becomes a file in a directory of keys.
pub(super) fn is_file_name(name: &str) -> bool {
    let usual = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(usual)
}

pub(super) fn put_file(file: &File, out: &mut Vec<u8>) -> Result<(), FormatError> {
    if !is_file_name(&file.name) {
        return Err(FormatError::FileName(file.name.clone()));
    }
    if out.len() + file.bytes.len() + file.name.len() + FILE_HEAD > MAX_CHUNK {
        return Err(FormatError::TooLarge(file.name.clone()));
    }
    out.extend_from_slice(&length(file.name.len()));
    out.extend_from_slice(&length(file.bytes.len()));
    out.extend_from_slice(file.name.as_bytes());
    out.extend_from_slice(&file.bytes);
    Ok(())
}

/// The files of a chunk; `None` if it is not made of files.
pub(super) fn files(mut plain: Bytes) -> Option<Vec<File>> {
    let mut files = Vec::new();
    while plain.has_remaining() {
        if plain.remaining() < FILE_HEAD {
            return None;
        }
        let (name, bytes) = (plain.get_u32() as usize, plain.get_u32() as usize);
        if plain.remaining() < name.checked_add(bytes)? {
            return None;
        }
        let name = String::from_utf8(plain.split_to(name).into()).ok().filter(|name| is_file_name(name))?;
        files.push(File { name, bytes: plain.split_to(bytes).into() });
    }
    Some(files)
}
