//! API timestamps.

use jiff::Timestamp;
use std::time::Duration;

/// `metav1.Time`: seconds, such as `2026-01-31T10:00:00Z`.
pub fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metav1.MicroTime`: microseconds, such as `2026-01-31T10:00:00.000000Z`.
pub fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// A timestamp of the API; `None` when there is none or it is none.
pub fn parse(text: Option<&str>) -> Option<Timestamp> {
    text.and_then(|t| t.parse().ok())
}

/// How long from `now` until `at`, zero when it has passed.
pub fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

/// How long is left until `at` when `elapsed` has passed since `now`. The wall clock is not read again: it may have been set
/// meanwhile.
pub fn left(at: Timestamp, now: Timestamp, elapsed: Duration) -> Duration {
    until(at, now).saturating_sub(elapsed)
}

/// `at` moved by whole seconds; saturates at the end of time.
pub fn after(at: Timestamp, seconds: i64) -> Timestamp {
    at.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(if seconds < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_forms_are_read_back() {
        let at: Timestamp = "2026-01-31T10:00:00.123456Z".parse().unwrap();
        assert_eq!(seconds(at), "2026-01-31T10:00:00Z");
        assert_eq!(micros(at), "2026-01-31T10:00:00.123456Z");
        assert_eq!(parse(Some(&micros(at))), Some(at));
        assert_eq!(parse(Some("soon")), None);
        assert_eq!(until(at, after(at, 5)), Duration::ZERO);
        assert_eq!(until(after(at, 5), at), Duration::from_secs(5));
        assert_eq!(left(after(at, 5), at, Duration::from_secs(2)), Duration::from_secs(3));
        assert_eq!(left(after(at, 5), at, Duration::from_secs(9)), Duration::ZERO);
    }
}
