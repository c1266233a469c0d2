//! Time zones of CronJobs. No clock, no environment.

use coracle_validation::jobs::time_zone_named;
use jiff::tz::TimeZone;

/// No time zone has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid timeZone: \"{0}\": unknown time zone {0}")]
pub struct UnknownTimeZone(pub String);

/// The time zones that a CronJob uses.
#[derive(Debug, Clone)]
pub struct Zones {
    /// That of its schedule.
    pub schedule: TimeZone,
    /// That in which its Jobs are annotated with their scheduled times.
    pub annotation: TimeZone,
}

impl Zones {
    /// The zones of a CronJob by its `timeZone`. Without one its schedule follows the local time of the server, and annotations
    /// are in UTC, as upstream.
    pub fn of(name: Option<&str>, local: &TimeZone) -> Result<Self, UnknownTimeZone> {
        let Some(name) = name else {
            return Ok(Self { schedule: local.clone(), annotation: TimeZone::UTC });
        };
        let zone = time_zone_named(name).ok_or_else(|| UnknownTimeZone(name.to_owned()))?;
        Ok(Self { schedule: zone.clone(), annotation: zone })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn local_time_counts_only_without_a_time_zone() {
        let local = TimeZone::get("America/New_York").unwrap();
        for (name, schedule, annotation) in [
            (None, "America/New_York", "UTC"),
            (Some("Etc/UTC"), "Etc/UTC", "Etc/UTC"),
            (Some("Europe/Berlin"), "Europe/Berlin", "Europe/Berlin"),
        ] {
            let zones = Zones::of(name, &local).unwrap();
            let found = (zones.schedule.iana_name(), zones.annotation.iana_name());
            assert_eq!(found, (Some(schedule), Some(annotation)), "{name:?}");
        }
        let why = Zones::of(Some("Mars/Olympus"), &local).unwrap_err();
        assert_eq!(why.to_string(), "invalid timeZone: \"Mars/Olympus\": unknown time zone Mars/Olympus");
    }
}
