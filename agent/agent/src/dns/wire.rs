//! Packets to questions, answers to packets that fit.

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};

use super::answer::{UDP_PAYLOAD, empty_reply};

/// What every client takes.
const UDP_LEAST: u16 = 512;
const HEADER: usize = 12;

/// A packet, read.
#[derive(Debug)]
pub enum Packet {
    /// A query with exactly one question.
    Query(Box<Message>),
    /// An unsupported query: the reply to send.
    Refused(Box<Message>),
    /// Dropped: too short, or itself a response.
    Ignored,
}

/// Decodes a packet. Record counts are checked before anything is allocated.
pub fn read(bytes: &[u8]) -> Packet {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return Packet::Ignored };
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    if header[2] & 0x80 != 0 {
        return Packet::Ignored;
    }
    let op_code = OpCode::from_u8(header[2] >> 3 & 0x0f);
    let refused = |code| {
        let mut reply = Message::error_msg(number(0), op_code, code);
        reply.metadata.recursion_desired = header[2] & 1 != 0;
        Packet::Refused(Box::new(reply))
    };
    if op_code != OpCode::Query {
        return refused(ResponseCode::NotImp);
    }
    if number(4) != 1 || number(6) != 0 || number(8) > 1 || number(10) > 2 {
        return refused(ResponseCode::FormErr);
    }
    match Message::from_vec(bytes) {
        Ok(query) if query.message_type == MessageType::Query => Packet::Query(Box::new(query)),
        _ => refused(ResponseCode::FormErr),
    }
}

/// How long a datagram to the sender of a query may be.
pub fn datagram_limit(query: &Message) -> usize {
    usize::from(query.max_payload().clamp(UDP_LEAST, UDP_PAYLOAD))
}

/// The packet of a reply. Whatever does not fit is left out: what was not asked for silently, answers with a mark, so
/// that the client comes again by TCP.
pub fn write(reply: &mut Message, limit: usize) -> Vec<u8> {
    if let Some(bytes) = encoded(reply, limit) {
        return bytes;
    }
    reply.additionals.clear();
    if let Some(bytes) = encoded(reply, limit) {
        return bytes;
    }
    reply.metadata.truncation = true;
    reply.authorities.clear();
    let all = std::mem::take(&mut reply.answers);
    // The longest beginning that fits.
    let (mut fits, mut fails) = (0, all.len());
    while fits + 1 < fails {
        let middle = (fits + fails) / 2;
        reply.answers = all[..middle].to_vec();
        match encoded(reply, limit) {
            Some(_) => fits = middle,
            None => fails = middle,
        }
    }
    reply.answers = all[..fits].to_vec();
    encoded(reply, limit).unwrap_or_else(|| failure(reply))
}

fn encoded(reply: &Message, limit: usize) -> Option<Vec<u8>> {
    reply.to_vec().ok().filter(|bytes| bytes.len() <= limit)
}

/// A reply that cannot be written at all becomes a failure that can.
fn failure(reply: &Message) -> Vec<u8> {
    let mut bare = empty_reply(reply);
    bare.queries.clear();
    bare.metadata.response_code = ResponseCode::ServFail;
    bare.to_vec().unwrap_or_default()
}
