//! TokenReviews and SelfSubjectReviews.

use crate::registry::kinds::Kind;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("authentication.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("SelfSubjectReview", "selfsubjectreviews").cluster().virtual_only(),
        row("TokenReview", "tokenreviews").cluster().virtual_only(),
    ]
}
