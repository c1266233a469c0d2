//! How long ago, in the words of kubectl: `5s`, `3m12s`, `4h`, `2d3h`, `400d`.

use coracle_fields::View;
use coracle_fields::meta::PartialObjectMetadata;
use jiff::Timestamp;

/// The age of an object, `<unknown>` without a creation timestamp.
pub fn age_of(object: View<'_, PartialObjectMetadata>) -> String {
    since(object.metadata().creation_timestamp().text())
}

/// How long ago a timestamp was, `<unknown>` when it is empty or malformed.
pub fn since(time: &str) -> String {
    match time.parse::<Timestamp>() {
        Ok(then) => human(Timestamp::now().as_second() - then.as_second()),
        Err(_) => "<unknown>".into(),
    }
}

/// The time from one timestamp to another (now when it is empty), none without a start.
pub fn duration_between(start: &str, end: &str) -> Option<String> {
    let start: Timestamp = start.parse().ok()?;
    let end = end.parse::<Timestamp>().unwrap_or_else(|_| Timestamp::now());
    Some(human(end.as_second() - start.as_second()))
}

/// Seconds with the precision that a reader cares for.
pub(super) fn human(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".into();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |big: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, 'd', hours % 24, 'h'),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => two(days / 365, 'y', days % 365, 'd'),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn precision_falls_with_age() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (192, "3m12s"),
            (600, "10m"),
            (179 * 60, "179m"),
            (180 * 60, "3h"),
            (7 * 3600 + 120, "7h2m"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (51 * 3600, "2d3h"),
            (192 * 3600, "8d"),
            (400 * 86_400, "400d"),
            (2 * 365 * 86_400 + 86_400, "2y1d"),
            (9 * 365 * 86_400, "9y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }
}
