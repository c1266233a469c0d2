//! Cache of upstream responses, limited by TTL and size.

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Maximum TTL in seconds.
const MAX_TTL: u32 = 300;
/// TTL of negative responses without an SOA record, in seconds.
const NEGATIVE: u32 = 5;
/// TTL of failures in seconds: limits retries to a broken upstream.
const FAILURE: u32 = 2;
/// Answers kept.
pub const ENTRIES: usize = 2048;
/// Longer answers are not kept.
const LENGTH: usize = 4096;

/// A question; the name is in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The name.
    pub name: Name,
    /// The type of records.
    pub kind: RecordType,
    /// Whether signatures were asked for.
    pub signed: bool,
}

struct Entry {
    reply: Box<[u8]>,
    since: Instant,
    until: Instant,
}

/// Answers by question. The oldest goes when there are too many.
pub struct Cache {
    entries: HashMap<Key, Entry>,
    order: VecDeque<Key>,
    limit: usize,
}

impl Cache {
    /// An empty cache.
    pub fn new(limit: usize) -> Self {
        Cache { entries: HashMap::new(), order: VecDeque::new(), limit }
    }

    /// The cached response, with remaining TTLs.
    pub fn get(&mut self, key: &Key, now: Instant) -> Option<Message> {
        let entry = self.entries.get(key)?;
        if now >= entry.until {
            return None;
        }
        let mut reply = Message::from_vec(&entry.reply).ok()?;
        let age = now.duration_since(entry.since).as_secs() as u32;
        for record in reply.answers.iter_mut().chain(&mut reply.authorities).chain(&mut reply.additionals) {
            record.ttl = record.ttl.min(MAX_TTL).saturating_sub(age);
        }
        Some(reply)
    }

    /// Keeps an answer.
    pub fn put(&mut self, key: Key, reply: &Message, now: Instant) {
        let seconds = lifetime(reply);
        let Ok(bytes) = reply.to_vec() else { return };
        if seconds == 0 || bytes.len() > LENGTH {
            return;
        }
        let until = now + Duration::from_secs(seconds.into());
        let entry = Entry { reply: bytes.into(), since: now, until };
        if self.entries.insert(key.clone(), entry).is_none() {
            self.order.push_back(key);
        }
        while self.entries.len() > self.limit {
            let Some(oldest) = self.order.pop_front() else { break };
            self.entries.remove(&oldest);
        }
    }

    /// How many answers are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// How long an answer holds, in seconds (RFC 2308 for what is not there).
pub fn lifetime(reply: &Message) -> u32 {
    match reply.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => {}
        _ => return FAILURE,
    }
    if let Some(least) = reply.answers.iter().map(|record| record.ttl).min() {
        return least.min(MAX_TTL);
    }
    let soa = reply.authorities.iter().find_map(|record| match &record.data {
        RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
        _ => None,
    });
    soa.unwrap_or(NEGATIVE).min(MAX_TTL)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hickory_proto::op::OpCode;
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::{A, SOA};

    fn key(name: &str) -> Key {
        Key { name: Name::from_ascii(name).unwrap(), kind: RecordType::A, signed: false }
    }

    fn reply(ttl: u32) -> Message {
        let mut reply = Message::response(1, OpCode::Query);
        let data = RData::A(A([192, 0, 2, 1].into()));
        reply.answers.push(Record::from_rdata(Name::from_ascii("a.").unwrap(), ttl, data));
        reply
    }

    #[test]
    fn answers_age_and_end() {
        let (mut cache, now) = (Cache::new(10), Instant::now());
        cache.put(key("a."), &reply(30), now);
        assert_eq!(cache.get(&key("a."), now + Duration::from_secs(12)).unwrap().answers[0].ttl, 18);
        assert!(cache.get(&key("a."), now + Duration::from_secs(30)).is_none());
        assert!(cache.get(&key("b."), now).is_none());
        cache.put(key("c."), &reply(0), now);
        assert!(cache.get(&key("c."), now).is_none());
    }

    #[test]
    fn memory_is_bounded() {
        let (mut cache, now) = (Cache::new(10), Instant::now());
        for n in 0..1000 {
            cache.put(key(&format!("n{n}.")), &reply(30), now);
            cache.put(key("same."), &reply(30), now);
        }
        assert_eq!(cache.len(), 10);
        assert!(cache.order.len() <= 11);
        assert!(cache.get(&key("n999."), now).is_some());
        let mut long = reply(30);
        (0..400).for_each(|_| {
            let record = long.answers[0].clone();
            long.answers.push(record);
        });
        cache.put(key("long."), &long, now);
        assert!(cache.get(&key("long."), now).is_none());
    }

    #[test]
    fn lifetimes() {
        let root = Name::root();
        let mut none = Message::response(1, OpCode::Query);
        assert_eq!(lifetime(&none), NEGATIVE);
        let soa = SOA::new(root.clone(), root.clone(), 1, 1, 1, 1, 20);
        none.authorities.push(Record::from_rdata(root, 60, RData::SOA(soa)));
        assert_eq!(lifetime(&none), 20);
        none.metadata.response_code = ResponseCode::ServFail;
        assert_eq!(lifetime(&none), FAILURE);
        assert_eq!(lifetime(&reply(86400)), MAX_TTL);
    }
}
