//! The payload: chunks of 64 KiB, each encrypted with its number and whether it is the last.

use super::header::{self, aead};
use super::{AgeError, Identity, Recipient, derive, random};
use ring::aead::{Aad, LessSafeKey, Nonce};
use std::io::{self, ErrorKind, Read};

const CHUNK: usize = 64 << 10;
const TAG: usize = 16;
const NONCE: usize = 16;

/// The nonce of a chunk: its number in 11 bytes, and 1 for the last.
fn nonce(number: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; 12];
    bytes[3..11].copy_from_slice(&number.to_be_bytes());
    bytes[11] = u8::from(is_last);
    Nonce::assume_unique_for_key(bytes)
}

/// Encrypts what is pushed.
pub struct Encryptor {
    key: LessSafeKey,
    number: u64,
    plain: Vec<u8>,
}

impl Encryptor {
    /// Begins a file for the recipients; returns its first bytes, too.
    pub fn new(recipients: &[Recipient]) -> Result<(Self, Vec<u8>), AgeError> {
        let (file_key, mut out) = header::write(recipients)?;
        let salt = random::<NONCE>()?;
        out.extend_from_slice(&salt);
        let key = aead(&derive(&file_key, &salt, b"payload"));
        Ok((Self { key, number: 0, plain: Vec::with_capacity(CHUNK + TAG) }, out))
    }

    /// Encrypts more, and appends to `out` what is complete.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            // The last chunk is not known before the end, and is not to be empty.
            if self.plain.len() == CHUNK {
                self.close(false, out);
            }
            let (now, more) = bytes.split_at(bytes.len().min(CHUNK - self.plain.len()));
            self.plain.extend_from_slice(now);
            bytes = more;
        }
    }

    /// Appends the end of the file.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.close(true, out);
    }

    fn close(&mut self, is_last: bool, out: &mut Vec<u8>) {
        let nonce = nonce(self.number, is_last);
        let sealed = self.key.seal_in_place_append_tag(nonce, Aad::empty(), &mut self.plain);
        sealed.expect("64 KiB can be encrypted");
        out.extend_from_slice(&self.plain);
        self.plain.clear();
        self.number += 1;
    }
}

/// Decrypts a file while it is read. Errors of [`Read`] have an [`AgeError`] inside.
pub struct Decryptor<R> {
    source: R,
    key: LessSafeKey,
    number: u64,
    /// The chunk that was read, and of the next one its first byte.
    ahead: Option<u8>,
    plain: Vec<u8>,
    at: usize,
    is_done: bool,
}

impl<R: Read> Decryptor<R> {
    /// Reads the header. `source` should be buffered.
    pub fn open(mut source: R, identities: &[Identity]) -> Result<Self, AgeError> {
        let file_key = header::read(&mut source, identities)?;
        let mut salt = [0; NONCE];
        if fill(&mut source, &mut salt)? != NONCE {
            return Err(AgeError::Truncated);
        }
        let key = aead(&derive(&file_key, &salt, b"payload"));
        let mut this = Self { source, key, number: 0, ahead: None, plain: Vec::new(), at: 0, is_done: false };
        this.ahead = this.byte()?;
        // Even an empty file has a chunk.
        if this.ahead.is_none() {
            return Err(AgeError::Truncated);
        }
        Ok(this)
    }

    fn byte(&mut self) -> Result<Option<u8>, AgeError> {
        let mut byte = [0];
        Ok((fill(&mut self.source, &mut byte)? == 1).then_some(byte[0]))
    }

    fn chunk(&mut self) -> Result<(), AgeError> {
        let Some(first) = self.ahead.take() else {
            self.is_done = true;
            return Ok(());
        };
        let mut sealed = vec![0; CHUNK + TAG];
        sealed[0] = first;
        let length = 1 + fill(&mut self.source, &mut sealed[1..])?;
        sealed.truncate(length);
        self.ahead = if length == CHUNK + TAG { self.byte()? } else { None };
        let is_last = self.ahead.is_none();
        let changed = AgeError::Changed(self.number * CHUNK as u64);
        let mut copy = if is_last { sealed.clone() } else { Vec::new() };
        let Ok(plain) = self.key.open_in_place(nonce(self.number, is_last), Aad::empty(), &mut sealed) else {
            let was_not_last = nonce(self.number, false);
            let whole = is_last && self.key.open_in_place(was_not_last, Aad::empty(), &mut copy).is_ok();
            return Err(if whole { AgeError::Truncated } else { changed });
        };
        let length = plain.len();
        if length == 0 && self.number > 0 {
            return Err(changed);
        }
        sealed.truncate(length);
        (self.plain, self.at) = (sealed, 0);
        self.number += 1;
        Ok(())
    }
}

impl<R: Read> Read for Decryptor<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.plain.len() && !self.is_done {
            self.chunk().map_err(io::Error::other)?;
        }
        let rest = &self.plain[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

/// Reads until the buffer is full or the source ends.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> Result<usize, AgeError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(AgeError::Read(error)),
        }
    }
    Ok(filled)
}
