//! Namespaces, signing requests, volumes and roles before a write.

use crate::registry::kinds::{keep, keep_all_but_status, keep_status};
use coracle_fields::apiextensions::v1::{CustomResourceDefinition, CustomResourceDefinitionStatus};
use coracle_fields::apiregistration::v1::{APIService, APIServiceStatus};
use coracle_fields::authentication::v1::UserInfo;
use coracle_fields::certificates::v1::CertificateSigningRequest;
use coracle_fields::core::v1::{
    Namespace, NamespaceStatus, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus,
    PersistentVolumeStatus,
};
use coracle_fields::storage::v1::{VolumeAttachment, VolumeAttachmentStatus};
use coracle_fields::{Schema, View, make};
use coracle_validation::meta::CLEANUP;
use serde_json::{Value, json};

/// The time of the request, as objects have it.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A new Namespace is active and holds on until its contents are gone.
pub fn create_namespace(object: &mut Value) {
    let mut namespace = Namespace::edit(object);
    namespace.status().set(make!(part NamespaceStatus { phase: "Active" }));
    if !namespace.view().spec().finalizers().has("kubernetes") {
        namespace.spec().finalizers().push("kubernetes");
    }
}

/// Only `/finalize` changes the finalizers in a Namespace's spec.
pub fn update_namespace(new: &mut Value, old: &Value) {
    keep_status(new, old);
    Namespace::edit(new).spec().section().finalizers().set(Namespace::of(old).spec().finalizers());
}

/// `/finalize`: the status stays.
pub fn finalize_namespace(new: &mut Value, old: &Value) {
    keep_status(new, old);
}

/// A CertificateSigningRequest says who asks, whatever the client wrote there.
pub fn sign_request(object: &mut Value, user: &Value) {
    let (mut request, user) = (CertificateSigningRequest::edit(object), UserInfo::of(user));
    let mut spec = request.spec().section();
    spec.username().set(user.username());
    spec.uid().set(user.uid());
    spec.groups().set(user.groups());
    spec.extra().set(user.extra());
}

/// A CertificateSigningRequest starts unapproved.
pub fn create_signing_request(object: &mut Value) {
    CertificateSigningRequest::edit(object).status().put(json!({}));
}

/// CertificateSigningRequests change only through their subresources.
pub fn update_signing_request(new: &mut Value, old: &Value) {
    keep(new, old, "spec");
    keep(new, old, "status");
}

/// `/status`: approvals stay what they were.
pub fn signing_request_status(new: &mut Value, old: &Value) {
    keep_all_but_status(new, old);
    let before = CertificateSigningRequest::of(old);
    for verdict in ["Approved", "Denied"] {
        let count = |request: View<'_, CertificateSigningRequest>| {
            request.status().conditions().items().filter(|condition| condition.type_() == verdict).count()
        };
        if count(before) != count(CertificateSigningRequest::of(new)) {
            continue;
        }
        let mut kept = before.status().conditions().items().filter(|condition| condition.type_() == verdict);
        CertificateSigningRequest::edit(new).status().section().conditions().each_object(|mut condition| {
            if condition.view().type_() == verdict
                && let Some(kept) = kept.next()
            {
                condition.set(kept);
            }
        });
    }
    stamp_conditions(new, old);
}

/// `/approval`: only conditions change.
pub fn approve_signing_request(new: &mut Value, old: &Value) {
    stamp_conditions(new, old);
    let conditions = CertificateSigningRequest::of(new).status().conditions().to_value();
    keep_all_but_status(new, old);
    keep(new, old, "status");
    if !conditions.is_null() {
        CertificateSigningRequest::edit(new).status().conditions().put(conditions);
    }
}

/// Dates conditions that came without a date.
fn stamp_conditions(new: &mut Value, old: &Value) {
    let now = now();
    let old = CertificateSigningRequest::of(old).status().conditions();
    CertificateSigningRequest::edit(new).status().section().conditions().each_object(|mut condition| {
        condition.last_update_time().default(now.as_str());
        let this = condition.view();
        if this.last_transition_time().is_set() {
            return;
        }
        let before = old.items().find(|other| {
            other.type_() == this.type_().text()
                && other.status() == this.status().text()
                && other.last_transition_time().is_set()
        });
        match before {
            Some(other) => condition.last_transition_time().set(other.last_transition_time()),
            None => condition.last_transition_time().set(now.as_str()),
        }
    });
}

/// A new PersistentVolumeClaim is pending.
pub fn create_claim(object: &mut Value) {
    let status = make!(part PersistentVolumeClaimStatus { phase: "Pending" });
    PersistentVolumeClaim::edit(object).status().set(status);
}

/// A new PersistentVolume is pending, from now on.
pub fn create_volume(object: &mut Value) {
    let status = make!(part PersistentVolumeStatus { phase: "Pending", last_phase_transition_time: now() });
    PersistentVolume::edit(object).status().set(status);
}

/// `/status`: a new phase has the time of the request unless the client gives another, and an old phase keeps its time.
pub fn volume_status(new: &mut Value, old: &Value) {
    keep_all_but_status(new, old);
    let (before, after) = (PersistentVolume::of(old).status(), PersistentVolume::of(new).status());
    let (last, given) = (before.last_phase_transition_time(), after.last_phase_transition_time());
    if before.phase().text() != after.phase().text() {
        if !given.is_set() || given.text() == last.text() {
            PersistentVolume::edit(new).status().last_phase_transition_time().set(now());
        }
    } else if !given.is_set() && last.is_set() {
        PersistentVolume::edit(new).status().last_phase_transition_time().set(last);
    }
}

/// A new VolumeAttachment is not attached.
pub fn create_attachment(object: &mut Value) {
    VolumeAttachment::edit(object).status().set(make!(part VolumeAttachmentStatus { attached: false }));
}

/// The version of a definition that objects are stored in.
fn storage_version(definition: View<'_, CustomResourceDefinition>) -> Option<&str> {
    let mut versions = definition.spec().versions().items();
    versions.find(|version| version.storage().flag()).map(|version| version.name().text())
}

/// A new CustomResourceDefinition has stored nothing but its storage version.
pub fn create_definition(object: &mut Value) {
    let stored: Vec<&str> = storage_version(CustomResourceDefinition::of(object)).into_iter().collect();
    let mut status = make!(part CustomResourceDefinitionStatus {
        accepted_names: { plural: "", kind: "" },
        stored_versions: stored,
    });
    status.edit().conditions().null();
    let mut definition = CustomResourceDefinition::edit(object);
    definition.status().set(status);
    // Its objects go before it does.
    if !definition.view().metadata().finalizers().has(CLEANUP) {
        definition.metadata().finalizers().push(CLEANUP);
    }
}

/// An APIService of this server itself is available from the first moment.
pub fn create_api_service(object: &mut Value) {
    let mut service = APIService::edit(object);
    service.status().put(json!({}));
    if !service.view().spec().service().is_set() {
        let status = make!(part APIServiceStatus {
            conditions: [{
                type_: "Available",
                status: "True",
                last_transition_time: now(),
                reason: "Local",
                message: "Local APIServices are always available",
            }],
        });
        service.status().set(status);
    }
}

/// Every version that ever stored objects stays in `storedVersions`.
pub fn update_definition(new: &mut Value, old: &Value) {
    keep_status(new, old);
    let definition = CustomResourceDefinition::of(new);
    let Some(stored) = storage_version(definition).map(str::to_owned) else { return };
    if !definition.status().stored_versions().has(&stored) {
        CustomResourceDefinition::edit(new).status().stored_versions().push(stored);
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
    fn volumes_have_the_time_of_their_phase() {
        let mut new =
            json!({"status": {"phase": "Bound", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}});
        create_volume(&mut new);
        assert_eq!(new["status"]["phase"], "Pending");
        let created = new["status"]["lastPhaseTransitionTime"].as_str().expect("a time");
        assert!(created > "2020-01-01T00:00:00Z", "{created}");

        let (first, second) = ("2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z");
        let old = json!({"spec": {"a": 1}, "status": {"phase": "Pending", "lastPhaseTransitionTime": first}});
        let update = |status: Value| {
            let mut new = json!({"spec": {"a": 2}, "status": status});
            volume_status(&mut new, &old);
            assert_eq!(new["spec"], old["spec"]);
            new["status"]["lastPhaseTransitionTime"].as_str().unwrap_or_default().to_owned()
        };
        assert_eq!(update(json!({"phase": "Pending"})), first);
        assert_eq!(update(json!({"phase": "Pending", "lastPhaseTransitionTime": second})), second);
        assert_eq!(update(json!({"phase": "Bound", "lastPhaseTransitionTime": second})), second);
        assert!(update(json!({"phase": "Bound", "lastPhaseTransitionTime": first})).as_str() > second);
        assert!(update(json!({"phase": "Bound"})).as_str() > second);
        let mut untimed = json!({"status": {"phase": "Bound"}});
        volume_status(&mut untimed, &json!({"status": {"phase": "Bound"}}));
        assert_eq!(untimed["status"], json!({"phase": "Bound"}));
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
