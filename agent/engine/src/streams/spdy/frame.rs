//! Frames: eight bytes of header, then the payload.

/// Supported frame types.
pub mod kind {
    /// A peer opens a stream.
    pub const SYN_STREAM: u16 = 1;
    /// The other side accepts it.
    pub const SYN_REPLY: u16 = 2;
    /// A stream is reset.
    pub const RST_STREAM: u16 = 3;
    /// An echo is asked for.
    pub const PING: u16 = 6;
    /// The connection ends.
    pub const GOAWAY: u16 = 7;
}

/// The last frame of a stream in its direction.
pub const FIN: u8 = 1;
/// Control frames are read whole, so they have a limit.
pub const MAX_CONTROL: usize = 64 << 10;
const VERSION: u16 = 3;
const CONTROL: u8 = 0x80;

/// A frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Bytes of a stream.
    Data {
        /// Which stream.
        stream: u32,
        /// [`FIN`] or nothing.
        flags: u8,
        /// Bytes that follow.
        length: usize,
    },
    /// A control frame.
    Control {
        /// Frame type.
        kind: u16,
        /// Flags.
        flags: u8,
        /// Bytes that follow.
        length: usize,
    },
}

impl Header {
    /// Reads a header; `None` when it is of another version.
    pub fn parse(bytes: [u8; 8]) -> Option<Self> {
        let [a, b, c, d, flags, x, y, z] = bytes;
        let length = u32::from_be_bytes([0, x, y, z]) as usize;
        if a & CONTROL == 0 {
            return Some(Self::Data { stream: u32::from_be_bytes([a, b, c, d]), flags, length });
        }
        let version = u16::from_be_bytes([a & !CONTROL, b]);
        (version == VERSION).then_some(Self::Control { kind: u16::from_be_bytes([c, d]), flags, length })
    }
}

/// A data frame. Longer data than a frame holds is the caller's mistake; chunks are far below it.
pub fn data(stream: u32, data: &[u8], fin: bool) -> Vec<u8> {
    let mut frame = Vec::with_capacity(8 + data.len());
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(&(data.len() as u32 | u32::from(u8::from(fin) * FIN) << 24).to_be_bytes());
    frame.extend_from_slice(data);
    frame
}

fn control(kind: u16, payload: &[&[u8]]) -> Vec<u8> {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    let mut frame = Vec::with_capacity(8 + length);
    frame.extend_from_slice(&(VERSION | u16::from(CONTROL) << 8).to_be_bytes());
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&(length as u32).to_be_bytes());
    payload.iter().for_each(|part| frame.extend_from_slice(part));
    frame
}

/// Accepts a stream.
pub fn syn_reply(stream: u32, headers: &[u8]) -> Vec<u8> {
    control(kind::SYN_REPLY, &[&stream.to_be_bytes(), headers])
}

/// Resets a stream.
pub fn rst_stream(stream: u32, status: u32) -> Vec<u8> {
    control(kind::RST_STREAM, &[&stream.to_be_bytes(), &status.to_be_bytes()])
}

/// Asks for an echo, or is one.
pub fn ping(id: u32) -> Vec<u8> {
    control(kind::PING, &[&id.to_be_bytes()])
}

/// Closes the connection gracefully.
pub fn goaway(last: u32) -> Vec<u8> {
    control(kind::GOAWAY, &[&last.to_be_bytes(), &0u32.to_be_bytes()])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn header(frame: &[u8]) -> Header {
        Header::parse(frame[..8].try_into().unwrap()).unwrap()
    }

    #[test]
    fn frames_are_read_as_they_are_written() {
        assert_eq!(header(&data(5, b"abc", false)), Header::Data { stream: 5, flags: 0, length: 3 });
        assert_eq!(header(&data(5, b"", true)), Header::Data { stream: 5, flags: FIN, length: 0 });
        assert_eq!(header(&ping(2)), Header::Control { kind: kind::PING, flags: 0, length: 4 });
        assert_eq!(header(&goaway(2)), Header::Control { kind: kind::GOAWAY, flags: 0, length: 8 });
        let reply = syn_reply(1, &[1, 2, 3]);
        assert_eq!(reply[..8], [0x80, 3, 0, 2, 0, 0, 0, 7]);
        assert_eq!(Header::parse([0x80, 2, 0, 1, 0, 0, 0, 0]), None, "SPDY/2");
    }
}
