//! What the client of a write says about its trace, besides `traceparent`.

use coracle_trace::{Cause, Rank, SpanId, TraceContext, Uid};

/// What the client of a write says about its trace, besides `traceparent`.
#[derive(Debug, Clone, Default)]
pub struct TraceOptions {
    /// The span of a node that led to the write, and the revision of the object that the node acted on.
    pub cause: Option<(SpanId, Cause)>,
    /// `tracestate`, which is passed on to webhooks.
    pub state: String,
}

impl TraceOptions {
    /// Header of nodes: `<span> <uid> <revision>`.
    pub const CAUSE: &str = "coracle-cause";

    /// What is passed on of `tracestate`: nothing without a valid `traceparent`, as W3C Trace Context has it, and nothing that is so
    /// long that a webhook could refuse the call for it: a client could keep one out whose failures are ignored.
    pub fn passed_on<'a>(parent: &str, state: &'a str) -> &'a str {
        let is_valid = !state.is_empty() && state.len() <= 512 && TraceContext::parse(parent).is_some();
        if is_valid { state } else { "" }
    }

    /// Reads the value of the header; `None` when it is malformed.
    pub fn read_cause(text: &str) -> Option<(SpanId, Cause)> {
        let mut parts = text.split(' ');
        let (span, uid, revision) = (SpanId::parse(parts.next()?)?, parts.next()?, parts.next()?);
        if uid.is_empty() || uid.len() > 64 || parts.next().is_some() {
            return None;
        }
        let cause =
            Cause { uid: Uid::of(uid), revision: revision.parse().ok()?, rank: Rank::Related, ..Cause::NONE };
        Some((span, cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_trace_is_short_and_needs_its_trace() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let long = "x".repeat(513);
        assert_eq!(TraceOptions::passed_on(parent, "a=1"), "a=1");
        assert_eq!(TraceOptions::passed_on(parent, &long[1..]).len(), 512);
        for (parent, state) in [(parent, long.as_str()), ("", "a=1"), ("00-0-0-0", "a=1")] {
            assert_eq!(TraceOptions::passed_on(parent, state), "");
        }
    }

    #[test]
    fn the_cause_of_a_node_has_three_parts() {
        let uid = "11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11";
        let read = TraceOptions::read_cause(&format!("00f067aa0ba902b7 {uid} 42"));
        let read = read.map(|(span, cause)| (span, cause.uid, cause.revision));
        assert_eq!(read, Some((SpanId(0x00f0_67aa_0ba9_02b7), Uid::of(uid), 42)));
        for bad in [
            "",
            "00f067aa0ba902b7",
            "00f067aa0ba902b7 u",
            "00f067aa0ba902b7 u x",
            "x u 1",
            "00f067aa0ba902b7  1",
        ] {
            assert!(TraceOptions::read_cause(bad).is_none(), "{bad}");
        }
        assert!(TraceOptions::read_cause("00f067aa0ba902b7 u 1 2").is_none());
    }
}
