//! The core group.

use crate::registry::kinds::{Kind, NameRule, keep_status};
use crate::registry::{columns, fields, strategy};
use coracle_proto::status::FieldError;
use coracle_validation::defaults;
use coracle_validation::{cluster, data, endpoints, limits, pods, services, storage, workloads};
use serde_json::Value;

/// For kinds whose changes need no rules of their own.
const ANY_CHANGE: fn(&Value, &Value, &mut Vec<FieldError>) = |_, _, _| ();

/// Every verb but deletecollection.
const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = vec![
        row("Binding", "bindings").virtual_only(),
        row("ComponentStatus", "componentstatuses")
            .cluster()
            .short(&["cs"])
            .unstored(&["get", "list"])
            .columns(columns::component_status())
            .deprecated("v1 ComponentStatus is deprecated in v1.19+"),
        row("ConfigMap", "configmaps")
            .short(&["cm"])
            .columns(columns::config_map())
            .validate(data::config_map, data::config_map_update),
        row("Endpoints", "endpoints")
            .create_on_update()
            .short(&["ep"])
            .columns(columns::endpoints())
            .defaults(defaults::network::endpoints)
            .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
            .warnings(strategy::warnings::endpoints)
            .validate(endpoints::endpoints, endpoints::endpoints_update)
            .validate_create(endpoints::new_endpoints),
        row("Event", "events")
            .short(&["ev"])
            .lazy()
            .create_on_update()
            .fields(fields::event())
            .columns(columns::event())
            .validate(cluster::event, ANY_CHANGE),
        row("LimitRange", "limitranges")
            .create_on_update()
            .short(&["limits"])
            .columns(columns::plain())
            .defaults(defaults::cluster::limit_range)
            .validate(limits::limit_range, ANY_CHANGE),
        namespace(),
        row("Node", "nodes")
            .cluster()
            .short(&["no"])
            .status()
            .with_subresources(&["proxy"])
            .fields(fields::node())
            .columns(columns::node())
            .warnings(strategy::deprecations::node)
            .defaults(defaults::cluster::node)
            .prepare(|_| (), keep_status)
            .validate(cluster::node, cluster::node_update)
            .validate_status(cluster::node_status),
        row("PersistentVolumeClaim", "persistentvolumeclaims")
            .returns_deleted()
            .short(&["pvc"])
            .status()
            .columns(columns::claim())
            .defaults(defaults::storage::claim)
            .prepare(strategy::cluster::create_claim, keep_status)
            .validate(storage::claim, storage::claim_update)
            .validate_status(storage::claim_status)
            .warnings(strategy::deprecations::claim),
        row("PersistentVolume", "persistentvolumes")
            .returns_deleted()
            .cluster()
            .short(&["pv"])
            .status()
            .columns(columns::persistent_volume())
            .defaults(defaults::storage::volume)
            .prepare(strategy::cluster::create_volume, keep_status)
            .prepare_status(strategy::cluster::volume_status)
            .validate(storage::volume, storage::volume_update)
            .warnings(strategy::deprecations::volume),
        pod(),
        row("PodTemplate", "podtemplates")
            .returns_deleted()
            .generation()
            .columns(columns::pod_template())
            .defaults(defaults::pods::pod_template)
            .warnings(strategy::warnings::pod_template)
            .validate(pods::pod_template, pods::pod_template_update)
            .validate_create(pods::new_pod_template),
    ];
    kinds.extend(more());
    kinds
}

fn more() -> Vec<Kind> {
    vec![
        row("ReplicationController", "replicationcontrollers")
            .short(&["rc"])
            .category("all")
            .status()
            .scale()
            .generation()
            .fields(fields::replication_controller())
            .columns(columns::replication_controller())
            .defaults(defaults::workloads::replication_controller)
            .prepare(strategy::workloads::create_replicas, keep_status)
            .validate(workloads::replication_controller, workloads::changed_template)
            .validate_create(workloads::new_workload)
            .validate_status(workloads::replica_status)
            .warnings(strategy::warnings::workload),
        row("ResourceQuota", "resourcequotas")
            .returns_deleted()
            .short(&["quota"])
            .status()
            .columns(columns::quota())
            .defaults(defaults::cluster::quota)
            .validate(limits::quota, limits::quota_update)
            .validate_status(limits::quota_status),
        row("Secret", "secrets")
            .fields(fields::secret())
            .columns(columns::secret())
            .defaults(defaults::cluster::secret)
            .validate(data::secret, data::secret_update)
            .warnings(strategy::tls_secrets::secret),
        row("ServiceAccount", "serviceaccounts")
            .returns_deleted()
            .short(&["sa"])
            .with_subresources(&["token"])
            .warnings(strategy::deprecations::account),
        row("Service", "services")
            .returns_deleted()
            .create_on_update()
            .short(&["svc"])
            .category("all")
            .status()
            .with_subresources(&["proxy"])
            .names(NameRule::Label)
            .fields(fields::service())
            .columns(columns::service())
            .defaults(defaults::network::service)
            .prepare(strategy::network::create_service, strategy::network::update_service)
            .validate(services::service, services::service_update)
            .validate_create(services::new_service)
            .validate_status(services::service_status)
            .warnings(strategy::warnings::service),
    ]
}

fn namespace() -> Kind {
    row("Namespace", "namespaces")
        .returns_deleted()
        .cluster()
        .short(&["ns"])
        .verbs(NO_COLLECTION)
        .status()
        .with_subresources(&["finalize"])
        .names(NameRule::Label)
        .fields(fields::namespace())
        .columns(columns::namespace())
        .defaults(defaults::cluster::namespace)
        .prepare(strategy::cluster::create_namespace, strategy::cluster::update_namespace)
        .validate(cluster::namespace, ANY_CHANGE)
        .validate_status(cluster::namespace_status)
        .change("finalize", strategy::cluster::finalize_namespace, cluster::namespace_finalize)
        .ending(strategy::deletion::begin_namespace, strategy::deletion::namespace_removable)
}

fn pod() -> Kind {
    row("Pod", "pods")
        .short(&["po"])
        .category("all")
        .status()
        .with_subresources(&[
            "attach",
            "binding",
            "ephemeralcontainers",
            "eviction",
            "exec",
            "log",
            "portforward",
        ])
        .with_subresources(&["proxy", "resize"])
        .generation()
        .fields(fields::pod())
        .columns(columns::pod())
        .row_conditions(columns::pod_conditions)
        .defaults(defaults::pods::pod)
        .prepare(strategy::pods::create, keep_status)
        .prepare_status(strategy::pods::status)
        .validate(pods::pod, pods::update)
        .validate_create(pods::create)
        .validate_status(pods::status_update)
        .grace(strategy::deletion::pod_grace)
        .returns_deleted()
        .change("ephemeralcontainers", strategy::pods::ephemeral, pods::ephemeral_update)
        .change("resize", strategy::pods::resize, pods::resize)
        .warnings(strategy::warnings::pod)
}
