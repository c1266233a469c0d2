//! Events, as `events.k8s.io` sees them.

use crate::registry::convert::events::STORED_AS;
use crate::registry::kinds::Kind;
use crate::registry::{columns, fields};
use coracle_validation::cluster;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("events.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("Event", "events")
            .short(&["ev"])
            .lazy()
            .fields(fields::regarding_event())
            .columns(columns::event())
            .validate(cluster::event, cluster::regarding_event_update)
            .validate_create(cluster::new_regarding_event)
            .stored_as(STORED_AS),
    ]
}
