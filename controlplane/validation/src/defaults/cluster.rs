//! Defaults of Namespaces, Nodes, Secrets, limits, quotas, roles and priorities.

use super::quantities::canonical_resources;
use crate::tree::{Grow, Tree};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";

/// A Namespace is labelled with its name, so that selectors can name it.
pub fn namespace(object: &mut Value) {
    let name = object.text("metadata.name").to_owned();
    if !name.is_empty() {
        object.section("metadata").section("labels").put("kubernetes.io/metadata.name", name);
    }
    object.section("spec");
    object.section("status").default("phase", "Active");
}

/// A Node may allocate what it has unless it says otherwise.
pub fn node(object: &mut Value) {
    let spec = object.section("spec");
    // Old clients know one range, new ones a list; who differs from the list's first means the one.
    let (one, first) = (spec.text("podCIDR").to_owned(), spec.items("podCIDRs").first().cloned());
    match first {
        Some(first) if one.is_empty() => spec.put("podCIDR", first),
        first if !one.is_empty() && first.as_ref() != Some(&json!(one)) => spec.put("podCIDRs", json!([one])),
        _ => {}
    }
    let Some(status) = object.existing("status") else { return };
    for list in ["capacity", "allocatable"] {
        if let Some(list) = status.existing(list) {
            canonical_resources(list);
        }
    }
    if status.has("capacity") && !status.has("allocatable") {
        let capacity = status.at("capacity").clone();
        status.put("allocatable", capacity);
    }
}

/// A Secret: `stringData` is written into `data` and never kept.
pub fn secret(object: &mut Value) {
    object.default("type", "Opaque");
    let Some(Value::Object(texts)) = object.drop_key("stringData") else { return };
    if texts.is_empty() {
        return;
    }
    let data = object.section("data");
    for (key, text) in texts {
        if let Some(text) = text.as_str() {
            data.put(&key, STANDARD.encode(text));
        }
    }
}

/// A LimitRange: limits for containers default from max to default to defaultRequest, and from min.
pub fn limit_range(object: &mut Value) {
    let Some(spec) = object.existing("spec") else { return };
    spec.each("limits", |item| {
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            if let Some(list) = item.existing(list) {
                canonical_resources(list);
            }
        }
        if item.text("type") != "Container" {
            return;
        }
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let source = item.at(from).clone();
            for (name, quantity) in source.as_object().into_iter().flatten() {
                item.section(to).default(name, quantity.clone());
            }
        }
    });
}

/// A ResourceQuota.
pub fn quota(object: &mut Value) {
    for (section, list) in [("spec", "hard"), ("status", "hard"), ("status", "used")] {
        if let Some(list) = object.existing(section).and_then(|section| section.existing(list)) {
            canonical_resources(list);
        }
    }
}

/// A RoleBinding or ClusterRoleBinding.
pub fn role_binding(object: &mut Value) {
    object.section("roleRef").default("apiGroup", RBAC);
    object.each("subjects", |subject| {
        if matches!(subject.text("kind"), "User" | "Group") {
            subject.default("apiGroup", RBAC);
        }
    });
}

/// A PriorityClass says its value even when it is 0.
pub fn priority_class(object: &mut Value) {
    object.default("preemptionPolicy", "PreemptLowerPriority");
    object.default("value", json!(0));
}
