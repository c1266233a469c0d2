//! Field rules of Namespaces, Nodes, Events, Leases, priorities and runtime classes.

use super::field_ref::{Field, reported_at, walk_as};
use super::field_rules::{NumberRules as _, TextRules as _};
use super::meta;
use super::names::is_cidr;
use super::pods::scheduling::{taints, tolerations};
use super::quantities::{amount, container_name};
use crate::tree::same_at;
use coracle_fields::coordination::v1::Lease;
use coracle_fields::core::v1::{Event, Namespace, Node};
use coracle_fields::node::v1::RuntimeClass;
use coracle_fields::scheduling::v1::PriorityClass;
use coracle_fields::{List, Schema, Text};
use coracle_proto::names::{dns1123_label, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;

/// The highest priority that users may give.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

fn finalizers(list: &Field<'_, List<Text>>) {
    for finalizer in list.items() {
        let name = finalizer.text();
        for message in qualified_name(name) {
            list.invalid_as(name, message);
        }
        if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
            list.invalid_as(name, "name is neither a standard finalizer name nor is it fully qualified");
        }
    }
}

/// A Namespace.
pub fn namespace(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Namespace>(object, errors, |root| finalizers(&root.spec().finalizers()));
}

/// `/finalize` of a Namespace.
pub fn namespace_finalize(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    namespace(new, errors);
}

/// A change of a Namespace's status.
pub fn namespace_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Namespace>(new, errors, |root| {
        let phase = reported_at(&root.status().phase(), &root.below("status.Phase"));
        match (root.view().metadata().deletion_timestamp().is_set(), phase.text()) {
            (false, "Active") | (true, "Terminating") => {}
            (false, _) => phase.invalid("may only be 'Active' if `deletionTimestamp` is empty"),
            (true, _) => phase.invalid("may only be 'Terminating' if `deletionTimestamp` is not empty"),
        }
    });
}

/// A Node.
pub fn node(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Node>(object, errors, |root| {
        // Upstream reports taints below metadata.
        taints(&reported_at(&root.spec().taints(), &root.below("metadata.taints")));
        node_resources(&root);
        declared_features(&root.status().declared_features());
        let cidrs = root.spec().pod_cidrs();
        let families: Vec<bool> =
            cidrs.items().filter_map(|cidr| is_cidr(&cidr)).map(|(ip, _)| ip.is_ipv4()).collect();
        if cidrs.len() > 2 || (families.len() == 2 && families[0] == families[1]) {
            cidrs.invalid("may specify no more than one CIDR for each IP family");
        }
    });
}

fn node_resources(node: &Field<'_, Node>) {
    for list in [node.status().capacity(), node.status().allocatable()] {
        for (name, quantity) in list.entries() {
            amount(&reported_at(&quantity, &list.below(name)), name);
        }
    }
}

/// A change of a Node's status.
pub fn node_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Node>(new, errors, |root| {
        node_resources(&root);
        declared_features(&root.status().declared_features());
    });
    node_update(new, old, errors);
}

/// Features that a node declares, in order.
fn declared_features(features: &Field<'_, List<Text>>) {
    let mut before = None;
    for feature in features.items() {
        let name = feature.text();
        if before == Some(name) {
            feature.duplicate();
        } else if before > Some(name) {
            feature.invalid("list must be sorted alphabetically");
        }
        if name.len() > 253 {
            feature.invalid(format!("invalid feature name {name:?}: must be no more than 253 characters"));
        } else if !is_feature(name) {
            feature.invalid(format!(
                "invalid feature name {name:?}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            ));
        }
        before = Some(name);
    }
}

/// `Feature` or `Feature/part`.
fn is_feature(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.split('/').all(|part| {
            part.starts_with(|c: char| c.is_ascii_alphabetic())
                && part.bytes().all(|b| b.is_ascii_alphanumeric())
        })
}

/// A change of a Node.
pub fn node_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = Node::of(old);
    walk_as::<Node>(new, errors, |root| {
        let mut seen = HashSet::new();
        for address in root.status().addresses().items() {
            if !seen.insert((address.view().type_().text(), address.view().address().text())) {
                address.duplicate();
            }
        }
        let spec = root.spec();
        let before = old.spec().pod_cidrs();
        if !before.is_empty() && !same_at(spec.view().pod_cidrs(), before) {
            spec.pod_cidrs().forbidden("node updates may not change podCIDR except from \"\" to valid");
        }
        let provider = old.spec().provider_id().text();
        if !provider.is_empty() && spec.view().provider_id().text() != provider {
            spec.provider_id().forbidden("node updates may not change providerID except from \"\" to valid");
        }
        if spec.external_id().text() != old.spec().external_id().text() {
            spec.external_id().forbidden("may not be updated");
        }
    });
}

/// A core Event: it lives in the namespace of what it is about.
pub fn event(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Event>(object, errors, |root| {
        let about = root.involved_object().namespace();
        let own = root.view().metadata().namespace().text();
        let mismatch = || about.invalid_as(about.text(), "does not match event.namespace");
        if !root.event_time().is_set() {
            match about.text() {
                "" if !matches!(own, "" | "default") => mismatch(),
                "" => {}
                namespace if namespace != own => mismatch(),
                _ => {}
            }
            return;
        }
        if about.text().is_empty() && !matches!(own, "default" | "kube-system") {
            mismatch();
        }
        let controller = reported_at(&root.reporting_component(), &root.below("reportingController"));
        if controller.has_text("") {
            controller.follows(qualified_name);
        }
        for field in [root.reporting_instance(), root.action(), root.reason()] {
            if field.has_text("") && field.text().len() > 128 {
                field.invalid_as("", "can have at most 128 characters");
            }
        }
        if root.message().text().len() > 1024 {
            root.message().invalid_as("", "can have at most 1024 characters");
        }
    });
}

/// What only `events.k8s.io` asks of a new Event, read from its stored form.
pub fn new_regarding_event(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Event>(object, errors, |root| {
        if !root.event_time().is_set() {
            root.event_time().required("");
        }
        let kind = root.view().type_().text();
        if !matches!(kind, "Normal" | "Warning") {
            root.type_().invalid_as("", format!("has invalid value: {kind}"));
        }
        for field in [
            root.first_timestamp().erased(),
            root.last_timestamp().erased(),
            root.count().erased(),
            root.source().erased(),
        ] {
            if !field.is_empty() {
                field.invalid_as("", "needs to be unset");
            }
        }
    });
}

/// What an `events.k8s.io` Event is about never changes.
pub fn regarding_event_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = Event::of(old);
    walk_as::<Event>(new, errors, |root| {
        root.involved_object().immutable(old.involved_object());
        root.reason().immutable(old.reason());
        root.message().immutable(old.message());
        root.source().immutable(old.source());
        root.first_timestamp().immutable(old.first_timestamp());
        root.last_timestamp().immutable(old.last_timestamp());
        root.count().immutable(old.count());
        root.type_().immutable(old.type_());
        root.action().immutable(old.action());
        root.related().immutable(old.related());
        root.reporting_instance().immutable(old.reporting_instance());
    });
}

/// A Lease.
pub fn lease(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Lease>(object, errors, |root| {
        let spec = root.spec();
        spec.lease_duration_seconds().positive();
        spec.lease_transitions().non_negative();
        if spec.strategy().is_set() {
            // Upstream names the field twice.
            let strategy = reported_at(&spec.strategy(), &spec.below("strategy.strategy"));
            if strategy.text().contains('/') {
                strategy.follows(qualified_name);
            } else {
                strategy.one_of(&["OldestEmulationVersion"]);
            }
        }
        if !spec.preferred_holder().is_empty() && spec.strategy().is_empty() {
            spec.preferred_holder().forbidden("may only be specified if `strategy` is defined");
        }
    });
}

/// A PriorityClass.
pub fn priority_class(object: &Value, errors: &mut Vec<FieldError>) {
    const SYSTEM: [(&str, i64); 2] =
        [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
    walk_as::<PriorityClass>(object, errors, |root| {
        let (name, value) = (root.view().metadata().name().text(), root.view().value().or(0));
        if name.starts_with("system-") {
            let why = match SYSTEM.iter().find(|(known, _)| *known == name) {
                None => format!("{name} is not a known system priority class"),
                Some((_, expected)) if *expected != value => {
                    format!("value of {name} PriorityClass must be {expected}")
                }
                Some(_) if root.view().global_default().flag() => {
                    format!("globalDefault of {name} PriorityClass must be false")
                }
                Some(_) => String::new(),
            };
            if !why.is_empty() {
                root.metadata().name().forbidden(format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
                ));
            }
        } else if value > HIGHEST_PRIORITY {
            root.value()
                .forbidden(format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"));
        }
        if root.preemption_policy().is_set() {
            root.preemption_policy().required_one_of(&["PreemptLowerPriority", "Never"]);
        }
    });
}

/// The value of a PriorityClass never changes.
pub fn priority_class_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = PriorityClass::of(old);
    walk_as::<PriorityClass>(new, errors, |root| {
        if root.value().or(0) != old.value().or(0) {
            root.value().forbidden("may not be changed in an update.");
        }
        root.preemption_policy().immutable(old.preemption_policy());
    });
}

/// A RuntimeClass.
pub fn runtime_class(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<RuntimeClass>(object, errors, |root| {
        root.handler().named(dns1123_label);
        // Upstream checks them as limits of a container.
        let fixed = reported_at(&root.overhead().pod_fixed(), &root.overhead().below("limits"));
        for (name, field) in fixed.entries() {
            container_name(&field, name);
            amount(&field, name);
        }
        meta::labels(&root.scheduling().node_selector());
        tolerations(&root.scheduling().tolerations());
    });
}

/// The handler of a RuntimeClass never changes.
pub fn runtime_class_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = RuntimeClass::of(old);
    walk_as::<RuntimeClass>(new, errors, |root| {
        root.handler().immutable(old.handler());
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, errors};
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes() {
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        assert_eq!(errors(node, &json!({"spec": {"taints": [taint], "podCIDRs": ["10.0.0.0/24"]}})), [""; 0]);
        let twice = errors(node, &json!({"spec": {"taints": [taint, taint]}}));
        assert!(twice[0].ends_with("taints must be unique by key and effect pair"), "{twice:?}");
        assert_eq!(
            changes(
                node_update,
                &json!({"spec": {"podCIDRs": ["10.0.1.0/24"]}}),
                &json!({"spec": {"podCIDRs": ["10.0.0.0/24"]}})
            ),
            ["spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"]
        );
    }

    #[test]
    fn features_of_nodes_are_sorted_names() {
        let with = |features: Value| errors(node, &json!({"status": {"declaredFeatures": features}}));
        assert_eq!(with(json!(["A", "A/b", "B1"])), [""; 0]);
        let at = "status.declaredFeatures[1]";
        assert_eq!(with(json!(["A", "A"])), [format!("{at}: Duplicate value: \"A\"")]);
        assert_eq!(
            with(json!(["B", "A"])),
            [format!("{at}: Invalid value: \"A\": list must be sorted alphabetically")]
        );
        for wrong in ["a", "A/", "A//b", "A-b", "A/1"] {
            assert_eq!(with(json!([wrong])).len(), 1, "{wrong}");
        }
        let less = json!({"status": {"capacity": {"pods": "-1"}}});
        assert_eq!(
            changes(node_status, &less, &Value::Null),
            ["status.capacity.pods: Invalid value: \"-1\": must be greater than or equal to 0"]
        );
        let id = |id: &str| json!({"spec": {"externalID": id}});
        assert_eq!(
            changes(node_update, &id("b"), &id("a")),
            ["spec.externalID: Forbidden: may not be updated"]
        );
    }

    #[test]
    fn runtime_classes() {
        let of =
            |handler: &str, cpu: &str| json!({"handler": handler, "overhead": {"podFixed": {"cpu": cpu}}});
        assert_eq!(errors(runtime_class, &of("h", "1")), [""; 0]);
        assert_eq!(
            errors(runtime_class, &of("", "-1")),
            [
                "handler: Required value",
                "overhead.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            ]
        );
    }

    #[test]
    fn namespaces_events_leases_and_priorities() {
        assert_eq!(
            changes(namespace_status, &json!({"status": {"phase": "Terminating"}}), &json!({})),
            [
                "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
            ]
        );
        assert_eq!(
            errors(event, &json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}})),
            ["involvedObject.namespace: Invalid value: \"b\": does not match event.namespace"]
        );
        assert_eq!(
            errors(lease, &json!({"spec": {"leaseDurationSeconds": 0}})),
            ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]
        );
        let strategy = |strategy: &str| errors(lease, &json!({"spec": {"strategy": strategy}}));
        assert_eq!(strategy("OldestEmulationVersion"), [""; 0]);
        assert_eq!(strategy("example.com/own"), [""; 0]);
        assert_eq!(
            strategy("Newest"),
            [
                "spec.strategy.strategy: Unsupported value: \"Newest\": supported values: \"OldestEmulationVersion\""
            ]
        );
        assert_eq!(
            errors(priority_class, &json!({"metadata": {"name": "p"}, "value": 2_000_000_000})),
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"]
        );
        assert_eq!(
            errors(priority_class, &json!({"metadata": {"name": "system-x"}, "value": 1})),
            [
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class"
            ]
        );
    }
}
