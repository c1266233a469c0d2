//! Who owns the number of replicas: in the entries of an object, and in those of its Scale, which has nothing else to own.

use crate::patch::apply::entry::{self, Entry};
use crate::patch::apply::fields::field_element;
use crate::patch::apply::set::Set;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::registry::scale::custom_paths;
use serde_json::{Map, Value};

/// The version of Scales.
pub(super) const SCALE_VERSION: &str = "autoscaling/v1";
const IN_SCALE: &str = "spec.replicas";

/// The set of one path such as `.spec.replicas`.
fn only(path: &str) -> Set {
    let parts: Vec<&str> = path.split('.').filter(|part| !part.is_empty()).collect();
    let leaf = Value::Object(Map::new());
    let tree = parts.iter().rev().fold(leaf, |below, part| {
        Value::Object(Map::from_iter([(field_element(part).into_string(), below)]))
    });
    // Elements that were made here can be read.
    Set::decode(&tree).unwrap_or_default()
}

/// The number of replicas in objects of a kind.
fn in_object(kind: &Kind) -> Set {
    only(custom_paths(kind).map_or(IN_SCALE, |paths| &paths.spec))
}

/// The same manager in both lists, whose versions differ.
fn is_same(one: &Entry, other: &Entry) -> bool {
    one.manager == other.manager && one.operation == other.operation && one.subresource == other.subresource
}

/// The entries of the Scale of an object: those that own the number of replicas.
pub(super) fn of_scale(kind: &Kind, object: &Value) -> Vec<Entry> {
    let (path, in_scale) = (in_object(kind), only(IN_SCALE));
    let owners = entry::decode(object).unwrap_or_default();
    let owners = owners.into_iter().filter(|entry| entry.fields.intersects(&path));
    let version = || SCALE_VERSION.to_owned();
    owners.map(|entry| Entry { api_version: version(), fields: in_scale.clone(), ..entry }).collect()
}

/// The entries of an object whose Scale has changed: the number of replicas belongs to its owners in the Scale.
pub(super) fn of_object(kind: &Kind, object: &Value, scale: &Value) -> Vec<Entry> {
    let (path, in_scale) = (in_object(kind), only(IN_SCALE));
    let mut owners = entry::decode(scale).unwrap_or_default();
    owners.retain(|entry| entry.fields.intersects(&in_scale));
    let mut entries = entry::decode(object).unwrap_or_default();
    for entry in entries.iter_mut().filter(|entry| entry.fields.intersects(&path)) {
        match owners.iter().position(|owner| is_same(owner, entry)) {
            Some(at) => drop(owners.swap_remove(at)),
            None => entry.fields = entry.fields.difference(&path),
        }
    }
    entries.retain(|entry| !entry.fields.is_empty());
    let new = owners.into_iter();
    entries.extend(new.map(|owner| Entry { api_version: kind.api_version(), fields: path.clone(), ..owner }));
    entries
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::registry::index::Registry;
    use serde_json::json;

    fn entry(manager: &str, operation: &str, version: &str, subresource: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": version, "subresource": subresource,
            "fieldsType": "FieldsV1", "fieldsV1": fields, "time": "2026-01-01T00:00:00Z"})
    }

    fn with(entries: Value) -> Value {
        json!({"metadata": {"name": "web", "managedFields": entries}})
    }

    #[test]
    fn the_number_of_replicas_belongs_to_its_owners_in_the_scale() {
        let kind = Registry::builtin().kind("apps", "v1", "Deployment").unwrap();
        let replicas = || json!({"f:spec": {"f:replicas": {}}});
        let both = json!({"f:spec": {"f:replicas": {}, "f:paused": {}}});
        let object = with(json!([
            entry("creator", "Update", "apps/v1", "", both),
            entry("labeller", "Apply", "apps/v1", "", json!({"f:metadata": {"f:labels": {"f:a": {}}}})),
            entry("scaler", "Apply", "apps/v1", "scale", replicas()),
        ]));
        let shown = of_scale(&kind, &object);
        let managers: Vec<(&str, &str)> =
            shown.iter().map(|e| (e.manager.as_str(), e.api_version.as_str())).collect();
        assert_eq!(managers, [("creator", SCALE_VERSION), ("scaler", SCALE_VERSION)]);
        assert!(shown.iter().all(|e| e.fields == only(IN_SCALE)));

        // Another manager has taken it from the creator, and shares it with the one who applied it before.
        let scale = with(json!([
            entry("newcomer", "Apply", SCALE_VERSION, "scale", replicas()),
            entry("scaler", "Apply", SCALE_VERSION, "scale", replicas()),
        ]));
        let after = of_object(&kind, &object, &scale);
        let found = |manager: &str| {
            let entry = after.iter().find(|e| e.manager == manager).unwrap();
            (entry.api_version.clone(), entry.fields.encode())
        };
        assert_eq!(after.len(), 4);
        assert_eq!(found("creator"), ("apps/v1".to_owned(), json!({"f:spec": {"f:paused": {}}})));
        assert_eq!(found("newcomer"), ("apps/v1".to_owned(), replicas()));
        assert_eq!(found("scaler"), ("apps/v1".to_owned(), replicas()));
    }
}
