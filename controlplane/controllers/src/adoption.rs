//! Adoption and release of objects by controller reference. An object of another controller is never adopted: the API server
//! takes one controller reference per object, so that only one of two controllers succeeds.

use coracle_fields::meta::OwnerReference;
use coracle_fields::{Made, make};
use coracle_informer::informer::Name;
use coracle_informer::pod::controller_of;
use coracle_informer::resource::Resource;
use coracle_informer::selector::Selector;
use coracle_kinds::object::{Meta, Object};
use coracle_proto::status::ApiError;
use serde_json::{Value, json};
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

/// The strategic merge patch that adds a reference, and a finalizer.
fn adopting(uid: &str, reference: Made<OwnerReference>, finalizer: Option<&str>) -> Value {
    let references = [reference.into_value()];
    match finalizer {
        None => json!({"metadata": {"uid": uid, "ownerReferences": references}}),
        Some(name) => json!({"metadata": {"uid": uid, "ownerReferences": references, "finalizers": [name]}}),
    }
}

/// The strategic merge patch that removes the reference to an owner, and a finalizer.
fn releasing(uid: &str, owner: &str, finalizer: Option<&str>) -> Value {
    let references = json!([{"$patch": "delete", "uid": owner}]);
    match finalizer {
        None => json!({"metadata": {"uid": uid, "ownerReferences": references}}),
        Some(name) => json!({"metadata": {"uid": uid, "ownerReferences": references,
            "$deleteFromPrimitiveList/finalizers": [name]}}),
    }
}

/// Adds a reference to an object, and a finalizer. Fails when the object has another controller by now.
pub async fn adopt(
    resource: &Resource,
    object: &Object,
    reference: Made<OwnerReference>,
    finalizer: Option<&str>,
) -> Result<Arc<Object>, ApiError> {
    let change = adopting(&object.meta.uid, reference, finalizer);
    resource.merge_lists(&Name::of(object), "", change).await
}

/// Removes the reference to the owner with a uid from an object, and a finalizer. An object that is gone is no error.
pub async fn release(
    resource: &Resource,
    object: &Object,
    owner: &str,
    finalizer: Option<&str>,
) -> Result<(), ApiError> {
    let change = releasing(&object.meta.uid, owner, finalizer);
    match resource.merge_lists(&Name::of(object), "", change).await {
        // 422: another object has the name by now.
        Err(error) if !error.is_not_found() && error.code != 422 => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_cli::supervise::Supervisor;
    use coracle_informer::identity::Identity;
    use coracle_informer::setup::Setup;
    use coracle_kinds::object::testing::object;
    use coracle_testing::Cluster;

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
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_controller_adopts_and_releases_only_what_is_its_own() {
        let cluster = Cluster::bare().await;
        let client = cluster.client.clone();
        let factory = move |_: Identity| client.clone();
        let mut setup = Setup::new(&factory, Arc::default(), Supervisor::default());
        let maps = setup.resource("test", "", "configmaps");
        let map = json!({"metadata": {"name": "m", "namespace": "default", "finalizers": ["x.io/mine"]}});
        let map = cluster.create("", "configmaps", "default", map).await;
        let owner = |uid: &str| {
            let owner = object(json!({"metadata": {"name": "web", "namespace": "default", "uid": uid}}));
            reference("apps/v1", "ReplicaSet", &owner.meta)
        };
        let finalizer = Some(JOB_TRACKING);
        for _ in 0..2 {
            let adopted = adopt(&maps, &map, owner("u1"), finalizer).await.unwrap().value();
            assert_eq!(adopted["metadata"]["ownerReferences"], json!([owner("u1").into_value()]));
            let mut finalizers = adopted["metadata"]["finalizers"].as_array().unwrap().clone();
            finalizers.sort_by_key(Value::to_string);
            assert_eq!(json!(finalizers), json!([JOB_TRACKING, "x.io/mine"]));
        }
        let refused = adopt(&maps, &map, owner("u2"), None).await.unwrap_err();
        assert!(refused.message.contains("Only one reference can have Controller set to true"), "{refused}");

        let other = object(json!({"metadata": {"name": "m", "namespace": "default", "uid": "other"}}));
        release(&maps, &other, "u1", finalizer).await.unwrap();
        release(&maps, &map, "u2", None).await.unwrap();
        let name = Name::of(&map);
        assert_eq!(cluster.get("configmaps", &name)["metadata"]["ownerReferences"][0]["uid"], "u1");
        release(&maps, &map, "u1", finalizer).await.unwrap();
        let left = cluster.get("configmaps", &name);
        assert!(left["metadata"]["ownerReferences"][0].is_null(), "{left}");
        assert_eq!(left["metadata"]["finalizers"], json!(["x.io/mine"]));
    }
}
