//! Durations as Go writes them: `10s`, `5m0s`, `1.5s`, `100ms`.

use std::time::Duration;

/// The text of a duration, in milliseconds where that is not a whole number of seconds.
pub fn go_duration(duration: Duration) -> String {
    if duration < Duration::from_secs(1) && !duration.is_zero() {
        return format!("{}ms", duration.as_millis());
    }
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = format!(".{millis:03}");
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, _) => format!("{minutes}m{seconds}{fraction}s"),
        _ => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_durations() {
        for (millis, text) in [
            (0, "0s"),
            (1, "1ms"),
            (100, "100ms"),
            (1_000, "1s"),
            (1_500, "1.5s"),
            (2_005, "2.005s"),
            (20_000, "20s"),
            (300_000, "5m0s"),
            (3_661_000, "1h1m1s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), text);
        }
    }
}
