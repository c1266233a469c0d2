//! Adoption and release of objects by controller reference. An object of another controller is never adopted. Adoption is a
//! compare-and-swap, so that only one of two controllers succeeds.

use coracle_fields::meta::{OwnerReference, PartialObjectMetadata};
use coracle_fields::{Made, Schema as _, make};
use coracle_informer::pod::controller_of;
use coracle_informer::selector::Selector;
use coracle_kinds::object::{Meta, Object};
use serde_json::Value;
use std::sync::Arc;

/// The finalizer that keeps the pod of a Job until it is counted.
pub const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// What a controller does with an object it may own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adoption {
    /// It is mine and matches.
    Keep,
    /// It has no controller and matches: add my reference.
    Adopt,
    /// It is mine and matches no more: remove my reference.
    Release,
    /// Not my business.
    Ignore,
}

/// Decides on one object. An owner that is being deleted neither adopts nor releases.
pub fn plan_adoption(owner: &Meta, selector: &Selector, object: &Object) -> Adoption {
    let matches = selector.matches(&object.meta.labels);
    match controller_of(object) {
        Some(controller) if controller.uid != owner.uid => Adoption::Ignore,
        Some(_) if matches => Adoption::Keep,
        Some(_) if owner.deletion_timestamp.is_some() => Adoption::Ignore,
        Some(_) => Adoption::Release,
        None if !matches || owner.deletion_timestamp.is_some() => Adoption::Ignore,
        None if object.meta.deletion_timestamp.is_some() || object.meta.namespace != owner.namespace => {
            Adoption::Ignore
        }
        None => Adoption::Adopt,
    }
}

/// The reference with which a controller marks what it owns.
pub fn reference(api_version: &str, kind: &str, owner: &Meta) -> Made<OwnerReference> {
    make!(part OwnerReference {
        api_version,
        kind,
        name: &owner.name,
        uid: &owner.uid,
        controller: true,
        block_owner_deletion: true,
    })
}

/// The object with the reference added; it keeps its `resourceVersion`, so that the write fails if anyone was faster.
pub fn adopted(object: &Arc<Object>, reference: Made<OwnerReference>) -> Value {
    let mut value = object.value();
    let mut root = PartialObjectMetadata::edit(&mut value);
    let mut metadata = root.metadata();
    metadata.owner_references().retain(|r| r.uid() != reference.view().uid().text());
    metadata.owner_references().push(reference);
    value
}

/// The object without the references to an owner, and without the tracking finalizer of a Job.
pub fn released(object: &Arc<Object>, uid: &str) -> Value {
    let mut value = object.value();
    let mut root = PartialObjectMetadata::edit(&mut value);
    let mut metadata = root.metadata();
    metadata.finalizers().retain(|finalizer| finalizer != JOB_TRACKING);
    metadata.owner_references().retain(|r| r.uid() != uid);
    value
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    #[test]
    fn nothing_gets_a_second_controller() {
        let owner = object(json!({"metadata": {"name": "web", "namespace": "d", "uid": "u1"}}));
        let dying = object(
            json!({"metadata": {"name": "web", "namespace": "d", "uid": "u1", "deletionTimestamp": "x"}}),
        );
        let selector = Selector::of([("app".to_owned(), "web".to_owned())].into());
        let pod = |labels: Value, controller: Option<&str>, dying: bool| {
            let refs: Vec<Value> = controller
                .iter()
                .map(|u| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": u, "controller": true}))
                .collect();
            object(json!({"metadata": {"name": "p", "namespace": "d", "uid": "p", "labels": labels,
                "ownerReferences": refs, "deletionTimestamp": dying.then_some("x")}}))
        };
        let web = || json!({"app": "web"});
        for (owner, pod, want) in [
            (&owner, pod(web(), None, false), Adoption::Adopt),
            (&owner, pod(web(), Some("u1"), false), Adoption::Keep),
            (&owner, pod(web(), Some("u2"), false), Adoption::Ignore),
            (&owner, pod(json!({}), Some("u1"), false), Adoption::Release),
            (&owner, pod(json!({}), None, false), Adoption::Ignore),
            (&owner, pod(web(), None, true), Adoption::Ignore),
            (&dying, pod(web(), None, false), Adoption::Ignore),
            (&dying, pod(json!({}), Some("u1"), false), Adoption::Ignore),
        ] {
            assert_eq!(plan_adoption(&owner.meta, &selector, &pod), want);
        }
        let taken = adopted(&pod(web(), None, false), reference("apps/v1", "ReplicaSet", &owner.meta));
        assert_eq!(taken["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
        let mut taken = taken;
        taken["metadata"]["finalizers"] = json!([JOB_TRACKING, "x.io/mine"]);
        let left = released(&object(taken), "u1");
        assert!(left["metadata"]["ownerReferences"].as_array().unwrap().is_empty());
        assert_eq!(left["metadata"]["finalizers"], json!(["x.io/mine"]));
    }
}
