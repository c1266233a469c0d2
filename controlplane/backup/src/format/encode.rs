//! Writes a backup, chunk by chunk.

use super::record::{CHUNK_HEAD, Tag, length, put_file, put_key};
use super::{CHUNK, Counts, DIGEST, File, FormatError, Header, MAGIC, MAX_HEADER, VERSION};
use bytes::Bytes;
use coracle_store::KeyValue;
use ring::digest::{Context, SHA256, digest};

/// zstd's own default: faster than disks, and objects shrink to a tenth.
const LEVEL: i32 = 3;

/// A backup that is being written. Every method returns the bytes that come next.
pub struct Encoder {
    whole: Context,
    plain: Vec<u8>,
    counts: Counts,
}

impl Encoder {
    /// Begins a backup.
    pub fn begin(header: &Header) -> Result<(Self, Bytes), FormatError> {
        Self::with_version(header, VERSION)
    }

    pub(super) fn with_version(header: &Header, version: u32) -> Result<(Self, Bytes), FormatError> {
        let header = serde_json::to_vec(header).map_err(FormatError::Header)?;
        if header.len() > MAX_HEADER {
            return Err(FormatError::TooLarge("the header".to_owned()));
        }
        let mut out = Vec::with_capacity(MAGIC.len() + 8 + header.len() + DIGEST);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&version.to_be_bytes());
        out.extend_from_slice(&length(header.len()));
        out.extend_from_slice(&header);
        out.extend_from_slice(digest(&SHA256, &header).as_ref());
        let mut whole = Context::new(&SHA256);
        whole.update(&out);
        Ok((Self { whole, plain: Vec::new(), counts: Counts::default() }, out.into()))
    }

    /// The files of the cluster; before all keys.
    pub fn files(&mut self, files: &[File]) -> Result<Bytes, FormatError> {
        let mut plain = Vec::new();
        for file in files {
            put_file(file, &mut plain)?;
            self.counts.files.push(file.name.clone());
        }
        self.chunk(Tag::Files, &plain)
    }

    /// Adds a key to the current chunk.
    pub fn key(&mut self, one: &KeyValue) -> Result<(), FormatError> {
        put_key(one, &mut self.plain)?;
        self.counts.keys += 1;
        self.counts.bytes += (one.key.len() + one.value.len()) as u64;
        Ok(())
    }

    /// Whether a key of this size belongs into the next chunk.
    pub fn is_full(&self, next: &KeyValue) -> bool {
        !self.plain.is_empty() && self.plain.len() + next.key.len() + next.value.len() > CHUNK
    }

    /// Compresses the current chunk, which takes milliseconds. Without keys it is empty.
    pub fn close_chunk(&mut self) -> Result<Bytes, FormatError> {
        if self.plain.is_empty() {
            return Ok(Bytes::new());
        }
        let mut plain = std::mem::take(&mut self.plain);
        let chunk = self.chunk(Tag::Keys, &plain);
        plain.clear();
        self.plain = plain;
        chunk
    }

    /// The end of the backup, and what it has.
    pub fn finish(mut self) -> Result<(Bytes, Counts), FormatError> {
        let mut out = Vec::from(self.close_chunk()?);
        let counts = serde_json::to_vec(&self.counts).map_err(FormatError::Header)?;
        out.extend_from_slice(&self.chunk(Tag::Counts, &counts)?);
        out.extend_from_slice(self.whole.finish().as_ref());
        Ok((out.into(), self.counts))
    }

    fn chunk(&mut self, tag: Tag, plain: &[u8]) -> Result<Bytes, FormatError> {
        let packed = zstd::bulk::compress(plain, LEVEL).map_err(FormatError::Compress)?;
        let mut out = Vec::with_capacity(CHUNK_HEAD + packed.len());
        out.push(tag as u8);
        out.extend_from_slice(&length(packed.len()));
        out.extend_from_slice(&length(plain.len()));
        out.extend_from_slice(digest(&SHA256, &packed).as_ref());
        out.extend_from_slice(&packed);
        self.whole.update(&out);
        Ok(out.into())
    }
}
