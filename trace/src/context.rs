use crate::ids::{SpanId, TraceId, number};

/// The position in a distributed trace that a caller hands on: W3C Trace Context, level 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace of the caller.
    pub trace: TraceId,
    /// The span of the caller, the parent of what is done for it.
    pub span: SpanId,
    /// Trace flags, of which [`TraceContext::SAMPLED`] is the only one with a meaning here.
    pub flags: u8,
}

impl TraceContext {
    /// The caller records this trace.
    pub const SAMPLED: u8 = 1;
    /// Name of the header.
    pub const HEADER: &str = "traceparent";
    /// Name of the header with the data of vendors.
    pub const STATE: &str = "tracestate";
    /// The annotation with the context of the write that made or changed an object.
    pub const ANNOTATION: &str = "tracing.k8s.io/traceparent";

    /// Parses the value of the header. Values of later versions are read as far as this version defines them.
    ///
    /// ```
    /// use coracle_trace::TraceContext;
    ///
    /// let context = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").expect("valid");
    /// assert!(context.is_sampled());
    /// assert_eq!(context.span.to_string(), "00f067aa0ba902b7");
    /// assert_eq!(TraceContext::parse("00-00000000000000000000000000000000-00f067aa0ba902b7-01"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_matches([' ', '\t']);
        let version = number(text.get(..2)?)?;
        let rest = text.get(55..)?;
        let is_complete =
            if version == 0 { rest.is_empty() } else { rest.is_empty() || rest.starts_with('-') };
        let are_separated = [2, 35, 52].iter().all(|&at| text.as_bytes()[at] == b'-');
        if version == 0xff || !is_complete || !are_separated {
            return None;
        }
        Some(Self {
            trace: TraceId::parse(text.get(3..35)?)?,
            span: SpanId::parse(text.get(36..52)?)?,
            flags: u8::try_from(number(text.get(53..55)?)?).ok()?,
        })
    }

    /// The value of the header, in version 00.
    pub fn text(self) -> [u8; 55] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        let hex = |text: &mut [u8], number: u128| {
            for (place, byte) in text.iter_mut().rev().enumerate() {
                *byte = DIGITS[(number >> (4 * place) & 0xf) as usize];
            }
        };
        hex(&mut text[3..35], self.trace.0);
        hex(&mut text[36..52], u128::from(self.span.0));
        hex(&mut text[53..55], u128::from(self.flags));
        text
    }

    /// Whether the caller records this trace.
    pub fn is_sampled(self) -> bool {
        self.flags & Self::SAMPLED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_written_can_be_read() {
        let context = TraceContext::parse(VALID).expect("valid");
        assert_eq!(context.text(), VALID.as_bytes());
        for flags in [0, 1, 2, 0xff] {
            let context = TraceContext { trace: TraceId::fresh(), span: SpanId::fresh(), flags };
            let text = context.text();
            assert_eq!(TraceContext::parse(std::str::from_utf8(&text).expect("ASCII")), Some(context));
        }
    }

    /// Cases of the test suite of the W3C (trace-context/test/test.py).
    #[test]
    fn vectors_of_the_w3c() {
        let cases = [
            ("00-12345678901234567890123456789012-1234567890123456-01", true),
            (" 00-12345678901234567890123456789012-1234567890123456-01\t", true),
            ("00-12345678901234567890123456789012-1234567890123456-ff", true),
            ("cc-12345678901234567890123456789012-1234567890123456-01", true),
            ("cc-12345678901234567890123456789012-1234567890123456-01-what-the-future-will-be-like", true),
            ("cc-12345678901234567890123456789012-1234567890123456-01.what-the-future-will-be-like", false),
            ("00-12345678901234567890123456789012-1234567890123456-01-what-the-future-will-be-like", false),
            ("00-12345678901234567890123456789012-1234567890123456-01.", false),
            ("ff-12345678901234567890123456789012-1234567890123456-01", false),
            (".0-12345678901234567890123456789012-1234567890123456-01", false),
            ("0.-12345678901234567890123456789012-1234567890123456-01", false),
            ("000-12345678901234567890123456789012-1234567890123456-01", false),
            ("0-12345678901234567890123456789012-1234567890123456-01", false),
            ("00-00000000000000000000000000000000-1234567890123456-01", false),
            ("00-.2345678901234567890123456789012-1234567890123456-01", false),
            ("00-1234567890123456789012345678901.-1234567890123456-01", false),
            ("00-123456789012345678901234567890123-1234567890123456-01", false),
            ("00-1234567890123456789012345678901-1234567890123456-01", false),
            ("00-12345678901234567890123456789012-0000000000000000-01", false),
            ("00-12345678901234567890123456789012-.234567890123456-01", false),
            ("00-12345678901234567890123456789012-12345678901234567-01", false),
            ("00-12345678901234567890123456789012-123456789012345-01", false),
            ("00-12345678901234567890123456789012-1234567890123456-.0", false),
            ("00-12345678901234567890123456789012-1234567890123456-1", false),
            ("00-12345678901234567890123456789012-1234567890123456-001", false),
            ("00-ABCDEF78901234567890123456789012-1234567890123456-01", false),
            ("00_12345678901234567890123456789012_1234567890123456_01", false),
            ("", false),
            ("00", false),
            ("é0-12345678901234567890123456789012-1234567890123456-01", false),
            ("00-1234567890123456789012345678901é-123456789012345-01", false),
        ];
        for (text, valid) in cases {
            assert_eq!(TraceContext::parse(text).is_some(), valid, "{text}");
        }
    }
}
