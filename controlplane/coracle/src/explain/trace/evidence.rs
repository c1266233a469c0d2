//! Servers that record no spans: what objects and their Events say about times.

use super::super::connect::{Connected, encode};
use super::super::resources::{Resource, by_key};
use super::answer::{Trace, trees};
use super::ask::AskError;
use coracle_fields::meta::ObjectMeta;
use coracle_fields::{Json, View};
use serde_json::Value;

/// The most objects and Events that are read of a list.
const MOST: usize = 500;

/// What may belong to an object through its owners, in order of ownership.
const OWNED: [&str; 3] = ["replicasets.apps", "jobs.batch", "pods"];

/// The trace of an object by its state and the Events about it and what it owns.
pub(super) async fn trace(
    connected: &Connected,
    resources: &[Resource],
    resource: &Resource,
    name: &str,
    now: u64,
) -> Result<(Value, Vec<Trace>), AskError> {
    let namespace = if resource.namespaced { connected.namespace.as_str() } else { "" };
    let object = connected.get(&format!("{}/{name}", resource.path(namespace))).await.map_err(missing)?;
    let mut objects = vec![object];
    if resource.namespaced {
        for key in OWNED {
            if let Some(resource) = by_key(resources, key) {
                let listed = list(connected, &format!("{}?limit={MOST}", resource.path(namespace))).await;
                let owned = owned(&objects, listed, resource);
                objects.extend(owned);
            }
        }
    }
    let events = events(connected, &objects).await;
    let tree = coracle_timeline::evidence::of_objects(&objects, &events, now);
    let view = coracle_timeline::view(&tree, None);
    let unreadable =
        |error: serde_json::Error| AskError::Away(format!("cannot describe the object: {error}"));
    let mut answer = serde_json::to_value(&view).map_err(unreadable)?;
    describe(&mut answer, resource, &objects[0]);
    let trees = trees(&answer).map_err(unreadable)?;
    Ok((answer, trees))
}

/// A 404 of an object, whose `Status` has no cause as those of questions about traces have.
fn missing(error: kube::Error) -> AskError {
    match error {
        kube::Error::Api(status) if status.code == 404 => AskError::Missing(status.message),
        other => AskError::from(other),
    }
}

/// The items of a list; none if it cannot be read.
async fn list(connected: &Connected, path: &str) -> Vec<Value> {
    let list = connected.get(path).await.ok();
    match list.and_then(|mut list| list.get_mut("items").map(Value::take)) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn metadata(object: &Value) -> View<'_, ObjectMeta> {
    View::<Json>::from(object).at("metadata").as_type::<ObjectMeta>()
}

/// The objects whose controller is one of `owners`. Items of lists have no kind: it is filled in.
fn owned(owners: &[Value], objects: Vec<Value>, resource: &Resource) -> Vec<Value> {
    let uids: Vec<&str> = owners.iter().map(|owner| metadata(owner).uid().text()).collect();
    let is_owned = |object: &Value| {
        let mut references = metadata(object).owner_references().items();
        references.any(|reference| reference.controller().flag() && uids.contains(&reference.uid().text()))
    };
    let mut owned: Vec<Value> = objects.into_iter().filter(is_owned).collect();
    for fields in owned.iter_mut().filter_map(Value::as_object_mut) {
        fields.entry("kind").or_insert_with(|| Value::from(resource.kind.as_str()));
        fields.entry("apiVersion").or_insert_with(|| Value::from(resource.api_version()));
    }
    owned
}

/// The Events about some objects.
async fn events(connected: &Connected, objects: &[Value]) -> Vec<Value> {
    let uids: Vec<&str> = objects.iter().map(|object| metadata(object).uid().text()).collect();
    let namespace = match objects.first().map(|object| metadata(object).namespace().text()) {
        None | Some("") => "default",
        Some(namespace) => namespace,
    };
    let path = format!("/api/v1/namespaces/{namespace}/events?limit={MOST}");
    // Of one object only its own are asked for.
    let path = match uids[..] {
        [uid] => format!("{path}&fieldSelector={}", encode(&format!("involvedObject.uid={uid}"))),
        _ => path,
    };
    let about = |event: &Value| {
        let uid = event.get("involvedObject").and_then(|object| object.get("uid")).and_then(Value::as_str);
        uid.is_some_and(|uid| uids.contains(&uid))
    };
    list(connected, &path).await.into_iter().filter(about).collect()
}

/// Names the object that was asked for.
fn describe(answer: &mut Value, resource: &Resource, object: &Value) {
    let meta = metadata(object);
    let subject = serde_json::json!({
        "resource": resource.key(),
        "namespace": meta.namespace().text(),
        "name": meta.name().text(),
        "uid": meta.uid().text(),
        "exists": true,
    });
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("object".to_owned(), subject);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_an_object_owns() {
        let owner = [json!({"metadata": {"uid": "1"}})];
        let of = |uid: &str, controller: bool| json!({"metadata": {"name": uid, "ownerReferences": [{"uid": uid, "controller": controller}]}});
        let sets = Resource {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            plural: "replicasets".to_owned(),
            short: Vec::new(),
            namespaced: true,
        };
        let owned = owned(&owner, vec![of("1", true), of("1", false), of("2", true), json!({})], &sets);
        assert_eq!(owned.len(), 1);
        assert_eq!(owned[0].get("kind"), Some(&json!("ReplicaSet")));
        assert_eq!(owned[0].get("apiVersion"), Some(&json!("apps/v1")));
    }
}
