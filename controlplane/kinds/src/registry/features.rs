//! Features of kinds that can be switched.

use super::kinds::{Kind, keep_status};
use super::strategy::{pods, stop_signals, unsupported, workloads};
use super::table;

/// Features that are off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// `MaxUnavailableStatefulSet`: StatefulSets keep `spec.updateStrategy.rollingUpdate.maxUnavailable`.
    pub max_unavailable_stateful_set: bool,
    /// `ContainerStopSignals`: containers keep `lifecycle.stopSignal`.
    pub container_stop_signals: bool,
    /// `Initializers`: InitializerConfigurations are served, and objects are hidden until their initializers have finished.
    pub initializers: bool,
}

impl Features {
    /// Changes the rows of kinds with features.
    pub(super) fn apply(self, rows: &mut Vec<Kind>) {
        for row in rows.iter_mut() {
            unsupported::drop_from(&mut row.strategy, &row.group, &row.kind);
        }
        if self.initializers {
            rows.push(table::initializer_configuration());
            for row in rows.iter_mut().filter(|row| row.group.is_empty() && row.kind == "Pod") {
                row.strategy.prepare_update = pods::update_initializing;
            }
        }
        if self.max_unavailable_stateful_set {
            for row in rows.iter_mut().filter(|row| row.group == "apps" && row.kind == "StatefulSet") {
                row.strategy.prepare_create = workloads::create_stateful_set;
                row.strategy.prepare_update = keep_status;
            }
        }
        if !self.container_stop_signals {
            for row in rows.iter_mut() {
                row.strategy.drop_disabled = match (&*row.group, &*row.kind) {
                    ("", "Pod") => stop_signals::pod,
                    ("", "PodTemplate") => stop_signals::pod_template,
                    ("", "ReplicationController")
                    | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
                    | ("batch", "Job") => stop_signals::workload,
                    ("batch", "CronJob") => stop_signals::cron_job,
                    _ => continue,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::registry::index::Registry;
    use serde_json::json;

    #[test]
    fn initializer_configurations_are_served_only_with_their_feature() {
        for on in [false, true] {
            let registry = Registry::with(Features { initializers: on, ..Features::default() });
            let found =
                registry.resource("admissionregistration.k8s.io", "v1alpha1", "initializerconfigurations");
            assert_eq!(found.is_some(), on);
            let schema = found.map(|row| coracle_proto::schema::type_of(&row.schema).is_some());
            assert_eq!(schema, on.then_some(true));
        }
    }

    #[test]
    fn max_unavailable_of_stateful_sets_is_stored_only_with_its_feature() {
        let asked =
            json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2, "partition": 1}}}});
        let with = |on: bool| {
            let registry =
                Registry::with(Features { max_unavailable_stateful_set: on, ..Features::default() });
            registry.kind("apps", "v1", "StatefulSet").unwrap()
        };
        let rolling = |set: &serde_json::Value| set["spec"]["updateStrategy"]["rollingUpdate"].clone();
        for (on, stored) in [(false, json!({"partition": 1})), (true, rolling(&asked))] {
            let mut new = asked.clone();
            (with(on).strategy.prepare_create)(&mut new);
            assert_eq!(rolling(&new), stored);
            let mut new = asked.clone();
            (with(on).strategy.prepare_update)(&mut new, &json!({"spec": {}}));
            assert_eq!(rolling(&new), stored);
        }
        let mut kept = asked.clone();
        (with(false).strategy.prepare_update)(&mut kept, &asked);
        assert_eq!(rolling(&kept), rolling(&asked), "it was in use before");
    }

    #[test]
    fn stop_signals_are_stored_only_with_their_feature() {
        let spec = json!({"containers": [{"name": "c", "lifecycle": {"stopSignal": "SIGUSR1"}}],
            "initContainers": [{"name": "i", "lifecycle": {"stopSignal": "SIGHUP", "preStop": {"sleep": {"seconds": 1}}}}]});
        let template = json!({"spec": spec});
        let bare = json!({"containers": [{"name": "c"}],
            "initContainers": [{"name": "i", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}]});
        for (group, kind, object, place) in [
            ("", "Pod", json!({"spec": spec}), "/spec"),
            ("", "PodTemplate", json!({"template": template}), "/template/spec"),
            ("", "ReplicationController", json!({"spec": {"template": template}}), "/spec/template/spec"),
            ("apps", "Deployment", json!({"spec": {"template": template}}), "/spec/template/spec"),
            ("apps", "ReplicaSet", json!({"spec": {"template": template}}), "/spec/template/spec"),
            ("apps", "StatefulSet", json!({"spec": {"template": template}}), "/spec/template/spec"),
            ("apps", "DaemonSet", json!({"spec": {"template": template}}), "/spec/template/spec"),
            ("batch", "Job", json!({"spec": {"template": template}}), "/spec/template/spec"),
            (
                "batch",
                "CronJob",
                json!({"spec": {"jobTemplate": {"spec": {"template": template}}}}),
                "/spec/jobTemplate/spec/template/spec",
            ),
        ] {
            for on in [false, true] {
                let features = Features { container_stop_signals: on, ..Features::default() };
                let row = Registry::with(features).kind(group, "v1", kind).unwrap();
                let mut new = object.clone();
                row.prepare_create(&mut new);
                let stored = |new: &serde_json::Value| {
                    let at = new.pointer(place).unwrap();
                    json!({"containers": at["containers"], "initContainers": at["initContainers"]})
                };
                let wanted = if on { &spec } else { &bare };
                assert_eq!(&stored(&new), wanted, "{kind} {on}");
                let mut same = object.clone();
                row.prepare_update("", &mut same, &object);
                assert_eq!(stored(&same), spec, "{kind}: it was in use before");
            }
        }
    }
}
