//! Schedules of CronJobs: five fields, names of months and days, and `@every`-like shorthands.

use crate::time::{DurationError, parse_duration};

/// When a CronJob starts jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// By the calendar.
    Calendar(Fields),
    /// Every so many seconds.
    Every(i64),
}

/// One bit for each allowed value of each field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    /// Minutes 0–59.
    pub minutes: u64,
    /// Hours 0–23.
    pub hours: u64,
    /// Days 1–31.
    pub days: u64,
    /// Months 1–12.
    pub months: u64,
    /// Weekdays 0–6, Sunday first.
    pub weekdays: u64,
    /// Whether any day of the month will do.
    pub any_day: bool,
    /// Whether any weekday will do.
    pub any_weekday: bool,
}

/// Why a text is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Nothing is left after the time zone.
    #[error("empty spec string")]
    Empty,
    /// More or fewer fields than five.
    #[error("expected exactly 5 fields, found {}: [{}]", .0.len(), .0.join(" "))]
    Fields(Vec<String>),
    /// A name after `@` that means nothing.
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    /// `@every` without a duration.
    #[error("failed to parse duration {text}: {error}")]
    Duration {
        /// The whole schedule.
        text: String,
        /// What is wrong with the duration.
        error: DurationError,
    },
    /// A field with more than one step.
    #[error("too many slashes: {0}")]
    Slashes(String),
    /// A range with more than two ends.
    #[error("too many hyphens: {0}")]
    Hyphens(String),
    /// A range that begins too low.
    #[error("beginning of range ({low}) below minimum ({least}): {text}")]
    TooLow {
        /// Where the range begins.
        low: u32,
        /// Where it may begin.
        least: u32,
        /// The range.
        text: String,
    },
    /// A range that ends too high.
    #[error("end of range ({high}) above maximum ({most}): {text}")]
    TooHigh {
        /// Where the range ends.
        high: u32,
        /// Where it may end.
        most: u32,
        /// The range.
        text: String,
    },
    /// A range that ends before it begins.
    #[error("beginning of range ({low}) beyond end of range ({high}): {text}")]
    Reversed {
        /// Where the range begins.
        low: u32,
        /// Where it ends.
        high: u32,
        /// The range.
        text: String,
    },
    /// A step of 0.
    #[error("step of range should be a positive number: {0}")]
    Step(String),
    /// A number below 0, or over 32 bits.
    #[error("negative number ({value}) not allowed: {text}")]
    Negative {
        /// The number.
        value: i64,
        /// As it was written.
        text: String,
    },
    /// Not a number.
    #[error("failed to parse int from {0}: strconv.Atoi: parsing {0:?}: invalid syntax")]
    Number(String),
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

struct Field {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const MINUTES: Field = Field { low: 0, high: 59, names: &[] };
const HOURS: Field = Field { low: 0, high: 23, names: &[] };
const DAYS: Field = Field { low: 1, high: 31, names: &[] };
const MONTH: Field = Field { low: 1, high: 12, names: &MONTHS };
const WEEKDAY: Field = Field { low: 0, high: 6, names: &WEEKDAYS };

/// Parses a schedule.
pub fn parse(text: &str) -> Result<Schedule, ScheduleError> {
    let text = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest).trim(),
        None => text,
    };
    if text.is_empty() {
        return Err(ScheduleError::Empty);
    }
    if text.starts_with('@') {
        return shorthand(text);
    }
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = parts[..] else {
        return Err(ScheduleError::Fields(parts.iter().copied().map(str::to_owned).collect()));
    };
    // `*/2` is a choice, `*/1` is none.
    let any = |field: &str| field.split(',').any(|part| matches!(part, "*" | "?" | "*/1" | "?/1"));
    Ok(Schedule::Calendar(Fields {
        minutes: bits(minutes, &MINUTES)?,
        hours: bits(hours, &HOURS)?,
        days: bits(days, &DAYS)?,
        months: bits(months, &MONTH)?,
        weekdays: bits(weekdays, &WEEKDAY)?,
        any_day: any(days),
        any_weekday: any(weekdays),
    }))
}

fn shorthand(text: &str) -> Result<Schedule, ScheduleError> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => match text.strip_prefix("@every ") {
            Some(duration) => {
                let nanos = parse_duration(duration)
                    .map_err(|error| ScheduleError::Duration { text: text.to_owned(), error })?;
                return Ok(Schedule::Every((nanos / 1_000_000_000).max(1)));
            }
            None => return Err(ScheduleError::Descriptor(text.to_owned())),
        },
    };
    parse(fields)
}

fn bits(text: &str, field: &Field) -> Result<u64, ScheduleError> {
    text.split(',').filter(|part| !part.is_empty()).try_fold(0, |bits, part| Ok(bits | range(part, field)?))
}

fn range(text: &str, field: &Field) -> Result<u64, ScheduleError> {
    let (span, step) = match text.split('/').collect::<Vec<_>>()[..] {
        [span] => (span, None),
        [span, step] => (span, Some(number(step)?)),
        _ => return Err(ScheduleError::Slashes(text.to_owned())),
    };
    let (low, mut high) = match span.split('-').collect::<Vec<_>>()[..] {
        ["*" | "?"] => (field.low, field.high),
        [one] => {
            let one = named(one, field)?;
            (one, one)
        }
        [low, high] => (named(low, field)?, named(high, field)?),
        _ => return Err(ScheduleError::Hyphens(text.to_owned())),
    };
    // `N/step` means from N to the end.
    if step.is_some() && !span.contains('-') && low == high && !matches!(span, "*" | "?") {
        high = field.high;
    }
    let step = step.unwrap_or(1);
    if low < field.low {
        return Err(ScheduleError::TooLow { low, least: field.low, text: text.to_owned() });
    }
    if high > field.high {
        return Err(ScheduleError::TooHigh { high, most: field.high, text: text.to_owned() });
    }
    if low > high {
        return Err(ScheduleError::Reversed { low, high, text: text.to_owned() });
    }
    if step == 0 {
        return Err(ScheduleError::Step(text.to_owned()));
    }
    Ok((low..=high).step_by(step as usize).fold(0, |bits, n| bits | 1 << n))
}

fn named(text: &str, field: &Field) -> Result<u32, ScheduleError> {
    let name = text.to_lowercase();
    match field.names.iter().position(|known| *known == name) {
        Some(index) => Ok(field.low + u32::try_from(index).unwrap_or_default()),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, ScheduleError> {
    match text.parse::<i64>() {
        Ok(value) => {
            u32::try_from(value).map_err(|_| ScheduleError::Negative { value, text: text.to_owned() })
        }
        Err(_) => Err(ScheduleError::Number(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn good_and_bad() {
        for good in
            ["* * * * *", "*/5 0-6 1,15 jan-mar Mon", "5/15 * * * *", "@hourly", "@every 1h30m", "0 0 ? * 0"]
        {
            assert!(parse(good).is_ok(), "{good}: {:?}", parse(good));
        }
        let bad = [
            ("error", "expected exactly 5 fields, found 1: [error]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@soon", "unrecognized descriptor: @soon"),
        ];
        for (text, why) in bad {
            assert_eq!(parse(text).unwrap_err().to_string(), why);
        }
        let Schedule::Calendar(fields) = parse("0,30 * * * sat").unwrap() else { panic!("by the calendar") };
        assert_eq!((fields.minutes, fields.weekdays, fields.any_day), (1 | 1 << 30, 1 << 6, true));
        let Schedule::Calendar(fields) = parse("0 0 */2 * *").unwrap() else { panic!("by the calendar") };
        assert_eq!((fields.any_day, fields.any_weekday), (false, true));
        assert_eq!(parse("@every 90s"), Ok(Schedule::Every(90)));
        assert_eq!(parse("@every 10ms"), Ok(Schedule::Every(1)), "not more often than that");
    }
}
