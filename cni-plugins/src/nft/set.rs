//! Sets, maps and their elements.

use super::expr::Verdict;
use crate::netlink::{Attributes, Message};

pub(super) const LIST_TABLE: u16 = 1;
pub(super) const LIST_SET: u16 = 2;
pub(super) const LIST_ELEMENTS: u16 = 3;
const LIST_ELEM: u16 = 1;
const ELEM_KEY: u16 = 1;
const ELEM_DATA: u16 = 2;
const ELEM_TIMEOUT: u16 = 4;
const ELEM_EXPIRATION: u16 = 5;
const ELEM_USERDATA: u16 = 6;
const DATA_VALUE: u16 = 1;

/// The type of a part of a key; the numbers let `nft` print it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// An IPv4 address.
    Ipv4 = 7,
    /// An IPv6 address.
    Ipv6 = 8,
    /// TCP, UDP, …; one byte.
    Protocol = 12,
    /// A port, network order.
    Port = 13,
    /// A number, host order.
    Mark = 19,
}

impl KeyType {
    /// Its length, padded as in registers.
    fn length(self) -> u32 {
        if self == KeyType::Ipv6 { 16 } else { 4 }
    }
}

/// Type of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    /// Nothing: a set.
    None,
    /// Verdicts.
    Verdict,
    /// Values.
    Value(&'a [KeyType]),
}

/// A set or map to create.
#[derive(Debug, Clone, Copy)]
pub struct SetSpec<'a> {
    /// Its name.
    pub name: &'a str,
    /// The parts of its keys.
    pub key: &'a [KeyType],
    /// Type of the values.
    pub data: Data<'a>,
}

const SET_MAP: u32 = 8;
pub(super) const TIMEOUT: u32 = 0x10;
pub(super) const EVAL: u32 = 0x20;
const VERDICT_TYPE: u32 = 0xffff_ff00;

impl SetSpec<'_> {
    pub(super) fn write(&self, message: Message, id: u32) -> Message {
        self.write_with(message, id, 0)
    }

    pub(super) fn write_with(&self, message: Message, id: u32, flags: u32) -> Message {
        let flags = flags | if self.data == Data::None { 0 } else { SET_MAP };
        let message = message
            .text(2, self.name)
            .be32(3, flags)
            .be32(4, type_of(self.key))
            .be32(5, length_of(self.key))
            .be32(10, id);
        match self.data {
            Data::None => message,
            Data::Verdict => message.be32(6, VERDICT_TYPE).be32(7, 16),
            Data::Value(parts) => message.be32(6, type_of(parts)).be32(7, length_of(parts)),
        }
    }
}

/// nft packs the parts of a concatenation into 6 bits each.
fn type_of(parts: &[KeyType]) -> u32 {
    parts.iter().fold(0, |all, part| all << 6 | *part as u32)
}

fn length_of(parts: &[KeyType]) -> u32 {
    let [only] = parts else { return parts.iter().map(|part| part.length()).sum() };
    match only {
        KeyType::Protocol => 1,
        KeyType::Port => 2,
        other => other.length(),
    }
}

/// An element of a set or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The key, its parts padded to 4 bytes when there are several.
    pub key: Vec<u8>,
    /// The value, for value maps.
    pub value: Vec<u8>,
    /// The verdict, for verdict maps. Not read back.
    pub verdict: Option<Verdict>,
    /// Comment that names the owner; shown by `nft list`.
    pub comment: String,
    /// How long it stays after each use, and for how long yet, in milliseconds; for dynamic sets.
    pub time: Option<(u64, u64)>,
}

impl Element {
    /// A bare key: for sets, and for deletions.
    pub fn key(key: Vec<u8>) -> Self {
        Element { key, value: Vec::new(), verdict: None, comment: String::new(), time: None }
    }

    pub(super) fn write(&self, message: Message) -> Message {
        message.nest(LIST_ELEM, |m| {
            let mut m = m.nest(ELEM_KEY, |m| m.attr(DATA_VALUE, &self.key));
            if !self.value.is_empty() {
                m = m.nest(ELEM_DATA, |m| m.attr(DATA_VALUE, &self.value));
            }
            if let Some(verdict) = &self.verdict {
                m = m.nest(ELEM_DATA, |m| verdict.write(m));
            }
            if let Some((timeout, left)) = self.time {
                m = m.attr(ELEM_TIMEOUT, &timeout.to_be_bytes()).attr(ELEM_EXPIRATION, &left.to_be_bytes());
            }
            match self.comment.is_empty() {
                true => m,
                false => m.attr(ELEM_USERDATA, &comment(&self.comment)),
            }
        })
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let attributes = Attributes::new(bytes);
        let value = |kind: u16| {
            let nested = Attributes::new(attributes.find_kind(kind)?);
            nested.find_kind(DATA_VALUE).map(<[u8]>::to_vec)
        };
        let comment = attributes.find_kind(ELEM_USERDATA).and_then(|data| match data {
            [0, length, text @ ..] => text.get(..usize::from(*length)),
            _ => None,
        });
        let number = |kind: u16| attributes.find_kind(kind)?.try_into().ok().map(u64::from_be_bytes);
        let timeout = number(ELEM_TIMEOUT);
        Some(Element {
            time: timeout.map(|timeout| (timeout, number(ELEM_EXPIRATION).unwrap_or(timeout))),
            key: value(ELEM_KEY)?,
            value: value(ELEM_DATA).unwrap_or_default(),
            verdict: None,
            comment: String::from_utf8_lossy(comment.unwrap_or_default()).trim_end_matches('\0').to_owned(),
        })
    }
}

/// A comment as `nft` stores it in user data: type, length, text with NUL.
pub(super) fn comment(text: &str) -> Vec<u8> {
    let text = &text.as_bytes()[..text.len().min(250)];
    let mut bytes = vec![0, text.len() as u8 + 1];
    bytes.extend_from_slice(text);
    bytes.push(0);
    bytes
}
