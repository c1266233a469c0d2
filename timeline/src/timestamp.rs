//! Unix time and RFC 3339.

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// In UTC with nine digits of the second.
pub fn format_timestamp(unix_nanos: u64) -> String {
    let (seconds, nanos) = (unix_nanos / SECOND, unix_nanos % SECOND);
    let (days, of_day) = (seconds / DAY, seconds % DAY);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Unix time in nanoseconds, and how many digits of the second were given. Times before 1970 are refused.
pub fn parse_timestamp(text: &str) -> Option<(u64, usize)> {
    let number = |from: usize, to: usize| {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten()
    };
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let bytes = text.as_bytes();
    if separators.iter().any(|(at, byte)| bytes.get(*at) != Some(byte))
        || !matches!(bytes.get(10)?, b'T' | b't' | b' ')
    {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let rest = text.get(19..)?;
    let (digits, zone) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.bytes().position(|byte| !byte.is_ascii_digit())?),
        None => ("", rest),
    };
    let nanos = digits
        .bytes()
        .chain(std::iter::repeat(b'0'))
        .take(9)
        .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let seconds = days(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
    let seconds = seconds.checked_add_signed(-offset(zone)?)?;
    Some((seconds.checked_mul(SECOND)?.checked_add(nanos)?, digits.len()))
}

/// Seconds east of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = match zone.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone[1..].split_once(':')?;
    let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
    Some(sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60))
}

/// Days since 1970 of a date of the Gregorian calendar (Howard Hinnant's algorithm, years begin in March).
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let of_era = year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + of_year;
    year / 400 * 146_097 + of_era - 719_468
}

fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times() {
        for (text, unix, digits) in [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("2026-11-16T10:00:00.123456789Z", 1_794_823_200_123_456_789, 9),
            ("2026-11-16T11:00:00.123456+01:00", 1_794_823_200_123_456_000, 6),
            ("2024-02-29T23:59:59Z", 1_709_251_199_000_000_000, 0),
            ("2000-03-01T00:00:00Z", 951_868_800_000_000_000, 0),
        ] {
            assert_eq!(parse_timestamp(text), Some((unix, digits)), "{text}");
        }
        for text in [
            "",
            "2026",
            "2026-11-16T10:00:00",
            "2026-13-16T10:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-11-16T10:00:00.5",
            "1970-01-01T00:00:00+01:00",
            "2026-11-16T1é:00:00Z",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn times_are_read_as_they_were_written(unix in 0..250_000_000_000u64 * 1_000_000) {
            prop_assert_eq!(parse_timestamp(&format_timestamp(unix)), Some((unix, 9)));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,40}") {
            let _ = parse_timestamp(&text);
        }
    }
}
