//! Access reviews.

use crate::registry::kinds::Kind;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("authorization.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("LocalSubjectAccessReview", "localsubjectaccessreviews").virtual_only(),
        row("SelfSubjectAccessReview", "selfsubjectaccessreviews").cluster().virtual_only(),
        row("SelfSubjectRulesReview", "selfsubjectrulesreviews").cluster().virtual_only(),
        row("SubjectAccessReview", "subjectaccessreviews").cluster().virtual_only(),
    ]
}
