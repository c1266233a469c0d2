//! The aggregated format: all groups in one `APIGroupDiscoveryList`.

use super::groups::{Group, Served};
use coracle_kinds::registry::kinds::Kind;
use serde::Serialize;
use serde_json::{Value, json};

/// The document of some groups, in a version of the format.
pub(super) fn aggregated<'a>(groups: impl Iterator<Item = &'a Group>, version: &str) -> Value {
    let items: Vec<Value> = groups
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|version| {
                    let (resources, fresh) = match &version.served {
                        Served::Local(kinds) => (kinds.iter().map(|kind| resource(kind)).collect(), true),
                        Served::Aggregated(entry) => {
                            (entry.discovered.resources.clone(), entry.discovered.fresh)
                        }
                    };
                    let freshness = if fresh { "Current" } else { "Stale" };
                    json!({"version": version.name, "resources": resources, "freshness": freshness})
                })
                .collect();
            json!({"metadata": {"name": group.name}, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"), "metadata": {},
        "items": items})
}

/// `APIResourceDiscovery`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource<'a> {
    resource: &'a str,
    response_kind: GroupVersionKind<'a>,
    scope: &'static str,
    singular_resource: &'a str,
    verbs: &'static [&'static str],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    short_names: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    categories: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<Value>,
}

/// `APISubresourceDiscovery`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Subresource<'a> {
    subresource: &'static str,
    response_kind: GroupVersionKind<'a>,
    verbs: &'static [&'static str],
    /// Set when they are of another group or version than the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_types: Option<[GroupVersionKind<'a>; 1]>,
}

#[derive(Clone, Copy, Serialize)]
struct GroupVersionKind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

fn resource(kind: &Kind) -> Value {
    let mut subresources: Vec<_> = kind.subresources.iter().map(|s| s.exposed(kind)).collect();
    subresources.sort_by_key(|s| s.name);
    let subresources = subresources.iter().map(|sub| {
        let taken = GroupVersionKind { group: &sub.group, version: &sub.version, kind: &sub.kind };
        let own = (&*sub.group, &*sub.version) == (&*kind.group, &*kind.version);
        json!(Subresource {
            subresource: sub.name,
            response_kind: taken,
            verbs: sub.verbs,
            accepted_types: (!own).then_some([taken]),
        })
    });
    json!(Resource {
        resource: &kind.plural,
        response_kind: GroupVersionKind { group: &kind.group, version: &kind.version, kind: &kind.kind },
        scope: if kind.namespaced() { "Namespaced" } else { "Cluster" },
        singular_resource: &kind.singular,
        verbs: kind.verbs,
        short_names: &kind.short_names,
        categories: &kind.categories,
        subresources: subresources.collect(),
    })
}
