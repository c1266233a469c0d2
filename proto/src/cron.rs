//! Schedules of CronJobs: five fields, names of months and days, and `@every`-like shorthands.

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
#[error("{0}")]
pub struct BadSchedule(String);

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
pub fn parse(text: &str) -> Result<Schedule, BadSchedule> {
    let text = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest).trim(),
        None => text,
    };
    if text.is_empty() {
        return Err(BadSchedule("empty spec string".into()));
    }
    if text.starts_with('@') {
        return shorthand(text);
    }
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = parts[..] else {
        return Err(BadSchedule(format!(
            "expected exactly 5 fields, found {}: [{}]",
            parts.len(),
            parts.join(" ")
        )));
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

fn shorthand(text: &str) -> Result<Schedule, BadSchedule> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => match text.strip_prefix("@every ") {
            Some(duration) => {
                let nanos = crate::time::parse_duration(duration)
                    .map_err(|why| BadSchedule(format!("failed to parse duration {text}: {why}")))?;
                return Ok(Schedule::Every((nanos / 1_000_000_000).max(1)));
            }
            None => return Err(BadSchedule(format!("unrecognized descriptor: {text}"))),
        },
    };
    parse(fields)
}

fn bits(text: &str, field: &Field) -> Result<u64, BadSchedule> {
    text.split(',').filter(|part| !part.is_empty()).try_fold(0, |bits, part| Ok(bits | range(part, field)?))
}

fn range(text: &str, field: &Field) -> Result<u64, BadSchedule> {
    let (span, step) = match text.split('/').collect::<Vec<_>>()[..] {
        [span] => (span, None),
        [span, step] => (span, Some(number(step)?)),
        _ => return Err(BadSchedule(format!("too many slashes: {text}"))),
    };
    let (low, mut high) = match span.split('-').collect::<Vec<_>>()[..] {
        ["*" | "?"] => (field.low, field.high),
        [one] => {
            let one = named(one, field)?;
            (one, one)
        }
        [low, high] => (named(low, field)?, named(high, field)?),
        _ => return Err(BadSchedule(format!("too many hyphens: {text}"))),
    };
    // `N/step` means from N to the end.
    if step.is_some() && !span.contains('-') && low == high && !matches!(span, "*" | "?") {
        high = field.high;
    }
    let step = step.unwrap_or(1);
    if low < field.low {
        return Err(BadSchedule(format!("beginning of range ({low}) below minimum ({}): {text}", field.low)));
    }
    if high > field.high {
        return Err(BadSchedule(format!("end of range ({high}) above maximum ({}): {text}", field.high)));
    }
    if low > high {
        return Err(BadSchedule(format!("beginning of range ({low}) beyond end of range ({high}): {text}")));
    }
    if step == 0 {
        return Err(BadSchedule(format!("step of range should be a positive number: {text}")));
    }
    Ok((low..=high).step_by(step as usize).fold(0, |bits, n| bits | 1 << n))
}

fn named(text: &str, field: &Field) -> Result<u32, BadSchedule> {
    let name = text.to_lowercase();
    match field.names.iter().position(|known| *known == name) {
        Some(index) => Ok(field.low + u32::try_from(index).unwrap_or_default()),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, BadSchedule> {
    match text.parse::<i64>() {
        Ok(value) => u32::try_from(value)
            .map_err(|_| BadSchedule(format!("negative number ({value}) not allowed: {text}"))),
        Err(_) => Err(BadSchedule(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"
        ))),
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
