//! What Events say about times.

use serde_json::Value;

use crate::timestamp::parse_timestamp;

/// Times of most fields are whole seconds.
const SECOND: u64 = 1_000_000_000;
/// `MicroTime` is cut after the microsecond.
const MICRO: u64 = 500;

/// A time of an object, and how far it may be off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time {
    pub(crate) at: u64,
    pub(crate) uncertainty: u64,
}

impl Time {
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let (at, digits) = parse_timestamp(value.as_str()?)?;
        Some(Self { at, uncertainty: if digits >= 6 { MICRO } else { SECOND } })
    }
}

/// An Event about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Happened<'a> {
    pub(crate) uid: &'a str,
    pub(crate) time: Time,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    pub(crate) is_warning: bool,
}

/// Reads Events of both API groups; those without a time or an object are skipped.
pub(crate) fn happened(events: &[Value]) -> Vec<Happened<'_>> {
    let text = |value: &'_ Value, fields: &[&str]| -> Option<usize> {
        fields.iter().position(|field| value[*field].as_str().is_some_and(|text| !text.is_empty()))
    };
    let mut found = Vec::new();
    for event in events {
        let object =
            if event["involvedObject"].is_object() { &event["involvedObject"] } else { &event["regarding"] };
        let times = ["eventTime", "lastTimestamp", "deprecatedLastTimestamp", "firstTimestamp"];
        let Some(time) = times.iter().find_map(|field| Time::of(&event[*field])) else { continue };
        let messages = ["message", "note"];
        let message =
            text(event, &messages).and_then(|field| event[messages[field]].as_str()).unwrap_or_default();
        let Some(uid) = object["uid"].as_str() else { continue };
        let reason = event["reason"].as_str().unwrap_or_default();
        found.push(Happened { uid, time, reason, message, is_warning: event["type"] == "Warning" });
    }
    found.sort_by_key(|event| event.time);
    found
}

/// The image and the duration of `Successfully pulled image "nginx" in 4.2s (5.1s including waiting). …`.
pub(crate) fn pulled(message: &str) -> Option<(&str, u64)> {
    let rest = message.strip_prefix("Successfully pulled image \"")?;
    let (image, rest) = rest.split_once('"')?;
    let duration = rest.strip_prefix(" in ")?.split([' ', '.']).collect::<Vec<_>>();
    // The dot of a fraction is not the end of the sentence.
    let duration = match duration.as_slice() {
        [whole, fraction, ..] if fraction.starts_with(|letter: char| letter.is_ascii_digit()) => {
            format!("{whole}.{fraction}")
        }
        [whole, ..] => (*whole).to_owned(),
        [] => return None,
    };
    Some((image, go_duration(&duration)?))
}

/// A duration as Go prints it: `1m4.2s`, `300ms`.
pub(crate) fn go_duration(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut nanos = 0.0;
    while !rest.is_empty() {
        let unit_at = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(unit_at);
        let unit_end = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let scale = match unit {
            "h" => 3.6e12,
            "m" => 6e10,
            "s" => 1e9,
            "ms" => 1e6,
            "us" | "µs" | "μs" => 1e3,
            "ns" => 1.0,
            _ => return None,
        };
        nanos += number.parse::<f64>().ok()? * scale;
        rest = next;
    }
    (!text.is_empty() && nanos < 1e18).then_some(nanos as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_of_go() {
        for (text, nanos) in
            [("4.2s", 4_200_000_000), ("1m4s", 64_000_000_000), ("300ms", 300_000_000), ("12µs", 12_000)]
        {
            assert_eq!(go_duration(text), Some(nanos), "{text}");
        }
        for text in ["", "4", "s", "4x", "1.2.3s", "é"] {
            assert_eq!(go_duration(text), None, "{text}");
        }
    }

    #[test]
    fn pulls() {
        let image = |message| pulled(message);
        let long = "Successfully pulled image \"nginx:1.29\" in 4.211s (5.1s including waiting). Image size: 72 bytes.";
        assert_eq!(image(long), Some(("nginx:1.29", 4_211_000_000)));
        assert_eq!(image("Successfully pulled image \"a\" in 3s"), Some(("a", 3_000_000_000)));
        assert_eq!(image("Container image \"a\" already present on machine"), None);
        assert_eq!(image("Successfully pulled image \"a\" in "), None);
    }

    #[test]
    fn events_of_both_groups() {
        let events = [
            json!({"involvedObject": {"uid": "u"}, "reason": "B", "message": "m", "type": "Warning", "eventTime": null,
                "lastTimestamp": "2026-11-16T10:00:02Z"}),
            json!({"regarding": {"uid": "u"}, "reason": "A", "note": "n", "eventTime": "2026-11-16T10:00:01.123456Z"}),
            json!({"reason": "no object", "eventTime": "2026-11-16T10:00:01.123456Z"}),
        ];
        let found = happened(&events);
        assert_eq!(
            found.iter().map(|event| (event.reason, event.message)).collect::<Vec<_>>(),
            [("A", "n"), ("B", "m")]
        );
        assert_eq!(found[0].time.uncertainty, MICRO);
        assert!(found[1].is_warning && found[1].time.uncertainty == SECOND);
    }
}
