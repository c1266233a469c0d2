//! Cron expressions: five fields, names, steps, and the words that start with `@`. No clock, no tasks.

use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use std::str::FromStr;

/// When a CronJob starts jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// By the calendar.
    Calendar(Fields),
    /// After equal times.
    Every(SignedDuration),
}

/// Bits of the allowed values of each field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether the days of the month, and of the week, are restricted at all.
    any_day: bool,
    any_weekday: bool,
}

/// Text that is no schedule.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct NotASchedule(String);

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl FromStr for Schedule {
    type Err = NotASchedule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if let Some(every) = text.strip_prefix("@every ") {
            return every_duration(every).map(Self::Every);
        }
        let text = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ if text.starts_with('@') => {
                return Err(NotASchedule(format!("unrecognized descriptor: {text}")));
            }
            _ => text,
        };
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = parts[..] else {
            let found = parts.len();
            return Err(NotASchedule(format!(
                "expected exactly 5 fields, found {found}: [{}]",
                parts.join(" ")
            )));
        };
        let any = |field: &str| field.starts_with('*') || field.starts_with('?');
        Ok(Self::Calendar(Fields {
            minutes: field(minutes, 0, 59, &[])?,
            hours: field(hours, 0, 23, &[])?,
            days: field(days, 1, 31, &[])?,
            months: field(months, 1, 12, &MONTHS)?,
            weekdays: field(weekdays, 0, 6, &WEEKDAYS)?,
            any_day: any(days),
            any_weekday: any(weekdays),
        }))
    }
}

fn every_duration(text: &str) -> Result<SignedDuration, NotASchedule> {
    let parsed: Result<SignedDuration, _> = text.trim().parse();
    match parsed {
        Ok(d) if d >= SignedDuration::from_secs(1) => Ok(SignedDuration::from_secs(d.as_secs())),
        _ => Err(NotASchedule(format!("failed to parse duration @every {text}"))),
    }
}

fn field(text: &str, low: u32, high: u32, names: &[&str]) -> Result<u64, NotASchedule> {
    let mut bits = 0;
    for part in text.split(',') {
        bits |= range(part, low, high, names)?;
    }
    Ok(bits)
}

fn range(text: &str, low: u32, high: u32, names: &[&str]) -> Result<u64, NotASchedule> {
    let number = |t: &str| -> Result<u32, NotASchedule> {
        if let Some(at) = names.iter().position(|n| n.eq_ignore_ascii_case(t)) {
            return Ok(u32::try_from(at).unwrap_or(0) + low);
        }
        t.parse().map_err(|_| {
            NotASchedule(format!(
                "failed to parse int from {t}: strconv.Atoi: parsing \"{t}\": invalid syntax"
            ))
        })
    };
    let (span, step) = text.split_once('/').map_or((text, None), |(span, step)| (span, Some(step)));
    let (first, mut last) = match span {
        "*" | "?" => (low, high),
        _ => match span.split_once('-') {
            Some((a, b)) => (number(a)?, number(b)?),
            None => number(span).map(|n| (n, n))?,
        },
    };
    let step = match step {
        Some(text) => {
            if !span.contains('-') && span != "*" && span != "?" {
                last = high;
            }
            number(text)?
        }
        None => 1,
    };
    if first < low {
        return Err(NotASchedule(format!("beginning of range ({first}) below minimum ({low}): {text}")));
    }
    if last > high {
        return Err(NotASchedule(format!("end of range ({last}) above maximum ({high}): {text}")));
    }
    if first > last {
        return Err(NotASchedule(format!(
            "beginning of range ({first}) beyond end of range ({last}): {text}"
        )));
    }
    if step == 0 {
        return Err(NotASchedule(format!("step of range should be a positive number: {text}")));
    }
    let each = (first..=last).step_by(usize::try_from(step).unwrap_or(1));
    Ok(each.fold(0, |bits, n| bits | 1 << n))
}

fn has(bits: u64, n: i8) -> bool {
    bits >> n & 1 == 1
}

impl Fields {
    fn day(&self, at: DateTime) -> bool {
        let day = has(self.days, at.day());
        let weekday = has(self.weekdays, at.weekday().to_sunday_zero_offset());
        if self.any_day || self.any_weekday { day && weekday } else { day || weekday }
    }

    /// The first local time at or after `at` that fits; within five years.
    fn first(&self, mut at: DateTime) -> Option<DateTime> {
        let end = at.checked_add(5.years()).ok()?;
        while at < end {
            if !has(self.months, at.month()) {
                let first = date(at.year(), at.month(), 1).at(0, 0, 0, 0);
                at = first.checked_add(1.month()).ok()?;
            } else if !self.day(at) {
                at = at.date().at(0, 0, 0, 0).checked_add(1.day()).ok()?;
            } else if !has(self.hours, at.hour()) {
                at = at.date().at(at.hour(), 0, 0, 0).checked_add(1.hour()).ok()?;
            } else if !has(self.minutes, at.minute()) {
                at = at.checked_add(1.minute()).ok()?;
            } else {
                return Some(at);
            }
        }
        None
    }
}

impl Schedule {
    /// The first time after `after`, by the clocks of a zone. A time that a change of clocks skips comes when it ends;
    /// one that it repeats comes once.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(period) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(*period).ok()
            }
            Self::Calendar(fields) => {
                let local = after.to_zoned(zone.clone()).datetime();
                let mut from =
                    local.date().at(local.hour(), local.minute(), 0, 0).checked_add(1.minute()).ok()?;
                for _ in 0..4 {
                    let found = fields.first(from)?;
                    let at = zone.to_zoned(found).ok()?.timestamp();
                    if at > after {
                        return Some(at);
                    }
                    from = found.checked_add(1.minute()).ok()?;
                }
                None
            }
        }
    }

    /// The last time in (`after`, `now`], the one after `now`, and whether more than a hundred were missed.
    pub fn due(
        &self,
        after: Timestamp,
        now: Timestamp,
        zone: &TimeZone,
    ) -> (Option<Timestamp>, Option<Timestamp>, bool) {
        const LOOKBACKS: [i64; 5] = [3600, 86_400, 7 * 86_400, 62 * 86_400, 732 * 86_400];
        let mut last = None;
        let mut at = after;
        for _ in 0..=100 {
            match self.next(at, zone) {
                Some(next) if next <= now => (last, at) = (Some(next), next),
                next => return (last, next, false),
            }
        }
        // Many were missed: only the last one matters, and it is looked for from the end.
        for seconds in LOOKBACKS {
            let mut at = now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(after).max(after);
            let mut found = None;
            while let Some(next) = self.next(at, zone).filter(|n| *n <= now) {
                (found, at) = (Some(next), next);
            }
            if found.is_some() {
                return (found, self.next(now, zone), true);
            }
        }
        (last, self.next(now, zone), true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn next(schedule: &str, after: &str, zone: &str) -> String {
        let zone = TimeZone::get(zone).unwrap();
        let schedule: Schedule = schedule.parse().unwrap();
        schedule.next(after.parse().unwrap(), &zone).map_or("never".into(), |t| t.to_string())
    }

    #[test]
    fn next_times() {
        for (schedule, after, zone, want) in [
            ("*/15 * * * *", "2026-01-01T00:07:30Z", "UTC", "2026-01-01T00:15:00Z"),
            ("0 9 * * mon-fri", "2026-01-02T10:00:00Z", "UTC", "2026-01-05T09:00:00Z"),
            ("0 0 31 * *", "2026-02-01T00:00:00Z", "UTC", "2026-03-31T00:00:00Z"),
            ("0 0 13 * 5", "2026-01-10T00:00:00Z", "UTC", "2026-01-13T00:00:00Z"),
            ("@hourly", "2026-01-01T00:00:00Z", "UTC", "2026-01-01T01:00:00Z"),
            ("@every 90s", "2026-01-01T00:00:00Z", "UTC", "2026-01-01T00:01:30Z"),
            ("0 8 * * *", "2026-06-30T12:00:00Z", "Europe/Berlin", "2026-07-01T06:00:00Z"),
            ("30 2 * * *", "2026-03-29T00:00:00Z", "Europe/Berlin", "2026-03-29T01:30:00Z"),
            ("0 0 30 2 *", "2026-01-01T00:00:00Z", "UTC", "never"),
            ("59 23 31 12 *", "2026-12-31T23:59:00Z", "UTC", "2027-12-31T23:59:00Z"),
        ] {
            assert_eq!(next(schedule, after, zone), want, "{schedule} after {after} in {zone}");
        }
    }

    #[test]
    fn what_is_no_schedule() {
        for (text, why) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("61 * * * *", "end of range (61) above maximum (59): 61"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("@often", "unrecognized descriptor: @often"),
        ] {
            assert_eq!(text.parse::<Schedule>().unwrap_err().to_string(), why);
        }
        assert!("x * * * *".parse::<Schedule>().is_err());
    }

    #[test]
    fn only_the_last_missed_time_matters() {
        let utc = TimeZone::UTC;
        let minutely: Schedule = "* * * * *".parse().unwrap();
        let at = |t: &str| t.parse::<Timestamp>().unwrap();
        let (last, next, many) = minutely.due(at("2026-01-01T00:00:30Z"), at("2026-01-01T00:03:10Z"), &utc);
        assert_eq!(
            (last, next, many),
            (Some(at("2026-01-01T00:03:00Z")), Some(at("2026-01-01T00:04:00Z")), false)
        );
        let (last, _, many) = minutely.due(at("2025-01-01T00:00:00Z"), at("2026-01-01T00:03:10Z"), &utc);
        assert_eq!((last, many), (Some(at("2026-01-01T00:03:00Z")), true));
    }
}
