//! The core group.

use crate::registry::fields;
use crate::registry::kinds::{Kind, NameRule};

/// Every verb but deletecollection.
const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("Binding", "bindings").virtual_only(),
        row("ComponentStatus", "componentstatuses").cluster().short(&["cs"]).unstored(&["get", "list"]),
        row("ConfigMap", "configmaps").short(&["cm"]),
        row("Endpoints", "endpoints").short(&["ep"]),
        row("Event", "events").short(&["ev"]).lazy().fields(fields::event()),
        row("LimitRange", "limitranges").short(&["limits"]),
        row("Namespace", "namespaces")
            .cluster()
            .short(&["ns"])
            .verbs(NO_COLLECTION)
            .status()
            .with_subresources(&["finalize"])
            .names(NameRule::Label)
            .fields(fields::namespace()),
        row("Node", "nodes").cluster().short(&["no"]).status().with_subresources(&["proxy"]).fields(fields::node()),
        row("PersistentVolumeClaim", "persistentvolumeclaims").short(&["pvc"]).status(),
        row("PersistentVolume", "persistentvolumes").cluster().short(&["pv"]).status(),
        row("Pod", "pods")
            .short(&["po"])
            .category("all")
            .status()
            .with_subresources(&["attach", "binding", "ephemeralcontainers", "eviction", "exec", "log", "portforward"])
            .with_subresources(&["proxy", "resize"])
            .generation()
            .fields(fields::pod()),
        row("PodTemplate", "podtemplates").generation(),
        row("ReplicationController", "replicationcontrollers")
            .short(&["rc"])
            .category("all")
            .status()
            .scale()
            .generation()
            .fields(fields::replication_controller()),
        row("ResourceQuota", "resourcequotas").short(&["quota"]).status(),
        row("Secret", "secrets").fields(fields::secret()),
        row("ServiceAccount", "serviceaccounts").short(&["sa"]).with_subresources(&["token"]),
        row("Service", "services")
            .short(&["svc"])
            .category("all")
            .status()
            .with_subresources(&["proxy"])
            .names(NameRule::Rfc1035Label)
            .fields(fields::service()),
    ]
}
