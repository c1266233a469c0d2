#![allow(clippy::unwrap_used)]
use super::builtin;
use crate::registry::kinds::Subresource;
use std::collections::HashSet;

#[test]
fn every_row_is_unique_and_complete() {
    let rows = builtin();
    let mut resources = HashSet::new();
    for row in &rows {
        let id = format!("{}/{}", row.api_version(), row.plural);
        assert!(resources.insert(id.clone()), "{id} twice");
        assert!(row.schema.ends_with(&format!(".{}.{}", row.version, row.kind)), "{}", row.schema);
        assert_eq!(row.columns.iter().filter(|column| column.name == "Name").count(), 1, "{id}");
        assert_eq!(row.stored, row.verbs.contains(&"watch"), "{id}");
    }
    let of = |kind: &str| rows.iter().find(|row| row.kind == kind).unwrap();
    assert_eq!(of("FlowSchema").schema, "io.k8s.api.flowcontrol.v1.FlowSchema");
    assert_eq!(of("Role").schema, "io.k8s.api.rbac.v1.Role");
    assert_eq!(of("Pod").prefix(), "/registry/pods/");
    assert_eq!(of("Lease").key("kube-system", "a"), "/registry/coordination.k8s.io/leases/kube-system/a");
}

#[test]
fn names_that_people_type_are_unique() {
    let rows = builtin();
    let mut seen = HashSet::new();
    for row in rows.iter().filter(|row| row.stored_as.is_none()) {
        for name in row.short_names.iter().chain([&row.singular]) {
            assert!(seen.insert(name.clone()), "{name} twice");
        }
    }
}

#[test]
fn discovery_of_subresources() {
    let rows = builtin();
    let pod = rows.iter().find(|row| row.kind == "Pod").unwrap();
    let eviction = Subresource::Other("eviction").exposed(pod);
    assert_eq!((&*eviction.group, &*eviction.kind, eviction.verbs), ("policy", "Eviction", &["create"][..]));
    let exec = Subresource::Other("exec").exposed(pod);
    assert_eq!((&*exec.kind, exec.verbs), ("PodExecOptions", &["create", "get"][..]));
    let status = Subresource::Status.exposed(pod);
    assert_eq!((&*status.kind, status.verbs), ("Pod", &["get", "patch", "update"][..]));
}
