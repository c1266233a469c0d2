//! `duration('1h30m')` and `timestamp('2024-01-01T00:00:00Z')` as Go reads them. The interpreter reads other texts, and rounds.
//!
//! Calls of its functions are replaced by calls of ours.

use super::arguments::{Answer, Args, failed, give_value, unfit, value};
use cel::common::ast::CallExpr;
use cel::common::types::DYN_TYPE;
use cel::{DeclarationError, Env, Value};
use chrono::{DateTime, Datelike as _, NaiveDate, TimeDelta, Utc};

const DURATION: &str = "@duration";
const TIMESTAMP: &str = "@timestamp";

/// Nanoseconds of the units of durations. A microsecond has three spellings: with `u`, the micro sign and a Greek letter.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", HOUR),
];
const HOUR: u64 = 3_600 * 1_000_000_000;
/// The magnitude of the smallest duration; the largest one is a nanosecond less.
const MOST: u64 = 1 << 63;

/// Why a text is no duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum DurationError {
    #[error("a duration is a sequence of numbers with units, such as 1h30m or 500ms")]
    Form,
    #[error("a number in the duration has no unit; the units are h, m, s, ms, us and ns")]
    NoUnit,
    #[error("the duration has a unit that is not h, m, s, ms, us or ns")]
    Unit,
    #[error("the duration is longer than 292 years")]
    Range,
}

/// Why a text is no point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TimestampError {
    #[error("a timestamp has the form of RFC 3339, such as 2024-01-31T10:00:00Z")]
    Form,
    #[error("the timestamp has a {0} that does not exist")]
    Range(&'static str),
    #[error("the timestamp is before the year 1 or after the year 9999")]
    Year,
}

/// The nanoseconds of a duration.
pub(super) fn duration(text: &str) -> Result<i64, DurationError> {
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(DurationError::Form);
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (part, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && part.is_empty() {
            return Err(DurationError::Form);
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        if end == 0 {
            return Err(DurationError::NoUnit);
        }
        let named = UNITS.iter().find(|(name, _)| *name == &after[..end]);
        let unit = named.map(|(_, nanoseconds)| *nanoseconds).ok_or(DurationError::Unit)?;
        rest = &after[end..];
        let whole = if whole.is_empty() { Some(0) } else { whole.parse().ok() };
        let length = whole.and_then(|whole: u64| whole.checked_mul(unit)).filter(|length| *length <= MOST);
        let length = length.and_then(|length| length.checked_add(fraction(part, unit)));
        total = length
            .and_then(|length| total.checked_add(length))
            .filter(|total| *total <= MOST)
            .ok_or(DurationError::Range)?;
    }
    match negative {
        true => Ok((total as i64).wrapping_neg()),
        false => i64::try_from(total).map_err(|_| DurationError::Range),
    }
}

/// The nanoseconds of the part after the point. Digits that no number of 63 bits holds do not count.
fn fraction(digits: &str, unit: u64) -> u64 {
    let (mut number, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes().map(|digit| u64::from(digit - b'0')) {
        let next = number.checked_mul(10).and_then(|next| next.checked_add(digit));
        match next.filter(|next| *next <= MOST && number <= (MOST - 1) / 10) {
            Some(next) => (number, scale) = (next, scale * 10.0),
            None => break,
        }
    }
    (number as f64 * (unit as f64 / scale)) as u64
}

/// The decimal digits that a text begins with, and the rest.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// A point in time. Go reads more than RFC 3339 allows: an hour of one digit, a comma before the fraction, and offsets of 24 hours.
pub(super) fn timestamp(text: &str) -> Result<DateTime<Utc>, TimestampError> {
    let mut reader = Reader(text);
    let year = reader.number(4, 4)?;
    reader.expect("-")?;
    let month = reader.number(2, 2)?;
    reader.expect("-")?;
    let day = reader.number(2, 2)?;
    reader.expect("T")?;
    let hour = reader.number(1, 2)?;
    reader.expect(":")?;
    let minute = reader.number(2, 2)?;
    reader.expect(":")?;
    let second = reader.number(2, 2)?;
    let nanosecond = reader.fraction();
    let offset = reader.offset()?;
    for (what, number, numbers) in [
        ("month", month, 1..=12),
        ("hour", hour, 0..=23),
        ("minute", minute, 0..=59),
        ("second", second, 0..=59),
    ] {
        if !numbers.contains(&number) {
            return Err(TimestampError::Range(what));
        }
    }
    let date = NaiveDate::from_ymd_opt(year as i32, month, day).ok_or(TimestampError::Range("day"))?;
    let local = date.and_hms_nano_opt(hour, minute, second, nanosecond).ok_or(TimestampError::Form)?;
    in_range(local.and_utc() - offset).ok_or(TimestampError::Year)
}

/// So many seconds after 1970 began.
pub(super) fn of_seconds(seconds: i64) -> Result<DateTime<Utc>, TimestampError> {
    DateTime::from_timestamp(seconds, 0).and_then(in_range).ok_or(TimestampError::Year)
}

/// What CEL has as a timestamp.
pub(super) fn in_range(time: DateTime<Utc>) -> Option<DateTime<Utc>> {
    (1..=9999).contains(&time.year()).then_some(time)
}

/// What of a timestamp is not read yet.
struct Reader<'t>(&'t str);

impl Reader<'_> {
    fn expect(&mut self, text: &str) -> Result<(), TimestampError> {
        self.0 = self.0.strip_prefix(text).ok_or(TimestampError::Form)?;
        Ok(())
    }

    /// A number of at least and at most so many digits.
    fn number(&mut self, least: usize, most: usize) -> Result<u32, TimestampError> {
        let count = digits(self.0).0.len().min(most);
        if count < least {
            return Err(TimestampError::Form);
        }
        let (number, rest) = self.0.split_at(count);
        self.0 = rest;
        number.parse().map_err(|_| TimestampError::Form)
    }

    /// The nanoseconds after the seconds, if there are any; further digits do not count.
    fn fraction(&mut self) -> u32 {
        let Some(rest) = self.0.strip_prefix(['.', ',']) else { return 0 };
        let (part, rest) = digits(rest);
        if part.is_empty() {
            return 0;
        }
        self.0 = rest;
        format!("{part:0<9}")[..9].parse().unwrap_or_default()
    }

    /// By how much the place is ahead of UTC.
    fn offset(&mut self) -> Result<TimeDelta, TimestampError> {
        let sign = match self.0.chars().next() {
            Some('Z') if self.0.len() == 1 => return Ok(TimeDelta::zero()),
            Some('+') => 1,
            Some('-') => -1,
            _ => return Err(TimestampError::Form),
        };
        self.0 = &self.0[1..];
        let hours = self.number(2, 2)?;
        self.expect(":")?;
        let minutes = self.number(2, 2)?;
        if !self.0.is_empty() {
            return Err(TimestampError::Form);
        }
        if hours > 24 || minutes > 60 {
            return Err(TimestampError::Range("time zone"));
        }
        Ok(TimeDelta::minutes(sign * i64::from(hours * 60 + minutes)))
    }
}

/// A call of our function in place of one of the interpreter's.
pub(super) fn replace_call(call: CallExpr) -> CallExpr {
    let name = match call.func_name.as_str() {
        "duration" => DURATION,
        "timestamp" => TIMESTAMP,
        _ => return call,
    };
    if call.target.is_some() || call.args.len() != 1 {
        return call;
    }
    CallExpr { func_name: name.to_owned(), ..call }
}

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(DURATION, "duration", vec![DYN_TYPE], |args| to_duration(&args))?;
    env.add_overload(TIMESTAMP, "timestamp", vec![DYN_TYPE], |args| to_timestamp(&args))
}

/// A text that is a duration, as a value.
pub(super) fn duration_value(text: &str) -> Result<Value, DurationError> {
    duration(text).map(|nanoseconds| Value::Duration(TimeDelta::nanoseconds(nanoseconds)))
}

/// A text that is a timestamp, as a value.
pub(super) fn timestamp_value(text: &str) -> Result<Value, TimestampError> {
    timestamp(text).map(|time| Value::Timestamp(time.fixed_offset()))
}

fn to_duration<'b, 'v>(args: &Args<'b, 'v>) -> Answer<'b, 'v> {
    match value(args, 0)? {
        Value::String(text) => give_value(duration_value(&text).map_err(|why| failed("duration", why))?),
        same @ Value::Duration(_) => give_value(same),
        _ => Err(unfit("duration")),
    }
}

fn to_timestamp<'b, 'v>(args: &Args<'b, 'v>) -> Answer<'b, 'v> {
    let of_seconds = |seconds| of_seconds(seconds).map(|time| Value::Timestamp(time.fixed_offset()));
    match value(args, 0)? {
        Value::String(text) => give_value(timestamp_value(&text).map_err(|why| failed("timestamp", why))?),
        Value::Int(seconds) => give_value(of_seconds(seconds).map_err(|why| failed("timestamp", why))?),
        same @ Value::Timestamp(_) => give_value(same),
        _ => Err(unfit("timestamp")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        const SECOND: i64 = 1_000_000_000;
        for (text, want) in [
            ("0", 0),
            ("+0", 0),
            ("-0", 0),
            ("0s", 0),
            ("1h30m", 5_400 * SECOND),
            ("-1.5h", -5_400 * SECOND),
            ("+5s", 5 * SECOND),
            (".5h", 1_800 * SECOND),
            ("5.s", 5 * SECOND),
            ("1m1m", 120 * SECOND),
            ("1\u{b5}s2\u{3bc}s3us", 6_000),
            ("100ms1ns", 100_000_001),
            ("1.1ns", 1),
            ("0.100000000000000000000h", 360 * SECOND),
            ("0.9223372036854775807h", 3_320_413_933_267),
            ("2562047h47m16.854775807s", i64::MAX),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("9007199254740993ns", 9_007_199_254_740_993),
        ] {
            assert_eq!(duration(text), Ok(want), "{text}");
        }
        for (text, want) in [
            ("", DurationError::Form),
            ("-", DurationError::Form),
            (" 1h", DurationError::Form),
            ("s", DurationError::Form),
            (".s", DurationError::Form),
            ("--1s", DurationError::Form),
            ("1", DurationError::NoUnit),
            ("00", DurationError::NoUnit),
            ("1h2", DurationError::NoUnit),
            ("1.2.3s", DurationError::NoUnit),
            ("1d", DurationError::Unit),
            ("1H", DurationError::Unit),
            ("1h 30m", DurationError::Unit),
            ("1h-30m", DurationError::Unit),
            ("1e3s", DurationError::Unit),
            ("9223372036854775808ns", DurationError::Range),
            ("-9223372036854775809ns", DurationError::Range),
            ("9223372036854775.808us", DurationError::Range),
            ("3000000h", DurationError::Range),
            ("99999999999999999999s", DurationError::Range),
        ] {
            assert_eq!(duration(text), Err(want), "{text}");
        }
    }

    #[test]
    fn timestamps_are_those_of_go() {
        for (text, want) in [
            ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00+00:00"),
            ("2024-02-29T23:59:59.123456789Z", "2024-02-29T23:59:59.123456789+00:00"),
            ("2024-01-01T00:00:00.1234567899Z", "2024-01-01T00:00:00.123456789+00:00"),
            ("2024-01-01T00:00:00,5Z", "2024-01-01T00:00:00.500+00:00"),
            ("2024-01-01T3:04:05Z", "2024-01-01T03:04:05+00:00"),
            ("2024-01-01T00:00:00+01:30", "2023-12-31T22:30:00+00:00"),
            ("2024-01-01T00:00:00-24:60", "2024-01-02T01:00:00+00:00"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00"),
            ("0000-12-31T23:00:00-01:00", "0001-01-01T00:00:00+00:00"),
            ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999+00:00"),
        ] {
            assert_eq!(timestamp(text).map(|time| time.to_rfc3339()).as_deref(), Ok(want), "{text}");
        }
        let range = TimestampError::Range;
        for (text, want) in [
            ("2024-01-01", TimestampError::Form),
            ("2024-01-01 00:00:00Z", TimestampError::Form),
            ("2024-01-01t00:00:00Z", TimestampError::Form),
            ("2024-01-01T00:00:00z", TimestampError::Form),
            ("2024-01-01T00:00:00", TimestampError::Form),
            ("2024-01-01T00:00:00.Z", TimestampError::Form),
            ("2024-01-01T00:00:00+0100", TimestampError::Form),
            ("2024-01-01T00:00:00Z ", TimestampError::Form),
            ("2024-1-01T00:00:00Z", TimestampError::Form),
            ("12024-01-01T00:00:00Z", TimestampError::Form),
            ("+024-01-01T00:00:00Z", TimestampError::Form),
            ("2024-01-01T00:00:60Z", range("second")),
            ("2024-01-01T00:60:00Z", range("minute")),
            ("2024-01-01T24:00:00Z", range("hour")),
            ("2023-02-29T00:00:00Z", range("day")),
            ("2024-01-00T00:00:00Z", range("day")),
            ("2024-13-01T00:00:00Z", range("month")),
            ("2024-00-01T00:00:00Z", range("month")),
            ("2024-01-01T00:00:00+25:00", range("time zone")),
            ("0000-12-31T23:59:59Z", TimestampError::Year),
            ("9999-12-31T23:59:59-01:00", TimestampError::Year),
        ] {
            assert_eq!(timestamp(text), Err(want), "{text}");
        }
    }
}
