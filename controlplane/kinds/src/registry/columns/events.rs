//! Columns of Events, in either form: as core or as `events.k8s.io` has them.

use super::{Column, since, text, wide};
use coracle_fields::View;
use coracle_fields::core::v1::{Event, ObjectReference};
use coracle_fields::events::v1;
use serde_json::{Value, json};

/// The same object under the names that `events.k8s.io` has for its fields.
fn other(event: View<'_, Event>) -> View<'_, v1::Event> {
    event.erased().as_type()
}

/// The value under its core name, or under the name that `events.k8s.io` has for it.
fn of<'a, T>(core: View<'a, T>, view: View<'a, T>) -> View<'a, T> {
    if core.is_set() { core } else { view }
}

fn about(event: View<'_, Event>) -> View<'_, ObjectReference> {
    of(event.involved_object(), other(event).regarding())
}

/// Events.
pub fn event() -> Vec<Column> {
    vec![
        text::<Event>("Last Seen", |event| {
            let view = other(event);
            let last = [
                event.series().last_observed_time(),
                of(event.last_timestamp(), view.deprecated_last_timestamp()),
                of(event.first_timestamp(), view.deprecated_first_timestamp()),
                event.event_time(),
            ];
            let time = last.into_iter().find(|time| time.is_set());
            json!(since(time.map_or("", |time| time.text())))
        }),
        text::<Event>("Type", |event| json!(event.type_().text())),
        text::<Event>("Reason", |event| json!(event.reason().text())),
        text::<Event>("Object", |event| {
            let kind = about(event).kind().text().to_lowercase();
            match about(event).name().text() {
                "" => json!(kind),
                name => json!(format!("{kind}/{name}")),
            }
        }),
        wide::<Event>("Subobject", |event| json!(about(event).field_path().text())),
        wide::<Event>("Source", source),
        text::<Event>("Message", |event| json!(of(event.message(), other(event).note()).text().trim())),
        wide::<Event>("First Seen", |event| {
            let first = of(event.first_timestamp(), other(event).deprecated_first_timestamp());
            json!(since(of(first, event.event_time()).text()))
        }),
        wide::<Event>("Count", |event| {
            let own = of(event.count(), other(event).deprecated_count()).int();
            json!(event.series().count().int().or(own).unwrap_or_default().max(1))
        }),
        Column { format: "name", ..wide::<Event>("Name", |event| event.metadata().name().to_value()) },
    ]
}

fn source(event: View<'_, Event>) -> Value {
    let source = of(event.source(), other(event).deprecated_source());
    let reporting = of(event.reporting_component(), other(event).reporting_controller());
    let component = source.component().filled().unwrap_or(reporting.text());
    match source.host().filled().unwrap_or(event.reporting_instance().text()) {
        "" => json!(component),
        host => json!(format!("{component}, {host}")),
    }
}
