//! Header blocks: name and value pairs, compressed with zlib and a dictionary of SPDY's own.
//!
//! Blocks of one direction are one zlib stream. What we send is stored, not compressed: it is a few bytes per stream.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use std::collections::BTreeMap;

/// Farther back than this no compressed data refers.
const WINDOW: usize = 32 << 10;
/// More than this in one block is an attack.
const MAX_BLOCK: usize = 64 << 10;
/// The dictionary: each of these with its length before it, then [`TAIL`].
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200|OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
    404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept \
    Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8\
    charset=iso-8859-1,utf-,*,enq=0.";

/// Headers of one stream, names in lower case.
pub type Headers = BTreeMap<String, String>;

/// Why a header block cannot be read. The connection is of no use after it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HeaderError {
    /// Not zlib, or another dictionary.
    #[error("header block: not a zlib stream with SPDY's dictionary")]
    Zlib,
    /// Broken compression.
    #[error("header block: broken compression")]
    Inflate,
    /// More than anyone needs.
    #[error("header block: too large")]
    TooLarge,
    /// Lengths that do not add up.
    #[error("header block: lengths do not add up")]
    Lengths,
}

fn dictionary() -> Vec<u8> {
    let mut all = Vec::with_capacity(1423);
    for word in WORDS.split_ascii_whitespace().map(|word| word.replace('|', " ")) {
        all.extend_from_slice(&(word.len() as u32).to_be_bytes());
        all.extend_from_slice(word.as_bytes());
    }
    all.extend_from_slice(TAIL.as_bytes());
    all
}

/// Reads the header blocks of one direction.
pub struct Reader {
    inflate: Box<DecompressorOxide>,
    /// What was decompressed last, in a circle.
    window: Vec<u8>,
    at: usize,
    begun: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self { inflate: Box::default(), window: vec![0; WINDOW], at: 0, begun: false }
    }
}

impl Reader {
    /// The headers of the next block.
    pub fn read(&mut self, mut block: &[u8]) -> Result<Headers, HeaderError> {
        if !std::mem::replace(&mut self.begun, true) {
            block = self.begin(block)?;
        }
        let mut text = Vec::new();
        while !block.is_empty() {
            let (status, taken, made) =
                decompress(&mut self.inflate, block, &mut self.window, self.at, TINFL_FLAG_HAS_MORE_INPUT);
            text.extend_from_slice(&self.window[self.at..self.at + made]);
            self.at = (self.at + made) % WINDOW;
            block = &block[taken..];
            if text.len() > MAX_BLOCK {
                return Err(HeaderError::TooLarge);
            }
            match status {
                TINFLStatus::NeedsMoreInput | TINFLStatus::HasMoreOutput => {}
                _ => return Err(HeaderError::Inflate),
            }
        }
        pairs(&text)
    }

    /// Reads zlib's own header: method and flags, with the dictionary's checksum when it is used.
    fn begin<'a>(&mut self, block: &'a [u8]) -> Result<&'a [u8], HeaderError> {
        const PRESET: u8 = 0x20;
        let [method, flags, rest @ ..] = block else { return Err(HeaderError::Zlib) };
        if method & 0x0f != 8 || u16::from_be_bytes([*method, *flags]) % 31 != 0 {
            return Err(HeaderError::Zlib);
        }
        if flags & PRESET == 0 {
            return Ok(rest);
        }
        let dictionary = dictionary();
        self.window[..dictionary.len()].copy_from_slice(&dictionary);
        self.at = dictionary.len();
        rest.get(4..).ok_or(HeaderError::Zlib)
    }
}

fn pairs(mut text: &[u8]) -> Result<Headers, HeaderError> {
    fn number(text: &mut &[u8]) -> Result<usize, HeaderError> {
        let (first, rest) = text.split_first_chunk::<4>().ok_or(HeaderError::Lengths)?;
        *text = rest;
        Ok(u32::from_be_bytes(*first) as usize)
    }
    fn word(text: &mut &[u8]) -> Result<String, HeaderError> {
        let length = number(text)?;
        let (word, rest) = text.split_at_checked(length).ok_or(HeaderError::Lengths)?;
        *text = rest;
        Ok(String::from_utf8_lossy(word).into_owned())
    }
    let count = number(&mut text)?;
    let mut headers = Headers::new();
    for _ in 0..count {
        let name = word(&mut text)?.to_ascii_lowercase();
        headers.insert(name, word(&mut text)?);
    }
    Ok(headers)
}

/// A block without headers; `first` of its direction.
pub fn empty_block(first: bool) -> Vec<u8> {
    let mut block = if first { vec![0x78, 0x01] } else { Vec::new() };
    // One stored block of four bytes: the count of pairs; then an empty one, at which readers hand out what they have.
    block.extend_from_slice(&[0, 4, 0, !4, !0, 0, 0, 0, 0]);
    block.extend_from_slice(&[0, 0, 0, !0, !0]);
    block
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Two blocks of one zlib stream with SPDY's dictionary, as zlib makes them.
    const FIRST: &str = "78f9e3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45a024cc64610024398b209198094adc8c0600000000ffff";
    const SECOND: &str = "c2aa15540a2512d209000000ffff";

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn the_dictionary_is_spdys() {
        let all = dictionary();
        let (mut a, mut b) = (1u32, 0u32);
        for byte in &all {
            a = (a + u32::from(*byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!((all.len(), b << 16 | a), (1423, 0xe3c6_a7c2));
    }

    #[test]
    fn blocks_share_one_stream() {
        let mut reader = Reader::default();
        let first = reader.read(&bytes(FIRST)).unwrap();
        assert_eq!(first["streamtype"], "error");
        assert_eq!(first["port"], "80");
        let second = reader.read(&bytes(SECOND)).unwrap();
        assert_eq!((second["streamtype"].as_str(), second["requestid"].as_str()), ("data", "0"));
    }

    #[test]
    fn our_own_blocks_are_read() {
        let mut reader = Reader::default();
        assert_eq!(reader.read(&empty_block(true)), Ok(Headers::new()));
        assert_eq!(reader.read(&empty_block(false)), Ok(Headers::new()));
    }

    #[test]
    fn garbage_is_refused() {
        assert_eq!(Reader::default().read(b"GET / HTTP/1.1"), Err(HeaderError::Zlib));
        assert_eq!(Reader::default().read(&[0x78]), Err(HeaderError::Zlib));
        assert_eq!(Reader::default().read(&[0x78, 0x01, 0xff, 0xff]), Err(HeaderError::Inflate));
        assert_eq!(pairs(&[0, 0, 0, 1, 0, 0, 0, 9, b'x']), Err(HeaderError::Lengths));
    }
}
