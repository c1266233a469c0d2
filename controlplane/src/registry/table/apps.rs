//! Workloads.

use crate::registry::kinds::{Kind, NameRule};

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("apps", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("ControllerRevision", "controllerrevisions"),
        row("DaemonSet", "daemonsets").short(&["ds"]).category("all").status().generation(),
        row("Deployment", "deployments").short(&["deploy"]).category("all").status().scale().generation(),
        row("ReplicaSet", "replicasets").short(&["rs"]).category("all").status().scale().generation(),
        row("StatefulSet", "statefulsets")
            .short(&["sts"])
            .category("all")
            .status()
            .scale()
            .generation()
            .names(NameRule::Label),
    ]
}
