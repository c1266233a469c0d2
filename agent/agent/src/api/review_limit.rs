//! Rate limit of token reviews: a request with an unknown token costs the API server a review, and anyone who can
//! connect to the node can send one.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum number of concurrent reviews, and how long a request waits for one.
const MAX_CONCURRENT: usize = 8;
const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);
/// Token bucket of one source: size, and refill per second.
const BURST: f64 = 20.0;
const PER_SECOND: f64 = 2.0;
/// Maximum number of sources with their own bucket; others share one.
const SOURCES: usize = 1024;
/// Longer tokens are rejected; those of service accounts have a few thousand bytes.
const MAX_TOKEN_LEN: usize = 16 * 1024;

/// Whether a text can be a bearer token at all (RFC 6750).
pub fn is_token(text: &str) -> bool {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    !text.is_empty() && text.len() <= MAX_TOKEN_LEN && text.bytes().all(usual)
}

/// The address that is rate limited: an IPv4 address, or the IPv6 /64 network.
fn source(address: Option<IpAddr>) -> IpAddr {
    match address.map(|address| address.to_canonical()) {
        Some(IpAddr::V6(v6)) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        Some(v4) => v4,
        None => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Token bucket of a source.
struct TokenBucket {
    reviews: f64,
    since: Instant,
}

impl TokenBucket {
    fn at(&self, now: Instant) -> f64 {
        let more = now.saturating_duration_since(self.since).as_secs_f64() * PER_SECOND;
        (self.reviews + more).min(BURST)
    }
}

/// Limits reviews per source and in total.
pub struct ReviewLimiter {
    running: Semaphore,
    sources: Mutex<HashMap<IpAddr, TokenBucket>>,
}

impl Default for ReviewLimiter {
    fn default() -> Self {
        Self { running: Semaphore::new(MAX_CONCURRENT), sources: Mutex::default() }
    }
}

impl ReviewLimiter {
    /// A permit for one review; none if the source exceeds its rate or too many are waiting.
    pub async fn acquire(&self, address: Option<IpAddr>) -> Option<SemaphorePermit<'_>> {
        if !self.take(source(address), Instant::now()) {
            return None;
        }
        tokio::time::timeout(QUEUE_TIMEOUT, self.running.acquire()).await.ok()?.ok()
    }

    fn take(&self, source: IpAddr, now: Instant) -> bool {
        let mut sources = self.sources.lock();
        if sources.len() >= SOURCES && !sources.contains_key(&source) {
            sources.retain(|_, left| left.at(now) < BURST);
        }
        let shared = sources.len() >= SOURCES && !sources.contains_key(&source);
        let key = if shared { Ipv6Addr::UNSPECIFIED.into() } else { source };
        let left = sources.entry(key).or_insert(TokenBucket { reviews: BURST, since: now });
        let reviews = left.at(now);
        *left = TokenBucket { reviews: (reviews - 1.0).max(0.0), since: now };
        reviews >= 1.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_source_has_its_allowance_and_no_more() {
        let (gate, now) = (ReviewLimiter::default(), Instant::now());
        let passed = |address: &str, at: Duration, times: usize| {
            let address = source(Some(address.parse().unwrap()));
            (0..times).filter(|_| gate.take(address, now + at)).count()
        };
        assert_eq!(passed("192.0.2.1", Duration::ZERO, 500), 20);
        assert_eq!(passed("::ffff:192.0.2.1", Duration::ZERO, 5), 0, "the same");
        assert_eq!(passed("192.0.2.2", Duration::ZERO, 5), 5, "somebody else");
        assert_eq!(passed("192.0.2.1", Duration::from_secs(3), 500), 6);
        assert_eq!(passed("2001:db8::1", Duration::ZERO, 15), 15);
        assert_eq!(passed("2001:db8::2", Duration::ZERO, 15), 5, "the same network");
        for n in 0..3000_u32 {
            gate.take(IpAddr::V4((0x0a00_0000 + n).into()), now);
        }
        assert!(gate.sources.lock().len() <= SOURCES + 1);
    }

    #[test]
    fn what_cannot_be_a_token_is_told_here() {
        assert!(is_token("abc.def-ghi_~+/=="));
        for odd in ["", "a b", "a\u{fc}", "a,b", "a\0", &"x".repeat(MAX_TOKEN_LEN + 1)] {
            assert!(!is_token(odd), "{odd:.10}");
        }
    }
}
