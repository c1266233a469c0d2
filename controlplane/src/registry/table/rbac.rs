//! Roles and who has them.

use crate::registry::kinds::{Kind, NameRule};

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("rbac.authorization.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("ClusterRoleBinding", "clusterrolebindings").cluster().names(NameRule::PathSegment),
        row("ClusterRole", "clusterroles").cluster().names(NameRule::PathSegment),
        row("RoleBinding", "rolebindings").names(NameRule::PathSegment),
        row("Role", "roles").names(NameRule::PathSegment),
    ]
}
