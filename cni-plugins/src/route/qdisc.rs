//! Queueing disciplines: limits of what a link sends.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE};
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcHandle, TcHeader, TcMessage, TcOption},
};

use super::{Route, attributes};
use crate::netlink::{Message, Result};

/// Length of `struct tcmsg`.
const HEADER: usize = 20;
const TBF: &str = "tbf";
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
/// `struct tc_ratespec`: the rate is its last field.
const RATE: std::ops::Range<usize> = 8..12;
/// Packets have the length that Ethernet gives them; otherwise the kernel expects a table of lengths.
const LINKLAYER_ETHERNET: u8 = 1;
/// The handle of our qdisc: the same request again changes it.
const HANDLE: TcHandle = TcHandle { major: 1, minor: 0 };

/// A token bucket: packets wait until there are tokens for their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes that may be sent at once; not less than the largest packet.
    pub burst: u32,
    /// Bytes that may wait; what comes in addition is dropped.
    pub limit: u32,
}

impl Route {
    /// Limits what a link sends, in place of its root qdisc.
    pub fn limit_rate(&mut self, link: u32, bucket: &TokenBucket) -> Result<()> {
        let body = RouteNetlinkMessage::NewQueueDiscipline(new(link, bucket));
        self.socket.run(Message::route(body, NLM_F_CREATE | NLM_F_REPLACE, "limiting the rate of a link"))
    }

    /// The rate that a link is limited to, in bytes per second.
    pub fn rate_limit(&mut self, link: u32) -> Result<Option<u64>> {
        let body = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let request = Message::route(body, NLM_F_DUMP, "listing queueing disciplines");
        let found = self.socket.list(request, |payload| {
            parse(payload).filter(|(index, _)| *index == link).map(|(_, rate)| rate)
        })?;
        Ok(found.into_iter().next())
    }
}

fn new(link: u32, bucket: &TokenBucket) -> TcMessage {
    let mut message = TcMessage::default();
    message.header =
        TcHeader { index: link.cast_signed(), handle: HANDLE, parent: TcHandle::ROOT, ..TcHeader::default() };
    // `struct tc_tbf_qopt`: rate, peak rate, limit, buffer, mtu. `TCA_TBF_BURST` stands for the buffer.
    let mut parameters = vec![0; 36];
    parameters[1] = LINKLAYER_ETHERNET;
    let rate = u32::try_from(bucket.rate).unwrap_or(u32::MAX);
    parameters[RATE].copy_from_slice(&rate.to_ne_bytes());
    parameters[24..28].copy_from_slice(&bucket.limit.to_ne_bytes());
    let option = |kind, value: &[u8]| TcOption::Other(DefaultNla::new(kind, value.to_vec()));
    let mut options = vec![option(TCA_TBF_PARMS, &parameters)];
    if rate == u32::MAX {
        options.push(option(TCA_TBF_RATE64, &bucket.rate.to_ne_bytes()));
    }
    options.push(option(TCA_TBF_BURST, &bucket.burst.to_ne_bytes()));
    message.attributes = vec![TcAttribute::Kind(TBF.to_owned()), TcAttribute::Options(options)];
    message
}

/// The index of a link and the rate that its token bucket has, if this is one.
fn parse(payload: &[u8]) -> Option<(u32, u64)> {
    let header = TcHeader::parse(payload).ok()?;
    let find = |kind: u16| attributes(payload, HEADER).find(|attribute| attribute.kind() == kind);
    let kind = find(TCA_KIND)?;
    if kind.value().strip_suffix(b"\0") != Some(TBF.as_bytes()) {
        return None;
    }
    let options = find(TCA_OPTIONS)?;
    let option = |kind: u16| {
        let found = attributes(options.value(), 0).find(|option| option.kind() == kind)?;
        Some(found.value().to_vec())
    };
    let whole = option(TCA_TBF_RATE64).and_then(|value| Some(u64::from_ne_bytes(value.try_into().ok()?)));
    let rate = match whole {
        Some(rate) => rate,
        None => {
            let parameters = option(TCA_TBF_PARMS)?;
            u64::from(u32::from_ne_bytes(parameters.get(RATE)?.try_into().ok()?))
        }
    };
    Some((header.index.cast_unsigned(), rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_on_the_wire() {
        // `struct tcmsg` and the options of tbf as <linux/pkt_sched.h> has them.
        for (rate, whole) in [(125_000_u64, false), (10_000_000_000, true)] {
            let bucket = TokenBucket { rate, burst: 32_768, limit: 40_000 };
            let low = u32::try_from(rate).unwrap_or(u32::MAX);
            let mut parameters = [0; 36];
            parameters[1] = 1;
            parameters[8..12].copy_from_slice(&low.to_ne_bytes());
            parameters[24..28].copy_from_slice(&40_000_u32.to_ne_bytes());
            let flags = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
            let expected = Message::new(libc::RTM_NEWQDISC, flags, "")
                .raw(&[0; 4])
                .raw(&7_u32.to_ne_bytes())
                .raw(&0x0001_0000_u32.to_ne_bytes())
                .raw(&u32::MAX.to_ne_bytes())
                .raw(&[0; 4])
                .text(1, "tbf");
            let body = RouteNetlinkMessage::NewQueueDiscipline(new(7, &bucket));
            let built = Message::route(body, NLM_F_CREATE | NLM_F_REPLACE, "");
            let head = expected.bytes().len();
            assert_eq!(built.bytes()[4..head], expected.bytes()[4..]);
            let options = Message::new(0, 0, "").attr(1, &parameters);
            let options = if whole { options.attr(4, &rate.to_ne_bytes()) } else { options };
            let options = options.u32(6, 32_768);
            // Behind the header of the attribute that has them all.
            assert_eq!(built.bytes()[head + 4..], options.bytes()[16..]);
            assert_eq!(parse(&built.bytes()[16..]), Some((7, rate)));
        }
        assert_eq!(parse(&[0; 12]), None);
    }
}
