//! Reads a backup and verifies every byte of it.

use super::record::{CHUNK_HEAD, Tag, files, keys};
use super::{Counts, DIGEST, File, FormatError, Header, MAGIC, MAX_CHUNK, MAX_HEADER, VERSION};
use bytes::Bytes;
use coracle_store::KeyValue;
use ring::digest::{Context, SHA256, digest};
use std::io::{ErrorKind, Read};

/// A part of a backup, as large as one chunk.
#[derive(Debug)]
pub enum Part {
    /// Files of the cluster's identity.
    Files(Vec<File>),
    /// Keys of the store, in order.
    Keys(Vec<KeyValue>),
}

/// Reads a backup part by part. A backup is verified when [`Reader::next_part`] has returned `None`, and not before.
pub struct Reader<R> {
    source: R,
    whole: Context,
    at: u64,
    header: Header,
    seen: Counts,
    is_done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn open(mut source: R) -> Result<Self, FormatError> {
        let mut fixed = [0; MAGIC.len() + 8];
        let (mut whole, mut at) = (Context::new(&SHA256), 0);
        fill(&mut source, &mut fixed[..MAGIC.len()], &mut at).map_err(|error| match error {
            FormatError::Truncated(_) => FormatError::NotABackup,
            other => other,
        })?;
        if fixed[..MAGIC.len()] != MAGIC {
            return Err(FormatError::NotABackup);
        }
        fill(&mut source, &mut fixed[MAGIC.len()..], &mut at)?;
        let found = number(&fixed[MAGIC.len()..]);
        if found != VERSION {
            return Err(FormatError::Newer { found, supported: VERSION });
        }
        let length = number(&fixed[MAGIC.len() + 4..]) as usize;
        if length > MAX_HEADER {
            return Err(FormatError::Damaged { what: "the length of the header", at });
        }
        let begun = at;
        let mut header = vec![0; length + DIGEST];
        fill(&mut source, &mut header, &mut at)?;
        if digest(&SHA256, &header[..length]).as_ref() != &header[length..] {
            return Err(FormatError::Damaged { what: "the checksum of the header is wrong", at: begun });
        }
        whole.update(&fixed);
        whole.update(&header);
        let header = serde_json::from_slice(&header[..length]).map_err(FormatError::Header)?;
        Ok(Self { source, whole, at, header, seen: Counts::default(), is_done: false })
    }

    /// What the backup is about.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What was read up to now; at the end all that the backup has.
    pub fn counts(&self) -> &Counts {
        &self.seen
    }

    /// The next part; `None` at the end of a whole and unchanged backup.
    pub fn next_part(&mut self) -> Result<Option<Part>, FormatError> {
        if self.is_done {
            return Ok(None);
        }
        let begun = self.at;
        let damaged = |what| FormatError::Damaged { what, at: begun };
        let (tag, plain) = self.chunk()?;
        match tag {
            Tag::Files => {
                let files = files(plain).ok_or_else(|| damaged("a chunk is not made of files"))?;
                self.seen.files.extend(files.iter().map(|file| file.name.clone()));
                Ok(Some(Part::Files(files)))
            }
            Tag::Keys => {
                let keys = keys(plain).ok_or_else(|| damaged("a chunk is not made of keys"))?;
                self.seen.keys += keys.len() as u64;
                self.seen.bytes +=
                    keys.iter().map(|one| (one.key.len() + one.value.len()) as u64).sum::<u64>();
                Ok(Some(Part::Keys(keys)))
            }
            Tag::Counts => {
                let said: Counts = serde_json::from_slice(&plain).map_err(FormatError::Header)?;
                if said != self.seen {
                    return Err(damaged("the counts are not those of what is there"));
                }
                self.end()?;
                Ok(None)
            }
        }
    }

    fn chunk(&mut self) -> Result<(Tag, Bytes), FormatError> {
        let begun = self.at;
        let damaged = |what| FormatError::Damaged { what, at: begun };
        let mut head = [0; CHUNK_HEAD];
        fill(&mut self.source, &mut head, &mut self.at)?;
        let tag = Tag::of(head[0]).ok_or_else(|| damaged("an unknown kind of chunk"))?;
        let (packed, plain) = (number(&head[1..]) as usize, number(&head[5..]) as usize);
        // What cannot be compressed grows a little.
        if plain > MAX_CHUNK || packed > MAX_CHUNK + MAX_CHUNK / 128 {
            return Err(damaged("the length of a chunk"));
        }
        let mut bytes = vec![0; packed];
        fill(&mut self.source, &mut bytes, &mut self.at)?;
        if digest(&SHA256, &bytes).as_ref() != &head[CHUNK_HEAD - DIGEST..] {
            return Err(damaged("the checksum of a chunk is wrong"));
        }
        self.whole.update(&head);
        self.whole.update(&bytes);
        let unpacked = zstd::bulk::decompress(&bytes, plain).map_err(|_| damaged("a chunk is not zstd"))?;
        if unpacked.len() != plain {
            return Err(damaged("the length of a chunk"));
        }
        Ok((tag, unpacked.into()))
    }

    /// The checksum of everything, behind which there is nothing.
    fn end(&mut self) -> Result<(), FormatError> {
        let begun = self.at;
        let mut said = [0; DIGEST];
        fill(&mut self.source, &mut said, &mut self.at)?;
        if self.whole.clone().finish().as_ref() != said {
            return Err(FormatError::Damaged { what: "the checksum of the whole is wrong", at: begun });
        }
        let mut more = [0; 1];
        match fill(&mut self.source, &mut more, &mut self.at) {
            Err(FormatError::Truncated(_)) => {
                self.is_done = true;
                Ok(())
            }
            Ok(()) => Err(FormatError::Damaged { what: "there is something behind the end", at: self.at }),
            Err(error) => Err(error),
        }
    }
}

/// The big-endian number at the beginning of at least four bytes.
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// Fills the whole buffer.
fn fill(source: &mut impl Read, buffer: &mut [u8], at: &mut u64) -> Result<(), FormatError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => return Err(FormatError::Truncated(*at)),
            Ok(count) => {
                filled += count;
                *at += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(FormatError::Read(error)),
        }
    }
    Ok(())
}
