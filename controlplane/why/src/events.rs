//! Events as evidence.

use crate::finding::Evidence;
use coracle_fields::View;
use coracle_fields::core::v1::Event;

/// When an event happened last.
pub fn last_seen(event: View<'_, Event>) -> &str {
    let times = [
        event.series().last_observed_time().text(),
        event.last_timestamp().text(),
        event.event_time().text(),
        event.first_timestamp().text(),
        event.metadata().creation_timestamp().text(),
    ];
    times.into_iter().find(|time| !time.is_empty()).unwrap_or_default()
}

/// When an event happened first.
pub fn first_seen(event: View<'_, Event>) -> &str {
    let times = [
        event.first_timestamp().text(),
        event.event_time().text(),
        event.metadata().creation_timestamp().text(),
    ];
    times.into_iter().find(|time| !time.is_empty()).unwrap_or_default()
}

/// The last event with one of these reasons whose message matches.
pub fn last<'a>(
    events: &[View<'a, Event>],
    reasons: &[&str],
    matches: impl Fn(&str) -> bool,
) -> Option<View<'a, Event>> {
    let mut latest = events.iter().rev().copied();
    latest.find(|event| reasons.contains(&event.reason().text()) && matches(event.message().text()))
}

/// An event as evidence.
pub fn evidence(event: View<'_, Event>) -> Evidence {
    let count = event.series().count().int().or(event.count().int()).unwrap_or(1);
    let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
    Evidence {
        what: format!("event {}{times}", event.reason().text()),
        text: event.message().text().trim().to_owned(),
    }
}
