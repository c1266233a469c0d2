//! When a schedule is due, by the clocks of a zone. No clock, no tasks.

use coracle_proto::cron::{Fields, Schedule};
use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

fn has(bits: u64, n: i8) -> bool {
    bits >> n & 1 == 1
}

fn fits_day(fields: &Fields, at: DateTime) -> bool {
    let day = has(fields.days, at.day());
    let weekday = has(fields.weekdays, at.weekday().to_sunday_zero_offset());
    if fields.any_day || fields.any_weekday { day && weekday } else { day || weekday }
}

/// The first local time at or after `at` that fits; within five years.
fn first(fields: &Fields, mut at: DateTime) -> Option<DateTime> {
    let end = at.checked_add(5.years()).ok()?;
    while at < end {
        if !has(fields.months, at.month()) {
            let first = date(at.year(), at.month(), 1).at(0, 0, 0, 0);
            at = first.checked_add(1.month()).ok()?;
        } else if !fits_day(fields, at) {
            at = at.date().at(0, 0, 0, 0).checked_add(1.day()).ok()?;
        } else if !has(fields.hours, at.hour()) {
            at = at.date().at(at.hour(), 0, 0, 0).checked_add(1.hour()).ok()?;
        } else if !has(fields.minutes, at.minute()) {
            at = at.checked_add(1.minute()).ok()?;
        } else {
            return Some(at);
        }
    }
    None
}

/// The first time after `after`, by the clocks of a zone. A time that a change of clocks skips comes when it ends;
/// one that it repeats comes once.
pub fn next(schedule: &Schedule, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    match schedule {
        Schedule::Every(seconds) => Timestamp::from_second(after.as_second().checked_add(*seconds)?).ok(),
        Schedule::Calendar(fields) => {
            let local = after.to_zoned(zone.clone()).datetime();
            let mut from =
                local.date().at(local.hour(), local.minute(), 0, 0).checked_add(1.minute()).ok()?;
            for _ in 0..4 {
                let found = first(fields, from)?;
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
    schedule: &Schedule,
    after: Timestamp,
    now: Timestamp,
    zone: &TimeZone,
) -> (Option<Timestamp>, Option<Timestamp>, bool) {
    const LOOKBACKS: [i64; 5] = [3600, 86_400, 7 * 86_400, 62 * 86_400, 732 * 86_400];
    let mut last = None;
    let mut at = after;
    for _ in 0..=100 {
        match next(schedule, at, zone) {
            Some(next) if next <= now => (last, at) = (Some(next), next),
            next => return (last, next, false),
        }
    }
    // Many were missed: only the last one matters, and it is looked for from the end.
    for seconds in LOOKBACKS {
        let mut at = now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(after).max(after);
        let mut found = None;
        while let Some(next) = next(schedule, at, zone).filter(|n| *n <= now) {
            (found, at) = (Some(next), next);
        }
        if found.is_some() {
            return (found, next(schedule, now, zone), true);
        }
    }
    (last, next(schedule, now, zone), true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_proto::cron::parse;

    fn next_of(schedule: &str, after: &str, zone: &str) -> String {
        let zone = TimeZone::get(zone).unwrap();
        let found = next(&parse(schedule).unwrap(), after.parse().unwrap(), &zone);
        found.map_or("never".into(), |t| t.to_string())
    }

    #[test]
    fn next_times() {
        for (schedule, after, zone, want) in [
            ("*/15 * * * *", "2026-01-01T00:07:30Z", "UTC", "2026-01-01T00:15:00Z"),
            ("0 9 * * mon-fri", "2026-01-02T10:00:00Z", "UTC", "2026-01-05T09:00:00Z"),
            ("0 0 31 * *", "2026-02-01T00:00:00Z", "UTC", "2026-03-31T00:00:00Z"),
            ("0 0 */2 * mon", "2026-01-05T00:00:00Z", "UTC", "2026-01-07T00:00:00Z"),
            ("0 0 13 * 5", "2026-01-10T00:00:00Z", "UTC", "2026-01-13T00:00:00Z"),
            ("@hourly", "2026-01-01T00:00:00Z", "UTC", "2026-01-01T01:00:00Z"),
            ("@every 90s", "2026-01-01T00:00:00Z", "UTC", "2026-01-01T00:01:30Z"),
            ("0 8 * * *", "2026-06-30T12:00:00Z", "Europe/Berlin", "2026-07-01T06:00:00Z"),
            ("30 2 * * *", "2026-03-29T00:00:00Z", "Europe/Berlin", "2026-03-29T01:30:00Z"),
            ("0 0 30 2 *", "2026-01-01T00:00:00Z", "UTC", "never"),
            ("59 23 31 12 *", "2026-12-31T23:59:00Z", "UTC", "2027-12-31T23:59:00Z"),
        ] {
            assert_eq!(next_of(schedule, after, zone), want, "{schedule} after {after} in {zone}");
        }
    }

    #[test]
    fn only_the_last_missed_time_matters() {
        let utc = TimeZone::UTC;
        let minutely = parse("* * * * *").unwrap();
        let at = |t: &str| t.parse::<Timestamp>().unwrap();
        let (last, next, many) = due(&minutely, at("2026-01-01T00:00:30Z"), at("2026-01-01T00:03:10Z"), &utc);
        assert_eq!(
            (last, next, many),
            (Some(at("2026-01-01T00:03:00Z")), Some(at("2026-01-01T00:04:00Z")), false)
        );
        let (last, _, many) = due(&minutely, at("2025-01-01T00:00:00Z"), at("2026-01-01T00:03:10Z"), &utc);
        assert_eq!((last, many), (Some(at("2026-01-01T00:03:00Z")), true));
    }
}
