//! Roles and role bindings.

use crate::registry::columns;
use crate::registry::kinds::{Kind, NameRule};
use coracle_validation::access;
use coracle_validation::defaults;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("rbac.authorization.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("ClusterRoleBinding", "clusterrolebindings")
            .create_on_update()
            .cluster()
            .names(NameRule::PathSegment)
            .columns(columns::role_binding())
            .defaults(defaults::cluster::role_binding)
            .validate(access::cluster_role_binding, access::binding_update),
        row("ClusterRole", "clusterroles")
            .create_on_update()
            .cluster()
            .names(NameRule::PathSegment)
            .columns(columns::plain())
            .validate(access::cluster_role, |_, _, _| ()),
        row("RoleBinding", "rolebindings")
            .create_on_update()
            .names(NameRule::PathSegment)
            .columns(columns::role_binding())
            .defaults(defaults::cluster::role_binding)
            .validate(access::role_binding, access::binding_update),
        row("Role", "roles")
            .create_on_update()
            .names(NameRule::PathSegment)
            .columns(columns::plain())
            .validate(access::role, |_, _, _| ()),
    ]
}
