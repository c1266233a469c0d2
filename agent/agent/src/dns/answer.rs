//! Answers a query from the zone and the watched Services. Pure.

use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RecordType};

use super::lookup::ServiceLookup;
use super::zone::{Found, Zone};

/// The largest datagram sent: what passes every path without fragments.
pub const UDP_PAYLOAD: u16 = 1232;
/// How many aliases are followed; a chain that is longer is a loop.
const ALIASES: usize = 8;

/// Result of a query.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A complete reply.
    Reply(Message),
    /// A CNAME chain leaves the cluster: the rest must be resolved upstream.
    Elsewhere(Message, Name),
    /// Not a name of the cluster: must be resolved upstream.
    Forward(Message),
}

/// Answers a query with exactly one question. `turn` differs from query to query and rotates addresses.
pub fn answer(zone: &Zone, query: &Message, view: &dyn ServiceLookup, turn: usize) -> Answer {
    let mut reply = empty_reply(query);
    let Some(question) = query.queries.first() else {
        reply.metadata.response_code = ResponseCode::FormErr;
        return Answer::Reply(reply);
    };
    if query.version() > 0 {
        reply.metadata.response_code = ResponseCode::BADVERS;
        return Answer::Reply(reply);
    }
    let kind = question.query_type;
    if question.query_class != DNSClass::IN || matches!(kind, RecordType::AXFR | RecordType::IXFR) {
        reply.metadata.response_code = ResponseCode::Refused;
        return Answer::Reply(reply);
    }
    let mut name = question.name.clone();
    for _ in 0..ALIASES {
        match zone.find(&name, kind, view) {
            Found::Foreign if reply.answers.is_empty() => return Answer::Forward(reply),
            Found::Foreign => return Answer::Elsewhere(reply, name),
            Found::Unknown => {
                reply.metadata.response_code = ResponseCode::ServFail;
                return Answer::Reply(reply);
            }
            Found::Alias(alias) => {
                let (record, target) = *alias;
                reply.metadata.authoritative = true;
                reply.answers.push(record);
                if matches!(kind, RecordType::CNAME | RecordType::ANY) {
                    return Answer::Reply(reply);
                }
                name = target;
            }
            found => {
                reply.metadata.authoritative = true;
                fill(&mut reply, found, zone, turn);
                return Answer::Reply(reply);
            }
        }
    }
    reply.metadata.response_code = ResponseCode::ServFail;
    Answer::Reply(reply)
}

fn fill(reply: &mut Message, found: Found, zone: &Zone, turn: usize) {
    match found {
        Found::Records(mut records, more) => {
            let middle = turn % records.len().max(1);
            records.rotate_left(middle);
            reply.answers.extend(records);
            reply.additionals.extend(more);
        }
        Found::NoName => {
            reply.metadata.response_code = ResponseCode::NXDomain;
            reply.authorities.push(zone.authority());
        }
        _ => reply.authorities.push(zone.authority()),
    }
}

/// The reply to a query, without an answer yet.
pub fn empty_reply(query: &Message) -> Message {
    let mut reply = Message::response(query.id, query.op_code);
    reply.metadata.recursion_desired = query.recursion_desired;
    reply.metadata.checking_disabled = query.checking_disabled;
    reply.metadata.recursion_available = true;
    reply.queries.extend(query.queries.iter().cloned());
    if let Some(asked) = &query.edns {
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_PAYLOAD).set_version(0).set_dnssec_ok(asked.flags().dnssec_ok);
        reply.edns = Some(edns);
    }
    reply
}
