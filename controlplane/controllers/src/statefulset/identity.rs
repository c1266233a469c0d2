//! What a pod of a StatefulSet is: its name, its labels, its claims. No clock, no tasks.

use super::plan::{REVISION_LABEL, Retention, Spec};
use crate::adoption;
use coracle_fields::core::v1;
use coracle_fields::meta::{LabelSelector, OwnerReference};
use coracle_fields::{Made, Schema as _, View, make};
use coracle_kinds::object::Object;
use serde_json::Value;

/// The pod of an ordinal, of a revision's template.
pub fn pod(
    set: &Object,
    spec: &Spec,
    template: View<'_, v1::PodTemplateSpec>,
    revision: &str,
    ordinal: i32,
    reference: Made<OwnerReference>,
) -> Made<v1::Pod> {
    let name = format!("{}-{ordinal}", set.meta.name);
    let meta = template.metadata();
    let mut pod = make!(v1::Pod {
        metadata: {
            name: &name,
            namespace: &set.meta.namespace,
            labels: meta.labels(),
            annotations: meta.annotations(),
            finalizers: meta.finalizers(),
            owner_references: [reference],
        },
        spec: template.spec(),
    });
    let mut root = pod.edit();
    let mut metadata = root.metadata();
    metadata.labels().insert(REVISION_LABEL, revision);
    metadata.labels().insert("statefulset.kubernetes.io/pod-name", &name);
    metadata.labels().insert("apps.kubernetes.io/pod-index", ordinal.to_string());
    let mut body = root.spec();
    body.hostname().set(&name);
    body.subdomain().set(&spec.service_name);
    let claims: Vec<&str> = spec.volume_claim_templates.iter().filter_map(claim_template_name).collect();
    let mut volumes = body.view().volumes().to_values();
    volumes.retain(|volume| !v1::Volume::of(volume).name().get().is_some_and(|n| claims.contains(&n)));
    for claim in claims {
        let volume = make!(part v1::Volume {
            name: claim,
            persistent_volume_claim: {
                claim_name: claim_name(claim, &set.meta.name, ordinal),
                read_only: false,
            },
        });
        volumes.push(volume.into_value());
    }
    body.volumes().put(Value::Array(volumes));
    pod
}

/// The name of a template of claims.
pub fn claim_template_name(template: &Value) -> Option<&str> {
    v1::PersistentVolumeClaim::of(template).metadata().name().get()
}

/// The name of a pod's claim.
pub fn claim_name(template: &str, set: &str, ordinal: i32) -> String {
    format!("{template}-{set}-{ordinal}")
}

/// Whether a claim has the name of one of a set's claims.
pub fn names_claim_of(set: &str, claim: &str) -> bool {
    let digits = claim.trim_end_matches(|c: char| c.is_ascii_digit());
    let before = digits.strip_suffix('-').and_then(|rest| rest.strip_suffix(set));
    digits.len() < claim.len() && before.is_some_and(|template| template.len() > 1 && template.ends_with('-'))
}

/// Whether a claim is to go with a pod. A pod that is created next has another uid, so the claim goes before.
pub fn belongs_to_pod(claim: &Object, pod: &str) -> bool {
    claim.meta.owner_references.iter().any(|o| o.api_version == "v1" && o.kind == "Pod" && o.name == pod)
}

/// The claims of an ordinal.
pub fn claims(
    set: &Object,
    spec: &Spec,
    selector: View<'_, LabelSelector>,
    ordinal: i32,
) -> Vec<Made<v1::PersistentVolumeClaim>> {
    let each = spec.volume_claim_templates.iter().filter_map(|template| {
        let name = claim_name(claim_template_name(template)?, &set.meta.name, ordinal);
        let template = v1::PersistentVolumeClaim::of(template);
        let mut labels = template.metadata().labels().to_entries();
        labels.extend(selector.match_labels().to_entries());
        let mut claim = make!(v1::PersistentVolumeClaim {
            metadata: {
                name,
                namespace: &set.meta.namespace,
                annotations: template.metadata().annotations(),
            },
            spec: template.spec(),
        });
        claim.edit().metadata().labels().put(Value::Object(labels));
        Some(claim)
    });
    each.collect()
}

/// The owner references a claim should have, when they differ: the set's if it goes with the set, the pod's if it goes
/// with a pod that a smaller set gives up.
pub fn claim_owners(
    policy: &Retention,
    claim: &Object,
    set: &Object,
    pod: Option<&Object>,
    condemned: bool,
) -> Option<Vec<Value>> {
    let (deleted, scaled) = (policy.when_deleted == "Delete", policy.when_scaled == "Delete");
    let by_pod = scaled && condemned;
    let by_set = deleted && !by_pod;
    let doc = claim.doc();
    let before = doc.view::<v1::PersistentVolumeClaim>().metadata().owner_references().to_values();
    let mut after = before.clone();
    let mut want = |wanted: bool, uid: &str, reference: Made<OwnerReference>| {
        let there = after.iter().any(|r| OwnerReference::of(r).uid() == uid);
        if wanted && !there {
            after.push(reference.into_value());
        } else if !wanted && there {
            after.retain(|r| OwnerReference::of(r).uid() != uid);
        }
    };
    want(by_set, &set.meta.uid, adoption::reference("apps/v1", "StatefulSet", &set.meta));
    if let Some(pod) = pod {
        want(by_pod, &pod.meta.uid, adoption::reference("v1", "Pod", &pod.meta));
    }
    (before != after).then_some(after)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    #[test]
    fn a_pod_has_its_name_and_its_claims() {
        let set = object(json!({"metadata": {"name": "db", "namespace": "d", "uid": "s"}}));
        let spec: Spec = serde_json::from_value(json!({"serviceName": "db", "volumeClaimTemplates": [
            {"metadata": {"name": "data", "labels": {"x": "1"}}, "spec": {"storageClassName": "local"}}]}))
        .unwrap();
        let template = json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]}});
        let template = v1::PodTemplateSpec::of(&template);
        let pod = pod(&set, &spec, template, "db-1234", 2, Made::default()).into_value();
        assert_eq!(pod["metadata"]["name"], "db-2");
        assert_eq!(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "2");
        assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("db-2"), &json!("db")));
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        assert_eq!(volumes.len(), 2);
        assert_eq!(volumes[1]["persistentVolumeClaim"]["claimName"], "data-db-2");
        let selector = json!({"matchLabels": {"app": "db"}});
        let claims = claims(&set, &spec, LabelSelector::of(&selector), 2);
        assert_eq!(claims[0].view().metadata().labels().to_value(), json!({"x": "1", "app": "db"}));
    }

    #[test]
    fn claims_are_known_by_name_and_owner() {
        for (claim, is) in [
            ("data-db-0", true),
            ("data-db-12", true),
            ("my-data-db-1", true),
            ("data-db-", false),
            ("data-db", false),
            ("db-0", false),
            ("-db-0", false),
            ("data-xdb-0", false),
        ] {
            assert_eq!(names_claim_of("db", claim), is, "{claim}");
        }
        let owner = |kind: &str| {
            object(json!({"metadata": {"name": "data-db-1", "ownerReferences": [
                {"apiVersion": "v1", "kind": kind, "name": "db-1", "uid": "old"}]}}))
        };
        assert!(belongs_to_pod(&owner("Pod"), "db-1"));
        assert!(!belongs_to_pod(&owner("Pod"), "db-2") && !belongs_to_pod(&owner("Node"), "db-1"));
    }

    #[test]
    fn retention_decides_who_owns_claims() {
        let set = object(json!({"metadata": {"name": "db", "uid": "s"}}));
        let pod = object(json!({"metadata": {"name": "db-1", "uid": "p"}}));
        let claim = object(json!({"metadata": {"name": "data-db-1", "uid": "c"}}));
        let owners = |deleted: &str, scaled: &str, condemned| {
            let policy = Retention { when_deleted: deleted.into(), when_scaled: scaled.into() };
            let refs = claim_owners(&policy, &claim, &set, Some(&pod), condemned).unwrap_or_default();
            refs.iter().map(|r| r["uid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert!(owners("Retain", "Retain", true).is_empty());
        assert_eq!(owners("Delete", "Retain", true), ["s"]);
        assert!(owners("Retain", "Delete", false).is_empty());
        assert_eq!(owners("Retain", "Delete", true), ["p"]);
        assert_eq!(owners("Delete", "Delete", true), ["p"]);
        assert_eq!(owners("Delete", "Delete", false), ["s"]);
    }
}
