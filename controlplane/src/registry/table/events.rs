//! Events, as `events.k8s.io` sees them.

use crate::registry::convert::events::STORED_AS;
use crate::registry::kinds::Kind;
use crate::registry::{columns, fields};

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
            .stored_as(STORED_AS),
    ]
}
