//! Defaults of Namespaces, Nodes, Secrets, limits, quotas, roles and priorities.

use super::quantities::{canonical_resources, fill_missing};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_fields::core::v1::{LimitRange, LimitRangeItem, Namespace, Node, ResourceQuota, Secret};
use coracle_fields::rbac::v1::RoleBinding;
use coracle_fields::scheduling::v1::PriorityClass;
use coracle_fields::{Amount, Edit, Map, Schema};
use serde_json::Value;

const RBAC: &str = "rbac.authorization.k8s.io";

/// A Namespace is labelled with its name, so that selectors can name it.
pub fn namespace(object: &mut Value) {
    let mut namespace = Namespace::edit(object);
    let name = namespace.view().metadata().name().text().to_owned();
    if !name.is_empty() {
        namespace.metadata().labels().insert("kubernetes.io/metadata.name", name);
    }
    namespace.spec().section();
    namespace.status().phase().default("Active");
}

/// A Node may allocate what it has unless it says otherwise.
pub fn node(object: &mut Value) {
    let mut node = Node::edit(object);
    let mut spec = node.spec().section();
    // Old clients know one range, new ones a list; who differs from the list's first means the one.
    let one = spec.view().pod_cidr().text().to_owned();
    let first = spec.view().pod_cidrs().first().and_then(|first| first.get()).map(str::to_owned);
    match first {
        Some(first) if one.is_empty() => spec.pod_cidr().set(first),
        first if !one.is_empty() && first.as_ref() != Some(&one) => spec.pod_cidrs().set([one]),
        _ => {}
    }
    let Some(mut status) = node.status().existing() else { return };
    canonical_resources(status.capacity());
    canonical_resources(status.allocatable());
    if !status.view().allocatable().is_set() {
        let capacity = status.view().capacity().to_value();
        status.allocatable().put(capacity);
    }
}

/// A Secret: `stringData` is written into `data` and never kept.
pub fn secret(object: &mut Value) {
    let mut secret = Secret::edit(object);
    secret.type_().default("Opaque");
    let texts = secret.string_data().tree().map(Value::take);
    secret.string_data().clear();
    let Some(Value::Object(texts)) = texts else { return };
    if texts.is_empty() {
        return;
    }
    let mut data = secret.data().section();
    for (key, text) in texts {
        if let Some(text) = text.as_str() {
            data.insert(&key, STANDARD.encode(text));
        }
    }
}

/// A LimitRange: limits for containers default from max to default to defaultRequest, and from min.
pub fn limit_range(object: &mut Value) {
    LimitRange::edit(object).spec().limits().each_object(limit);
}

fn limit(mut item: Edit<'_, LimitRangeItem>) {
    canonical_resources(item.max());
    canonical_resources(item.min());
    canonical_resources(item.default_());
    canonical_resources(item.default_request());
    canonical_resources(item.max_limit_request_ratio());
    if item.view().type_() == "Container" {
        inherit(item.view().max().to_value(), item.default_());
        inherit(item.view().default_().to_value(), item.default_request());
        inherit(item.view().min().to_value(), item.default_request());
    }
}

fn inherit(from: Value, to: Edit<'_, Map<Amount>>) {
    if let Value::Object(from) = from
        && !from.is_empty()
    {
        fill_missing(to, from);
    }
}

/// A ResourceQuota.
pub fn quota(object: &mut Value) {
    let mut quota = ResourceQuota::edit(object);
    canonical_resources(quota.spec().hard());
    canonical_resources(quota.status().hard());
    canonical_resources(quota.status().used());
}

/// A RoleBinding or ClusterRoleBinding.
pub fn role_binding(object: &mut Value) {
    let mut binding = RoleBinding::edit(object);
    binding.role_ref().api_group().default(RBAC);
    binding.subjects().each_object(|mut subject| {
        if matches!(subject.view().kind().text(), "User" | "Group") {
            subject.api_group().default(RBAC);
        }
    });
}

/// A PriorityClass says its value even when it is 0.
pub fn priority_class(object: &mut Value) {
    let mut class = PriorityClass::edit(object);
    class.preemption_policy().default("PreemptLowerPriority");
    class.value().default(0);
}
