//! Workloads.

use crate::registry::kinds::{Kind, NameRule, keep_status};
use crate::registry::{columns, strategy};
use coracle_validation::defaults;
use coracle_validation::workloads;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("apps", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("ControllerRevision", "controllerrevisions")
            .columns(columns::controller_revision())
            .defaults(defaults::workloads::controller_revision)
            .validate(workloads::controller_revision, workloads::controller_revision_update)
            .validate_create(workloads::new_controller_revision),
        row("DaemonSet", "daemonsets")
            .short(&["ds"])
            .category("all")
            .status()
            .generation()
            .columns(columns::daemon_set())
            .defaults(defaults::workloads::daemon_set)
            .prepare(strategy::workloads::create_daemon_set, keep_status)
            .validate(workloads::daemon_set, workloads::fixed_selector)
            .validate_create(workloads::new_workload)
            .validate_status(workloads::daemon_status)
            .warnings(strategy::warnings::workload),
        row("Deployment", "deployments")
            .short(&["deploy"])
            .category("all")
            .status()
            .scale()
            .generation()
            .columns(columns::deployment())
            .defaults(defaults::workloads::deployment)
            .prepare(strategy::workloads::create_deployment, strategy::workloads::update_deployment)
            .prepare_status(strategy::workloads::deployment_status)
            .validate(workloads::deployment, workloads::fixed_selector)
            .validate_create(workloads::new_workload)
            .validate_status(workloads::replica_status)
            .warnings(strategy::warnings::named_workload),
        row("ReplicaSet", "replicasets")
            .short(&["rs"])
            .category("all")
            .status()
            .scale()
            .generation()
            .columns(columns::replica_set())
            .defaults(defaults::workloads::replica_set)
            .prepare(strategy::workloads::create_replicas, keep_status)
            .validate(workloads::replica_set, workloads::fixed_selector)
            .validate_create(workloads::new_workload)
            .validate_status(workloads::replica_status)
            .warnings(strategy::warnings::named_workload),
        row("StatefulSet", "statefulsets")
            .short(&["sts"])
            .category("all")
            .status()
            .scale()
            .generation()
            .names(NameRule::Label)
            .columns(columns::stateful_set())
            .defaults(defaults::workloads::stateful_set)
            .prepare(
                strategy::workloads::create_stateful_set_one_by_one,
                strategy::workloads::update_stateful_set_one_by_one,
            )
            .validate(workloads::stateful_set, workloads::stateful_set_update)
            .validate_create(workloads::new_workload)
            .validate_status(workloads::stateful_status)
            .warnings(strategy::warnings::workload),
    ]
}
