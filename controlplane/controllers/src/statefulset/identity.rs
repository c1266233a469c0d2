//! What a pod of a StatefulSet is: its name, its labels, its claims. No clock, no tasks.

use super::plan::{REVISION_LABEL, Retention, Spec};
use coracle_kinds::object::Object;
use serde_json::{Value, json};

/// The pod of an ordinal, of a revision's template.
pub fn pod(
    set: &Object,
    spec: &Spec,
    template: &Value,
    revision: &str,
    ordinal: i32,
    reference: Value,
) -> Value {
    let name = format!("{}-{ordinal}", set.meta.name);
    let meta = &template["metadata"];
    let mut labels = meta["labels"].clone();
    labels[REVISION_LABEL] = json!(revision);
    labels["statefulset.kubernetes.io/pod-name"] = json!(name);
    labels["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
    let mut body = template["spec"].clone();
    body["hostname"] = json!(name);
    body["subdomain"] = json!(spec.service_name);
    let claims: Vec<&str> = spec.volume_claim_templates.iter().filter_map(claim_template_name).collect();
    let mut volumes: Vec<Value> = body["volumes"].as_array().cloned().unwrap_or_default();
    volumes.retain(|v| !v["name"].as_str().is_some_and(|n| claims.contains(&n)));
    for claim in &claims {
        let name = claim_name(claim, &set.meta.name, ordinal);
        volumes.push(json!({"name": claim, "persistentVolumeClaim": {"claimName": name, "readOnly": false}}));
    }
    body["volumes"] = json!(volumes);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": set.meta.namespace, "labels": labels, "annotations": meta["annotations"],
            "finalizers": meta["finalizers"], "ownerReferences": [reference],
        },
        "spec": body,
    })
}

fn claim_template_name(template: &Value) -> Option<&str> {
    template["metadata"]["name"].as_str()
}

/// The name of a pod's claim.
pub fn claim_name(template: &str, set: &str, ordinal: i32) -> String {
    format!("{template}-{set}-{ordinal}")
}

/// The claims of an ordinal.
pub fn claims(set: &Object, spec: &Spec, selector: &Value, ordinal: i32) -> Vec<Value> {
    let each = spec.volume_claim_templates.iter().filter_map(|template| {
        let name = claim_name(claim_template_name(template)?, &set.meta.name, ordinal);
        let mut labels = template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            labels.insert(key.clone(), value.clone());
        }
        Some(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": set.meta.namespace, "labels": labels,
                "annotations": template["metadata"]["annotations"]},
            "spec": template["spec"],
        }))
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
    let value = claim.value();
    let before: Vec<Value> = value["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let mut after = before.clone();
    let reference = |api_version: &str, kind: &str, o: &Object| {
        json!({"apiVersion": api_version, "kind": kind, "name": o.meta.name, "uid": o.meta.uid,
            "controller": true, "blockOwnerDeletion": true})
    };
    let mut want = |wanted: bool, uid: &str, reference: Value| {
        let there = after.iter().any(|r| r["uid"] == uid);
        if wanted && !there {
            after.push(reference);
        } else if !wanted && there {
            after.retain(|r| r["uid"] != uid);
        }
    };
    want(by_set, &set.meta.uid, reference("apps/v1", "StatefulSet", set));
    if let Some(pod) = pod {
        want(by_pod, &pod.meta.uid, reference("v1", "Pod", pod));
    }
    (before != after).then_some(after)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;

    #[test]
    fn a_pod_has_its_name_and_its_claims() {
        let set = object(json!({"metadata": {"name": "db", "namespace": "d", "uid": "s"}}));
        let spec: Spec = serde_json::from_value(json!({"serviceName": "db", "volumeClaimTemplates": [
            {"metadata": {"name": "data", "labels": {"x": "1"}}, "spec": {"storageClassName": "local"}}]}))
        .unwrap();
        let template = json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]}});
        let pod = pod(&set, &spec, &template, "db-1234", 2, json!({}));
        assert_eq!(pod["metadata"]["name"], "db-2");
        assert_eq!(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "2");
        assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("db-2"), &json!("db")));
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        assert_eq!(volumes.len(), 2);
        assert_eq!(volumes[1]["persistentVolumeClaim"]["claimName"], "data-db-2");
        let claims = claims(&set, &spec, &json!({"matchLabels": {"app": "db"}}), 2);
        assert_eq!(claims[0]["metadata"]["labels"], json!({"x": "1", "app": "db"}));
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
