//! Namespaces, signing requests, volumes and roles before a write.

use crate::registry::kinds::{keep, keep_all_but_status, keep_status};
use coracle_validation::meta::CLEANUP;
use coracle_validation::tree::{Grow, Tree};
use serde_json::{Value, json};

/// A new Namespace is active and holds on until its contents are gone.
pub fn create_namespace(object: &mut Value) {
    object.put("status", json!({"phase": "Active"}));
    let spec = object.section("spec");
    let there = spec.items("finalizers").iter().any(|name| name == "kubernetes");
    if !there {
        let mut finalizers = spec.items("finalizers").to_vec();
        finalizers.push(json!("kubernetes"));
        spec.put("finalizers", finalizers);
    }
}

/// Only `/finalize` changes the finalizers in a Namespace's spec.
pub fn update_namespace(new: &mut Value, old: &Value) {
    keep_status(new, old);
    keep(new.section("spec"), old.at("spec"), "finalizers");
}

/// `/finalize`: the status stays.
pub fn finalize_namespace(new: &mut Value, old: &Value) {
    keep_status(new, old);
}

/// A CertificateSigningRequest says who asks, whatever the client wrote there.
pub fn sign_request(object: &mut Value, user: &Value) {
    let spec = object.section("spec");
    for field in ["username", "uid", "groups", "extra"] {
        match user.get(field) {
            Some(value) => spec.put(field, value.clone()),
            None => drop(spec.drop_key(field)),
        }
    }
}

/// A CertificateSigningRequest starts unapproved.
pub fn create_signing_request(object: &mut Value) {
    object.put("status", json!({}));
}

/// CertificateSigningRequests change only through their subresources.
pub fn update_signing_request(new: &mut Value, old: &Value) {
    keep(new, old, "spec");
    keep(new, old, "status");
}

/// `/status`: approvals stay what they were.
pub fn signing_request_status(new: &mut Value, old: &Value) {
    keep_all_but_status(new, old);
    for verdict in ["Approved", "Denied"] {
        let of = |object: &Value| -> Vec<Value> {
            let conditions = object.items("status.conditions").iter();
            conditions.filter(|condition| condition.text("type") == verdict).cloned().collect()
        };
        let (before, after) = (of(old), of(new));
        if before.len() != after.len() {
            continue;
        }
        let mut before = before.into_iter();
        new.section("status").each("conditions", |condition| {
            if condition.text("type") == verdict
                && let Some(kept) = before.next()
            {
                *condition = kept;
            }
        });
    }
    stamp_conditions(new, old);
}

/// `/approval`: only conditions change.
pub fn approve_signing_request(new: &mut Value, old: &Value) {
    stamp_conditions(new, old);
    let conditions = new.at("status.conditions").clone();
    keep_all_but_status(new, old);
    keep(new, old, "status");
    if !conditions.is_null() {
        new.section("status").put("conditions", conditions);
    }
}

/// Dates conditions that came without a date.
fn stamp_conditions(new: &mut Value, old: &Value) {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    new.section("status").each("conditions", |condition| {
        condition.default("lastUpdateTime", now.clone());
        if condition.has("lastTransitionTime") {
            return;
        }
        let before = old.items("status.conditions").iter().find(|other| {
            other.text("type") == condition.text("type")
                && other.text("status") == condition.text("status")
                && other.has("lastTransitionTime")
        });
        let time = before.map_or_else(|| json!(now), |other| other.at("lastTransitionTime").clone());
        condition.put("lastTransitionTime", time);
    });
}

/// A new PersistentVolume is pending.
pub fn create_volume(object: &mut Value) {
    object.put("status", json!({"phase": "Pending"}));
}

/// A new VolumeAttachment is not attached.
pub fn create_attachment(object: &mut Value) {
    object.put("status", json!({"attached": false}));
}

/// A new CustomResourceDefinition has stored nothing but its storage version.
pub fn create_definition(object: &mut Value) {
    let stored = object.items("spec.versions").iter().find(|version| version.flag("storage"));
    let versions: Vec<Value> = stored.map(|version| version.at("name").clone()).into_iter().collect();
    object.put(
        "status",
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": versions}),
    );
    // Its objects go before it does.
    let mut finalizers = object.items("metadata.finalizers").to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
        finalizers.push(json!(CLEANUP));
        object["metadata"]["finalizers"] = Value::Array(finalizers);
    }
}

/// An APIService of this server itself is available from the first moment.
pub fn create_api_service(object: &mut Value) {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let local = !object.at("spec.service").is_object();
    object.put("status", json!({}));
    if local {
        let condition = json!({"type": "Available", "status": "True", "lastTransitionTime": now,
            "reason": "Local", "message": "Local APIServices are always available"});
        object.put("status", json!({"conditions": [condition]}));
    }
}

/// Every version that ever stored objects stays in `storedVersions`.
pub fn update_definition(new: &mut Value, old: &Value) {
    keep_status(new, old);
    let stored = new.items("spec.versions").iter().find(|version| version.flag("storage"));
    let Some(stored) = stored.map(|version| version.at("name").clone()) else { return };
    let mut versions = new.items("status.storedVersions").to_vec();
    if !versions.contains(&stored) {
        versions.push(stored);
        new.section("status").put("storedVersions", versions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_keep_their_finalizer() {
        let mut new = json!({"metadata": {"name": "a"}});
        create_namespace(&mut new);
        assert_eq!(new["spec"]["finalizers"], json!(["kubernetes"]));
        let old = new.clone();
        let mut changed = json!({"metadata": {"name": "a"}, "spec": {"finalizers": []}});
        update_namespace(&mut changed, &old);
        assert_eq!(changed["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(changed["status"]["phase"], "Active");
    }

    #[test]
    fn local_services_are_available() {
        let mut local = json!({"spec": {"group": "apps", "version": "v1"}, "status": {"conditions": []}});
        create_api_service(&mut local);
        assert_eq!(local["status"]["conditions"][0]["reason"], "Local");
        let mut remote = json!({"spec": {"service": {"name": "s"}}, "status": {"conditions": [{}]}});
        create_api_service(&mut remote);
        assert_eq!(remote["status"], json!({}));
    }

    #[test]
    fn approval_changes_only_conditions() {
        let mut asked = json!({"spec": {"request": "x", "username": "somebody", "uid": "1"}});
        sign_request(&mut asked, &json!({"username": "me", "groups": ["g"]}));
        assert_eq!(asked["spec"], json!({"request": "x", "username": "me", "groups": ["g"]}));
        let old = json!({"spec": {"request": "x"}, "status": {"certificate": "c"}});
        let mut new = json!({"spec": {"request": "y"}, "status": {"conditions": [{"type": "Approved", "status": "True"}]}});
        approve_signing_request(&mut new, &old);
        assert_eq!(new["spec"]["request"], "x");
        assert_eq!(new["status"]["certificate"], "c");
        assert!(new["status"]["conditions"][0]["lastUpdateTime"].is_string());
        let mut status = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
        signing_request_status(&mut status, &new);
        assert_eq!(status["status"]["conditions"][0]["type"], "Failed");
        assert_eq!(status["spec"]["request"], "x");
    }
}
