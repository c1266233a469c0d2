//! Roles and who has them.

use crate::registry::kinds::{Kind, NameRule};
use crate::registry::{columns, defaults};

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("rbac.authorization.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("ClusterRoleBinding", "clusterrolebindings")
            .cluster()
            .names(NameRule::PathSegment)
            .columns(columns::role_binding())
            .defaults(defaults::cluster::role_binding),
        row("ClusterRole", "clusterroles").cluster().names(NameRule::PathSegment).columns(columns::plain()),
        row("RoleBinding", "rolebindings")
            .names(NameRule::PathSegment)
            .columns(columns::role_binding())
            .defaults(defaults::cluster::role_binding),
        row("Role", "roles").names(NameRule::PathSegment).columns(columns::plain()),
    ]
}
