//! Times and durations in the formats of the API.

use jiff::Timestamp;

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not a number, or nothing.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A unit that Go does not know.
    #[error("time: unknown unit {1:?} in duration {0:?}")]
    UnknownUnit(String, String),
}

/// RFC 3339 to the second: `2026-01-02T03:04:05Z`.
pub fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// RFC 3339 to the microsecond: `2026-01-02T03:04:05.000006Z`.
pub fn format_micro_time(time: Timestamp) -> String {
    let micros = time.subsec_nanosecond().rem_euclid(1_000_000_000) / 1000;
    format!("{}.{micros:06}Z", time.strftime("%Y-%m-%dT%H:%M:%S"))
}

/// The time now, to the second.
pub fn now() -> String {
    format_time(Timestamp::now())
}

/// The time now, to the microsecond.
pub fn now_micro() -> String {
    format_micro_time(Timestamp::now())
}

/// Reads RFC 3339 with any offset and any fraction; nothing else is a time.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= 20
        && bytes[10] == b'T'
        && bytes[13] == b':'
        && bytes[16] == b':'
        && !text.contains([' ', '[', ',']);
    if shaped { text.parse().ok() } else { None }
}

/// Reads the same with exactly six digits of the fraction.
pub fn parse_micro_time(text: &str) -> Option<Timestamp> {
    let fraction = text.get(19..)?.strip_prefix('.')?;
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 6 { parse_time(text) } else { None }
}

const UNITS: [(&str, f64); 8] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

/// Reads a Go duration such as `1h15m30.5s`, in nanoseconds.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0i64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(invalid());
        }
        if unit.is_empty() {
            return Err(DurationError::MissingUnit(text.to_owned()));
        }
        let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
        let scale = scale.ok_or_else(|| DurationError::UnknownUnit(text.to_owned(), unit.to_owned()))?;
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let part: f64 = format!("0.{fraction}0").parse().map_err(|_| invalid())?;
        let nanos = whole.checked_mul(scale as i64).and_then(|n| n.checked_add((part * scale) as i64));
        total = nanos.and_then(|n| total.checked_add(n)).ok_or_else(invalid)?;
        rest = tail;
    }
    Ok(if negative { -total } else { total })
}

/// Prints nanoseconds as Go does: `1h15m30.5s`, `1.5ms`, `0s`.
pub fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let all = nanos.unsigned_abs();
    let fraction = |value: u64, unit: u64| {
        let text = format!("{}.{:0width$}", value / unit, value % unit, width = unit.ilog10() as usize);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match all {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{all}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", fraction(all, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", fraction(all, 1_000_000)),
        _ => {
            let (hours, minutes) = (all / 3_600_000_000_000, all / 60_000_000_000 % 60);
            let seconds = fraction(all % 60_000_000_000, 1_000_000_000);
            match (hours, minutes) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, m) => format!("{sign}{m}m{seconds}s"),
                (h, m) => format!("{sign}{h}h{m}m{seconds}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_utc() {
        let time = parse_time("2026-01-02T03:04:05.123456789+02:00").unwrap();
        assert_eq!(format_time(time), "2026-01-02T01:04:05Z");
        assert_eq!(format_micro_time(time), "2026-01-02T01:04:05.123456Z");
        for bad in
            ["", "2026-01-02", "2026-01-02 03:04:05Z", "2026-13-02T03:04:05Z", "now", "2026-01-02T03:04:05"]
        {
            assert!(parse_time(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn times_to_the_microsecond_have_six_digits() {
        for good in ["2026-01-02T03:04:05.000000Z", "2026-01-02T03:04:05.123456+02:00"] {
            assert!(parse_micro_time(good).is_some(), "{good}");
        }
        for bad in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.1Z",
            "2026-01-02T03:04:05.1234567Z",
            "",
            "é".repeat(15).as_str(),
        ] {
            assert!(parse_micro_time(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn durations_read_and_print_like_go() {
        for (text, nanos, printed) in [
            ("0", 0, "0s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("90s", 90_000_000_000, "1m30s"),
            ("-1m0.5s", -60_500_000_000, "-1m0.5s"),
            ("1500us", 1_500_000, "1.5ms"),
            ("10ns", 10, "10ns"),
        ] {
            assert_eq!(parse_duration(text), Ok(nanos), "{text}");
            assert_eq!(format_duration(nanos), printed);
        }
        assert_eq!(parse_duration("5").unwrap_err().to_string(), "time: missing unit in duration \"5\"");
        assert_eq!(
            parse_duration("5x").unwrap_err().to_string(),
            "time: unknown unit \"x\" in duration \"5x\""
        );
        assert_eq!(parse_duration("abc").unwrap_err().to_string(), "time: invalid duration \"abc\"");
    }

    proptest! {
        #[test]
        fn printed_durations_read_back(nanos in -(1i64 << 55)..(1i64 << 55)) {
            let read = parse_duration(&format_duration(nanos)).unwrap();
            prop_assert!((read - nanos).abs() <= 1, "{} {}", read, nanos);
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.hmsuµn:TZ]{0,30}") {
            let _ = (parse_duration(&text), parse_time(&text));
        }
    }
}
