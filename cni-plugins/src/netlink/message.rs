//! Messages and attributes: written into one buffer, read without copying.

use netlink_packet_core::{NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage};
use netlink_packet_route::RouteNetlinkMessage;

use super::{Error, Result};

const NESTED: u16 = 1 << 15;

/// A request under construction.
#[derive(Debug, Clone)]
pub struct Message {
    bytes: Vec<u8>,
    /// For error messages.
    action: String,
    /// An attribute is longer than its length can say; such a message must not be sent.
    too_long: bool,
}

impl Message {
    /// A message of a type with flags (`NLM_F_REQUEST` is implied); `action` names it in errors.
    pub fn new(kind: u16, flags: u16, action: impl Into<String>) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        Message { bytes, action: action.into(), too_long: false }
    }

    /// A message of rtnetlink.
    pub(crate) fn route(body: RouteNetlinkMessage, flags: u16, action: impl Into<String>) -> Self {
        let mut message = NetlinkMessage::from(body);
        message.header.flags = flags | NLM_F_REQUEST;
        message.finalize();
        let length = message.buffer_len();
        // An attribute that is too long cannot be serialized. All of a message together are far below that limit.
        let too_long = length > usize::from(u16::MAX);
        let mut bytes = Vec::new();
        if !too_long {
            bytes.resize(length, 0);
            message.serialize(&mut bytes);
        }
        Message { bytes, action: action.into(), too_long }
    }

    /// Appends the family's own header, or anything else without a type.
    pub fn raw(mut self, payload: &[u8]) -> Self {
        self.push(payload);
        self
    }

    /// Appends an attribute.
    pub fn attr(mut self, kind: u16, value: &[u8]) -> Self {
        self.put(kind, value);
        self
    }

    /// Appends a NUL-terminated string.
    pub fn text(mut self, kind: u16, value: &str) -> Self {
        self.put_text(kind, value);
        self
    }

    /// Appends a number in host order.
    pub fn u32(self, kind: u16, value: u32) -> Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Appends a number in network order, as nf_tables has them.
    pub fn be32(self, kind: u16, value: u32) -> Self {
        self.attr(kind, &value.to_be_bytes())
    }

    /// Appends an attribute made of attributes.
    pub fn nest(mut self, kind: u16, fill: impl FnOnce(Message) -> Message) -> Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self = fill(self);
        let length = self.length(self.bytes.len() - start);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&(kind | NESTED).to_ne_bytes());
        self
    }

    fn put(&mut self, kind: u16, value: &[u8]) {
        let length = self.length(value.len() + 4);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.push(value);
    }

    /// The length of an attribute as it is written.
    fn length(&mut self, length: usize) -> u16 {
        u16::try_from(length).unwrap_or_else(|_| {
            self.too_long = true;
            u16::MAX
        })
    }

    fn put_text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes);
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// What was written so far, header included.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the message can be sent: an error when one of its attributes is too long.
    pub(super) fn check(&self) -> Result<()> {
        match self.too_long {
            true => Err(Error::TooLong { action: self.action.clone() }),
            false => Ok(()),
        }
    }

    pub(super) fn action(&self) -> &str {
        &self.action
    }

    /// Writes length, sequence number and extra flags; the bytes to send.
    pub(super) fn seal(&mut self, sequence: u32, flags: u16) -> &[u8] {
        let length = self.bytes.len() as u32;
        let flags = u16_at(&self.bytes, 6) | flags;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.bytes
    }
}

/// One attribute read.
pub type Attribute<'a> = (u16, &'a [u8]);

/// Attributes one after the other; stops at the first malformed one.
#[derive(Debug, Clone)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Reads attributes from a payload.
    pub fn new(bytes: &'a [u8]) -> Self {
        Attributes(bytes)
    }

    /// The first attribute of a type.
    pub fn find_kind(&self, kind: u16) -> Option<&'a [u8]> {
        self.clone().find(|(found, _)| *found == kind).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        if self.0.len() < 4 {
            return None;
        }
        let length = usize::from(u16_at(self.0, 0));
        let value = self.0.get(4..length)?;
        let kind = u16_at(self.0, 2) & 0x3fff;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// A number in host order; 0 beyond the end.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// A number in host order; 0 beyond the end.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

/// An answer: header and payload of one message, and the rest of the buffer.
pub(super) struct Answer<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    /// Port of the sender, or of the socket that made the change.
    pub port: u32,
    pub payload: &'a [u8],
}

pub(super) fn answers(mut bytes: &[u8]) -> impl Iterator<Item = Answer<'_>> {
    std::iter::from_fn(move || {
        let message = NetlinkBuffer::new_checked(bytes).ok()?;
        let answer = Answer {
            kind: message.message_type(),
            flags: message.flags(),
            sequence: message.sequence_number(),
            port: message.port_number(),
            payload: message.payload(),
        };
        let length = message.length() as usize;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(answer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let mut message = Message::new(20, 0, "x")
            .raw(&[7; 4])
            .text(1, "eth0")
            .nest(2, |m| m.u32(3, 9).attr(4, &[1]))
            .be32(5, 1);
        let bytes = message.seal(42, 4).to_vec();
        let answer = answers(&bytes).next().expect("one message");
        assert_eq!((answer.kind, answer.flags, answer.sequence), (20, 5, 42));
        let attributes = Attributes::new(&answer.payload[4..]);
        assert_eq!(attributes.find_kind(1), Some(&b"eth0\0"[..]));
        let nested = Attributes::new(attributes.find_kind(2).unwrap_or_default());
        assert_eq!(nested.find_kind(3).map(|v| u32_at(v, 0)), Some(9));
        assert_eq!(nested.find_kind(4), Some(&[1][..]));
        assert_eq!(attributes.find_kind(5), Some(&[0, 0, 0, 1][..]));
        assert_eq!(attributes.count(), 3);
    }

    #[test]
    fn an_attribute_that_is_too_long_is_an_error() {
        let nested = |length: usize| Message::new(20, 0, "x").nest(1, |m| m.attr(2, &vec![0; length]));
        assert!(nested(65_524).check().is_ok());
        assert!(matches!(nested(65_532).check(), Err(Error::TooLong { action }) if action == "x"));
        let flat = |length: usize| Message::new(20, 0, "x").attr(2, &vec![0; length]);
        assert!(flat(65_531).check().is_ok());
        assert!(flat(65_532).check().is_err());
    }

    #[test]
    fn a_name_that_is_too_long_is_an_error() {
        use netlink_packet_route::link::{LinkAttribute, LinkMessage};

        let named = |length: usize| {
            let mut link = LinkMessage::default();
            link.attributes = vec![LinkAttribute::IfName("x".repeat(length))];
            Message::route(RouteNetlinkMessage::GetLink(link), 0, "x")
        };
        assert!(named(15).check().is_ok());
        assert!(matches!(named(70_000).check(), Err(Error::TooLong { action }) if action == "x"));
    }

    #[test]
    fn garbage_ends_the_iteration() {
        for bytes in [&[][..], &[1], &[3, 0, 1, 0], &[200, 0, 1, 0, 5]] {
            assert_eq!(Attributes::new(bytes).count(), 0);
            assert_eq!(answers(bytes).count(), 0);
        }
    }
}
