//! Autoscalers: v2 is stored, v1 is a view on it.

use crate::registry::convert::autoscalers::STORED_AS;
use crate::registry::kinds::Kind;

fn row(version: &str) -> Kind {
    Kind::new("autoscaling", version, "HorizontalPodAutoscaler", "horizontalpodautoscalers")
        .short(&["hpa"])
        .category("all")
        .status()
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![row("v2"), row("v1").stored_as(STORED_AS)]
}
