//! Field rules of Namespaces, Nodes, Events, Leases, priorities and runtime classes.

use super::field_ref::{FieldRef, walk};
use super::meta;
use super::names::is_cidr;
use super::pods::resources::{amount, container_name};
use super::pods::scheduling::{taints, tolerations};
use crate::tree::{Tree, same};
use coracle_proto::names::{dns1123_label, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;

/// The highest priority that users may give.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

fn finalizers(list: &FieldRef<'_>) {
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
    walk(object, errors, |root| finalizers(&root.at("spec.finalizers")));
}

/// `/finalize` of a Namespace.
pub fn namespace_finalize(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    namespace(new, errors);
}

/// A change of a Namespace's status.
pub fn namespace_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        let phase = root.at("status.Phase").with(new.at("status.phase"));
        match (new.has("metadata.deletionTimestamp"), phase.text()) {
            (false, "Active") | (true, "Terminating") => {}
            (false, _) => phase.invalid("may only be 'Active' if `deletionTimestamp` is empty"),
            (true, _) => phase.invalid("may only be 'Terminating' if `deletionTimestamp` is not empty"),
        }
    });
}

/// A Node.
pub fn node(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        // Upstream reports taints below metadata.
        taints(&root.at("metadata.taints").with(object.at("spec.taints")));
        for list in ["status.capacity", "status.allocatable"] {
            for (name, quantity) in root.at(list).entries() {
                let field = root.at(&format!("{list}.{name}")).with(quantity.value);
                amount(&field, name);
            }
        }
        let cidrs = root.at("spec.podCIDRs");
        let families: Vec<bool> =
            cidrs.items().filter_map(|cidr| is_cidr(&cidr)).map(|(ip, _)| ip.is_ipv4()).collect();
        if cidrs.len() > 2 || (families.len() == 2 && families[0] == families[1]) {
            cidrs.invalid("may specify no more than one CIDR for each IP family");
        }
    });
}

/// A change of a Node.
pub fn node_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        let mut seen = HashSet::new();
        for address in root.each("status.addresses") {
            if !seen.insert((address.value.text("type"), address.value.text("address"))) {
                address.duplicate();
            }
        }
        let spec = root.at("spec");
        if !old.items("spec.podCIDRs").is_empty() && !same(spec.value.at("podCIDRs"), old.at("spec.podCIDRs"))
        {
            spec.at("podCIDRs").forbidden("node updates may not change podCIDR except from \"\" to valid");
        }
        let provider = old.text("spec.providerID");
        if !provider.is_empty() && spec.value.text("providerID") != provider {
            spec.at("providerID")
                .forbidden("node updates may not change providerID except from \"\" to valid");
        }
    });
}

/// A core Event: it lives in the namespace of what it is about.
pub fn event(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let about = root.at("involvedObject.namespace");
        let own = object.text("metadata.namespace");
        let mismatch = || about.invalid_as(about.text(), "does not match event.namespace");
        if !object.has("eventTime") {
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
        let controller = root.at("reportingController").with(object.at("reportingComponent"));
        if controller.has_text("") {
            controller.follows(qualified_name);
        }
        for (field, max) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
            if root.at(field).has_text("") && root.at(field).text().len() > max {
                root.at(field).invalid_as("", format!("can have at most {max} characters"));
            }
        }
        if root.at("message").text().len() > 1024 {
            root.at("message").invalid_as("", "can have at most 1024 characters");
        }
    });
}

/// What only `events.k8s.io` asks of a new Event, read from its stored form.
pub fn new_regarding_event(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        if !root.at("eventTime").is_set() {
            root.at("eventTime").required("");
        }
        let kind = object.text("type");
        if !matches!(kind, "Normal" | "Warning") {
            root.at("type").invalid_as("", format!("has invalid value: {kind}"));
        }
        for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
            if !crate::tree::is_empty(object.at(field)) {
                root.at(field).invalid_as("", "needs to be unset");
            }
        }
    });
}

/// What an `events.k8s.io` Event is about never changes.
pub fn regarding_event_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        for field in [
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "type",
            "action",
            "related",
            "reportingInstance",
        ] {
            root.at(field).immutable(old.at(field));
        }
    });
}

/// A Lease.
pub fn lease(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        spec.at("leaseDurationSeconds").positive();
        spec.at("leaseTransitions").non_negative();
        if !spec.at("preferredHolder").is_empty() && spec.at("strategy").is_empty() {
            spec.at("preferredHolder").forbidden("may only be specified if `strategy` is defined");
        }
    });
}

/// A PriorityClass.
pub fn priority_class(object: &Value, errors: &mut Vec<FieldError>) {
    const SYSTEM: [(&str, i64); 2] =
        [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
    walk(object, errors, |root| {
        let (name, value) = (object.text("metadata.name"), object.int("value").unwrap_or_default());
        if name.starts_with("system-") {
            let why = match SYSTEM.iter().find(|(known, _)| *known == name) {
                None => format!("{name} is not a known system priority class"),
                Some((_, expected)) if *expected != value => {
                    format!("value of {name} PriorityClass must be {expected}")
                }
                Some(_) if object.flag("globalDefault") => {
                    format!("globalDefault of {name} PriorityClass must be false")
                }
                Some(_) => String::new(),
            };
            if !why.is_empty() {
                root.at("metadata.name").forbidden(format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
                ));
            }
        } else if value > HIGHEST_PRIORITY {
            root.at("value")
                .forbidden(format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"));
        }
        if root.at("preemptionPolicy").is_set() {
            root.at("preemptionPolicy").required_one_of(&["PreemptLowerPriority", "Never"]);
        }
    });
}

/// The value of a PriorityClass never changes.
pub fn priority_class_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        if new.int("value").unwrap_or_default() != old.int("value").unwrap_or_default() {
            root.at("value").forbidden("may not be changed in an update.");
        }
        root.at("preemptionPolicy").immutable(old.at("preemptionPolicy"));
    });
}

/// A RuntimeClass.
pub fn runtime_class(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let handler = root.at("handler");
        for message in dns1123_label(handler.text()) {
            handler.invalid_as(handler.text(), message);
        }
        for (name, field) in root.at("overhead.podFixed").entries() {
            container_name(&field, name);
            amount(&field, name);
        }
        meta::labels(&root.at("scheduling.nodeSelector"));
        tolerations(&root.at("scheduling.tolerations"));
    });
}

/// The handler of a RuntimeClass never changes.
pub fn runtime_class_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        root.at("handler").immutable(old.at("handler"));
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
