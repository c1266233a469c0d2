#![allow(clippy::unwrap_used)]
use super::*;
use crate::registry::index::Registry;
use coracle_validation::tree::{Grow, Tree};
use std::collections::HashSet;

fn all() -> Vec<Value> {
    let ranges = ["10.96.0.0/16".to_owned()];
    let mut all = objects(&Cluster { service_ranges: &ranges, service_address: "10.96.0.1", port: 6443 });
    all.push(dns(&["10.96.0.10".to_owned()]));
    all
}

#[test]
fn the_server_would_accept_every_object() {
    let registry = Registry::builtin();
    let mut seen = HashSet::new();
    for mut object in all() {
        let (version, kind) = (object.text("apiVersion").to_owned(), object.text("kind").to_owned());
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let row = registry.kind(group, version, &kind).unwrap();
        object.section("metadata").put("uid", "u");
        (row.strategy.defaults)(&mut object);
        (row.strategy.prepare_create)(&mut object);
        let errors = row.check_create(&object);
        let name = object.text("metadata.name").to_owned();
        assert!(errors.is_empty(), "{kind} {name}: {errors:?}");
        let namespace = object.text("metadata.namespace").to_owned();
        assert!(seen.insert((kind.clone(), namespace, name.clone())), "{kind} {name} twice");
    }
}

fn role(name: &str) -> Value {
    all().into_iter().find(|o| o.text("kind") == "ClusterRole" && o.text("metadata.name") == name).unwrap()
}

/// Whether a role allows a verb on a core resource.
fn allows(role: &Value, verb: &str, resource: &str) -> bool {
    role.items("rules").iter().any(|rule| {
        let has = |list: &str, item: &str| rule.items(list).iter().any(|value| value == item);
        has("verbs", verb) && has("apiGroups", "") && has("resources", resource)
    })
}

#[test]
fn viewers_see_no_secrets_and_editors_redirect_no_traffic() {
    let (view, edit, admin) = (role("view"), role("edit"), role("admin"));
    assert!(allows(&view, "list", "pods") && !allows(&view, "create", "pods"));
    assert!(!allows(&view, "get", "secrets") && !allows(&view, "get", "pods/exec"));
    assert!(
        allows(&edit, "get", "secrets") && allows(&edit, "create", "pods") && allows(&edit, "list", "pods")
    );
    assert!(!allows(&edit, "update", "endpoints"));
    let grants = |role: &Value| {
        role.items("rules").iter().any(|rule| rule.items("resources").iter().any(|r| r == "rolebindings"))
    };
    assert!(grants(&admin) && !grants(&edit));
    assert!(allows(&admin, "get", "secrets") && !allows(&admin, "create", "namespaces"));
}

#[test]
fn every_binding_and_schema_refers_to_something() {
    let objects = all();
    let names = |kind: &str| -> HashSet<String> {
        objects
            .iter()
            .filter(|o| o.text("kind") == kind)
            .map(|o| o.text("metadata.name").to_owned())
            .collect()
    };
    let (roles, levels) = (names("ClusterRole"), names("PriorityLevelConfiguration"));
    for object in &objects {
        match object.text("kind") {
            "ClusterRoleBinding" => assert!(roles.contains(object.text("roleRef.name")), "{object}"),
            "FlowSchema" => {
                assert!(levels.contains(object.text("spec.priorityLevelConfiguration.name")), "{object}")
            }
            _ => {}
        }
    }
    let anonymous = objects
        .iter()
        .filter(|o| o.items("subjects").iter().any(|s| s.text("name") == "system:unauthenticated"));
    let anonymous: Vec<&str> = anonymous.map(|o| o.text("metadata.name")).collect();
    assert_eq!(anonymous, ["system:public-info-viewer"]);
}
