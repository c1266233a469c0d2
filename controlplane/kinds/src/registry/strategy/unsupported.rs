//! Fields of features of Kubernetes 1.36 that are off by default and that this server does not have: they are accepted, and not
//! stored unless the old object has them. So are sources of claims in the field that is for claims and snapshots only.

use super::super::kinds::Strategy;
use serde_json::Value;

/// Fields of one feature, as paths from the object; `*` is every item of a list and every value of a map.
type Feature = &'static [&'static str];

/// Of the spec of a pod: `GenericWorkload`, `ClusterTrustBundleProjection`, `PodCertificateRequest`.
const POD_SPEC: &[Feature] = &[
    &["schedulingGroup"],
    &["volumes/*/projected/sources/*/clusterTrustBundle"],
    &["volumes/*/projected/sources/*/podCertificate"],
];
/// `ImageVolumeWithDigest`, `DRANodeAllocatableResources`.
const POD_STATUS: &[Feature] = &[
    &[
        "status/containerStatuses/*/volumeMounts/*/volumeStatus",
        "status/initContainerStatuses/*/volumeMounts/*/volumeStatus",
        "status/ephemeralContainerStatuses/*/volumeMounts/*/volumeStatus",
    ],
    &["status/nodeAllocatableResourceClaimStatuses"],
];
/// `DRANodeAllocatableResources`, `DRAListTypeAttributes`.
const RESOURCE_SLICE: &[Feature] = &[
    &["spec/devices/*/nodeAllocatableResourceMappings"],
    &[
        "spec/devices/*/attributes/*/bools",
        "spec/devices/*/attributes/*/ints",
        "spec/devices/*/attributes/*/strings",
        "spec/devices/*/attributes/*/versions",
    ],
];
/// `VolumeLimitScaling`.
const CSI_DRIVER: &[Feature] = &[&["spec/preventPodSchedulingIfMissing"]];
/// `DynamicKubeletConfig`, which is gone.
const NODE: &[Feature] = &[&["spec/configSource"], &["status/config"]];
/// `CoordinatedLeaderElection`.
const LEASE: &[Feature] = &[&["spec/strategy"], &["spec/preferredHolder"]];
/// `CrossNamespaceVolumeDataSource`.
const DATA_SOURCE: Feature = &["spec/dataSourceRef"];

/// Lets a kind drop such fields.
pub fn drop_from(strategy: &mut Strategy, group: &str, kind: &str) {
    strategy.drop_unsupported = match (group, kind) {
        ("", "Pod") => |new, old| drop_at(new, old, "/spec", POD_SPEC),
        ("", "PodTemplate") => |new, old| drop_at(new, old, "/template/spec", POD_SPEC),
        ("", "ReplicationController")
        | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job") => |new, old| drop_at(new, old, "/spec/template/spec", POD_SPEC),
        ("batch", "CronJob") => {
            |new, old| drop_at(new, old, "/spec/jobTemplate/spec/template/spec", POD_SPEC)
        }
        ("", "Node") => |new, old| drop_at(new, old, "", NODE),
        ("", "PersistentVolumeClaim") => settle_data_sources,
        ("coordination.k8s.io", "Lease") => |new, old| drop_at(new, old, "", LEASE),
        ("resource.k8s.io", "ResourceSlice") => |new, old| drop_at(new, old, "", RESOURCE_SLICE),
        ("storage.k8s.io", "CSIDriver") => |new, old| drop_at(new, old, "", CSI_DRIVER),
        _ => return,
    };
}

/// Of the status of a pod.
pub fn drop_pod_status(new: &mut Value, old: &Value) {
    drop_at(new, Some(old), "", POD_STATUS);
}

/// A source in another namespace goes as a whole. So does one in the old field alone that is no claim and no snapshot, unless the old
/// object has a source. Then both fields are the same if one of them is set.
fn settle_data_sources(new: &mut Value, old: Option<&Value>) {
    let namespace = new.pointer("/spec/dataSourceRef/namespace").and_then(Value::as_str).unwrap_or("");
    let elsewhere = !namespace.is_empty();
    if elsewhere {
        drop_at(new, old, "", &[DATA_SOURCE]);
    }
    if !has(new, "spec/dataSourceRef") {
        let was_set = |old: &Value| has(old, "spec/dataSource") || has(old, "spec/dataSourceRef");
        if !new.pointer("/spec/dataSource").is_some_and(is_claim_or_snapshot) && !old.is_some_and(was_set) {
            remove(new, "spec/dataSource");
        }
        copy_source(new, "dataSource", "dataSourceRef");
    } else if !has(new, "spec/dataSource") && !elsewhere {
        copy_source(new, "dataSourceRef", "dataSource");
    }
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    let text = |field| source.get(field).and_then(Value::as_str).unwrap_or("");
    matches!(
        (text("apiGroup"), text("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
}

fn copy_source(claim: &mut Value, from: &str, to: &str) {
    let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(source) = spec.get(from).filter(|source| !source.is_null()).cloned() {
        spec.insert(to.to_owned(), source);
    }
}

fn drop_at(new: &mut Value, old: Option<&Value>, base: &str, features: &[Feature]) {
    let old = old.and_then(|old| old.pointer(base));
    let Some(new) = new.pointer_mut(base) else { return };
    for feature in features {
        let used = |old: &Value| feature.iter().any(|path| has(old, path));
        if !old.is_some_and(used) {
            feature.iter().for_each(|path| remove(new, path));
        }
    }
}

fn has(object: &Value, path: &str) -> bool {
    match path.split_once('/') {
        Some(("*", rest)) => match object {
            Value::Array(items) => items.iter().any(|item| has(item, rest)),
            Value::Object(entries) => entries.values().any(|value| has(value, rest)),
            _ => false,
        },
        Some((first, rest)) => object.get(first).is_some_and(|inner| has(inner, rest)),
        None => object.get(path).is_some_and(|value| !value.is_null()),
    }
}

fn remove(object: &mut Value, path: &str) {
    match path.split_once('/') {
        Some(("*", rest)) => match object {
            Value::Array(items) => items.iter_mut().for_each(|item| remove(item, rest)),
            Value::Object(entries) => entries.values_mut().for_each(|value| remove(value, rest)),
            _ => {}
        },
        Some((first, rest)) => {
            if let Some(inner) = object.get_mut(first) {
                remove(inner, rest);
            }
        }
        None => {
            if let Some(fields) = object.as_object_mut() {
                fields.remove(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::registry::index::Registry;
    use coracle_proto::schema::{self, Object, Shape, Type};
    use serde_json::json;

    /// Whether a type has a field at the path.
    fn is_known(of: &Type, path: &str) -> bool {
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let Some(field) = of.fields.iter().find(|field| field.name == first) else { return false };
        let (mut shape, mut rest) = (&field.shape, rest);
        while let (Some(inner), Shape::List(_) | Shape::Map(_)) = (rest.strip_prefix("*/"), shape) {
            rest = inner;
            shape = match shape {
                Shape::List(list) => &list.item,
                Shape::Map(value) => value,
                _ => unreachable!(),
            };
        }
        match shape {
            _ if rest.is_empty() => true,
            Shape::Object(Object::Table(at)) => is_known(&schema::types()[usize::from(*at)], rest),
            _ => false,
        }
    }

    #[test]
    fn the_fields_are_those_of_the_schema() {
        for (name, features) in [
            ("core.v1.PodSpec", POD_SPEC),
            ("core.v1.Pod", POD_STATUS),
            ("resource.v1.ResourceSlice", RESOURCE_SLICE),
            ("storage.v1.CSIDriver", CSI_DRIVER),
            ("coordination.v1.Lease", LEASE),
            ("core.v1.Node", NODE),
            ("core.v1.PersistentVolumeClaim", &[DATA_SOURCE]),
        ] {
            let of = schema::type_of(&format!("io.k8s.api.{name}")).unwrap();
            for path in features.iter().flat_map(|feature| feature.iter()) {
                assert!(is_known(of, path), "{name} {path}");
            }
        }
    }

    #[test]
    fn fields_of_features_that_are_off_are_not_stored_unless_they_were() {
        let pod = json!({"containers": [{"name": "c"}], "schedulingGroup": {"podGroupName": "g"}, "volumes": [
            {"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "a"}, "secret": {"name": "s"}}]}}]});
        let bare = json!({"containers": [{"name": "c"}], "volumes": [
            {"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]});
        let template = |spec: &Value| json!({"template": {"spec": spec}});
        let cron_job = |spec: &Value| json!({"jobTemplate": {"spec": template(spec)}});
        let slice = json!({"devices": [{"name": "d", "attributes": {"a": {"ints": [1]}, "b": {"int": 1}},
            "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}]});
        let bare_slice = json!({"devices": [{"name": "d", "attributes": {"a": {}, "b": {"int": 1}}}]});
        for (group, kind, asked, stored) in [
            ("", "Pod", pod.clone(), bare.clone()),
            ("apps", "Deployment", template(&pod), template(&bare)),
            ("batch", "CronJob", cron_job(&pod), cron_job(&bare)),
            ("resource.k8s.io", "ResourceSlice", slice, bare_slice),
            ("storage.k8s.io", "CSIDriver", json!({"preventPodSchedulingIfMissing": true}), json!({})),
            (
                "coordination.k8s.io",
                "Lease",
                json!({"holderIdentity": "h", "strategy": "OldestEmulationVersion", "preferredHolder": "p"}),
                json!({"holderIdentity": "h"}),
            ),
            (
                "",
                "PersistentVolumeClaim",
                json!({"dataSourceRef": {"kind": "K", "name": "n", "namespace": "other"}}),
                json!({}),
            ),
        ] {
            let row = Registry::default().kind(group, "v1", kind).unwrap();
            let (asked, stored) = (json!({"spec": asked}), json!({"spec": stored}));
            let mut new = asked.clone();
            (row.strategy.drop_unsupported)(&mut new, None);
            assert_eq!(new, stored, "{kind}");
            let mut new = asked.clone();
            row.prepare_update("", &mut new, &stored);
            (row.strategy.drop_unsupported)(&mut new, Some(&stored));
            assert_eq!(new["spec"], stored["spec"], "{kind}");
            let mut same = asked.clone();
            (row.strategy.drop_unsupported)(&mut same, Some(&asked));
            assert_eq!(same, asked, "{kind}: it was in use before");
        }
    }

    #[test]
    fn sources_of_claims_are_in_both_fields_and_the_old_one_takes_claims_and_snapshots_only() {
        let row = Registry::default().kind("", "v1", "PersistentVolumeClaim").unwrap();
        let custom = json!({"apiGroup": "g.example", "kind": "K", "name": "n"});
        let claim = json!({"kind": "PersistentVolumeClaim", "name": "n"});
        let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "n"});
        let both = |source: &Value| json!({"spec": {"dataSource": source, "dataSourceRef": source}});
        let none = json!({"spec": {}});
        for (asked, stored) in [
            (json!({"dataSource": claim}), both(&claim)),
            (json!({"dataSource": snapshot}), both(&snapshot)),
            (json!({"dataSource": custom}), none.clone()),
            (json!({"dataSource": {}}), none.clone()),
            (json!({"dataSourceRef": custom}), both(&custom)),
            (json!({"dataSource": custom, "dataSourceRef": custom}), both(&custom)),
        ] {
            let mut new = json!({"spec": asked});
            (row.strategy.drop_unsupported)(&mut new, None);
            assert_eq!(new, stored, "{asked}");
        }
        let mut of_old_client = json!({"spec": {"dataSource": custom}});
        (row.strategy.drop_unsupported)(&mut of_old_client, Some(&both(&custom)));
        assert_eq!(of_old_client, both(&custom));
    }

    #[test]
    fn the_status_of_a_pod_has_no_digests_of_volumes() {
        let row = Registry::default().kind("", "v1", "Pod").unwrap();
        let status =
            |mount: Value| json!({"status": {"containerStatuses": [{"name": "c", "volumeMounts": [mount]}]}});
        let asked =
            status(json!({"name": "v", "mountPath": "/v", "volumeStatus": {"image": {"imageRef": "i"}}}));
        let bare = status(json!({"name": "v", "mountPath": "/v"}));
        for (old, stored) in [(&bare, &bare), (&asked, &asked)] {
            let mut new = asked.clone();
            row.prepare_update("status", &mut new, old);
            assert_eq!(new["status"]["containerStatuses"], stored["status"]["containerStatuses"]);
        }
    }
}
