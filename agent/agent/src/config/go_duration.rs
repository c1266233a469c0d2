//! Durations as Go writes them: `10s`, `5m0s`, `1.5s`, `100ms`.

use coracle_proto::time::format_duration;
use std::time::Duration;

/// The text of a duration.
pub fn go_duration(duration: Duration) -> String {
    format_duration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_durations() {
        for (micros, text) in [
            (0, "0s"),
            (1, "1µs"),
            (1_000, "1ms"),
            (1_500, "1.5ms"),
            (100_000, "100ms"),
            (1_000_000, "1s"),
            (1_500_000, "1.5s"),
            (2_005_000, "2.005s"),
            (20_000_000, "20s"),
            (300_000_000, "5m0s"),
            (3_661_000_000, "1h1m1s"),
        ] {
            assert_eq!(go_duration(Duration::from_micros(micros)), text);
        }
    }
}
