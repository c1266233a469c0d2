//! One object by several names: other versions of its resource, and resources of other groups that show the same objects.

use super::index::Registry;
use super::kinds::Kind;

/// A resource and its kind, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Resource, such as `pods`.
    pub plural: String,
    /// Kind, such as `Pod`.
    pub kind: String,
}

impl Named {
    /// The names of a row.
    pub fn of(row: &Kind) -> Self {
        Self {
            group: row.group.clone(),
            version: row.version.clone(),
            plural: row.plural.clone(),
            kind: row.kind.clone(),
        }
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

impl Registry {
    /// The other names of a resource that have this subresource, or of the resource itself (`""`). The versions of a
    /// definition are in its order, with those that are not served: rules may be older than what is served.
    pub fn equivalents(&self, kind: &Kind, subresource: &str) -> Vec<Named> {
        if let Some(custom) = &kind.custom {
            let others = custom.versions.iter().filter(|version| {
                version.name != kind.version
                    && (subresource.is_empty() || version.subresources.contains(&subresource))
            });
            return others.map(|other| Named { version: other.name.clone(), ..Named::of(kind) }).collect();
        }
        let has = |row: &Kind| {
            subresource.is_empty() || row.subresources.iter().any(|sub| sub.name() == subresource)
        };
        let (own, place) = (Named::of(kind), kind.prefix());
        let same = self.rows_of(&kind.plural).into_iter().filter(|row| row.prefix() == place && has(row));
        same.map(|row| Named::of(&row)).filter(|other| *other != own).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::registry::custom::rows;
    use serde_json::json;

    #[test]
    fn names_of_the_same_objects() {
        let registry = Registry::builtin();
        let version = |name: &str, served: bool, subresources: serde_json::Value| {
            json!({"name": name, "served": served, "storage": name == "v2", "subresources": subresources,
                "schema": {"openAPIV3Schema": {"type": "object"}}})
        };
        let definition = json!({"spec": {"group": "x.io", "scope": "Namespaced",
            "names": {"plural": "events", "kind": "Happening"}, "versions": [
                version("v1", true, json!({"status": {}})), version("v2", true, json!({"status": {}})),
                version("v0", false, json!({}))]}});
        for row in rows::of(&definition) {
            registry.register(row);
        }
        for (group, version, plural, subresource, expected) in [
            ("", "v1", "pods", "", &[][..]),
            ("", "v1", "events", "", &["events.k8s.io/v1"]),
            ("events.k8s.io", "v1", "events", "", &["v1"]),
            ("autoscaling", "v1", "horizontalpodautoscalers", "", &["autoscaling/v2"]),
            ("autoscaling", "v2", "horizontalpodautoscalers", "status", &["autoscaling/v1"]),
            ("autoscaling", "v2", "horizontalpodautoscalers", "scale", &[]),
            ("x.io", "v1", "events", "", &["x.io/v2", "x.io/v0"]),
            ("x.io", "v2", "events", "", &["x.io/v1", "x.io/v0"]),
            ("x.io", "v2", "events", "status", &["x.io/v1"]),
        ] {
            let row = registry.resource(group, version, plural).unwrap();
            let others = registry.equivalents(&row, subresource);
            let versions: Vec<String> = others.iter().map(Named::api_version).collect();
            assert_eq!(versions, expected, "{group}/{version} {plural}/{subresource}");
            assert!(others.iter().all(|other| other.plural == plural && other.kind == row.kind));
        }
    }
}
