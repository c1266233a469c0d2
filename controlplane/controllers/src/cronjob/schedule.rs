//! When a schedule is due, by the clocks of a zone. No clock, no tasks.

use coracle_proto::cron::{Fields, Schedule};
use jiff::civil::{Date, DateTime};
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

/// The first minute at or after `at` whose reading on the clocks of a zone fits; within five years. Minutes are counted in real
/// time: a reading that a change of clocks skips is never due, one that it repeats is due twice. Hours are counted from the
/// first full one, as upstream does: where clocks change by half an hour, the hour after it is met in its middle, and a time in
/// its first half is not due.
fn first(fields: &Fields, mut at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let start_of = |day: Date| Some(zone.to_zoned(day.at(0, 0, 0, 0)).ok()?.timestamp());
    let minutes = |at: Timestamp, count: i8| at.checked_add(SignedDuration::from_mins(count.into())).ok();
    let last_year = zone.to_datetime(at).year().checked_add(5)?;
    let mut moved = false;
    loop {
        let local = zone.to_datetime(at);
        if local.year() > last_year {
            return None;
        }
        let next = if !has(fields.months, local.month()) {
            start_of(local.date().first_of_month().checked_add(1.month()).ok()?)?
        } else if !fits_day(fields, local) {
            start_of(local.date().tomorrow().ok()?)?
        } else if !has(fields.hours, local.hour()) {
            minutes(at, if moved { 60 } else { 60 - local.minute() })?
        } else if !has(fields.minutes, local.minute()) {
            minutes(at, 1)?
        } else {
            return Some(at);
        };
        // Clocks that are set back at midnight begin a day again; time goes on.
        at = next.max(minutes(at, 1)?);
        moved = true;
    }
}

/// The first time after `after`, by the clocks of a zone.
pub fn next(schedule: &Schedule, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    match schedule {
        Schedule::Every(seconds) => Timestamp::from_second(after.as_second().checked_add(*seconds)?).ok(),
        Schedule::Calendar(fields) => {
            let minute = after.as_second().div_euclid(60).checked_add(1)?;
            first(fields, Timestamp::from_second(minute.checked_mul(60)?).ok()?, zone)
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
            ("0 0 30 2 *", "2026-01-01T00:00:00Z", "UTC", "never"),
            ("59 23 31 12 *", "2026-12-31T23:59:00Z", "UTC", "2027-12-31T23:59:00Z"),
        ] {
            assert_eq!(next_of(schedule, after, zone), want, "{schedule} after {after} in {zone}");
        }
    }

    #[test]
    fn in_the_hours_of_a_clock_change_skipped_times_are_left_out_and_repeated_times_come_twice() {
        let berlin = "Europe/Berlin";
        for (schedule, after, zone, want) in [
            // Clocks go from 02:00 to 03:00 at 01:00 UTC.
            ("30 2 * * *", "2026-03-28T12:00:00Z", berlin, "2026-03-30T00:30:00Z"),
            ("0 * * * *", "2026-03-29T00:00:00Z", berlin, "2026-03-29T01:00:00Z"),
            ("30 3 * * *", "2026-03-29T00:00:00Z", berlin, "2026-03-29T01:30:00Z"),
            // Clocks go from 03:00 to 02:00 at 01:00 UTC.
            ("30 2 * * *", "2026-10-24T12:00:00Z", berlin, "2026-10-25T00:30:00Z"),
            ("30 2 * * *", "2026-10-25T00:30:00Z", berlin, "2026-10-25T01:30:00Z"),
            ("30 2 * * *", "2026-10-25T01:30:00Z", berlin, "2026-10-26T01:30:00Z"),
            ("0 3 * * *", "2026-10-25T00:00:00Z", berlin, "2026-10-25T02:00:00Z"),
            ("*/30 * * * *", "2026-10-25T00:45:00Z", berlin, "2026-10-25T01:00:00Z"),
            // Midnight does not exist on that day.
            ("0 9 10 * *", "2018-11-03T12:00:00Z", "America/Sao_Paulo", "2018-11-10T11:00:00Z"),
            ("0 1 4 11 *", "2018-11-01T00:00:00Z", "America/Sao_Paulo", "2018-11-04T03:00:00Z"),
            // Half an hour is repeated.
            ("0 2 * * *", "2026-04-04T12:00:00Z", "Australia/Lord_Howe", "2026-04-05T15:30:00Z"),
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
