//! Metadata handling of the write pipeline, for every kind.

use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use rand::RngExt;
use serde_json::{Map, Value, json};

/// Now, as objects carry it.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The object's metadata, made if it is missing.
pub fn of(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"].as_object_mut().expect("it was just made an object")
}

/// Refuses a body whose namespace or name is not that of the request.
pub fn check_body(kind: &Kind, namespace: &str, name: &str, object: &Value) -> Result<(), ApiError> {
    let given = text(object, "namespace");
    if kind.namespaced() && !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let given = text(object, "name");
    if !name.is_empty() && !given.is_empty() && given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// Starts the life of an object: the fields that only the server sets.
pub fn begin(kind: &Kind, namespace: &str, object: &mut Value) {
    object["kind"] = json!(kind.kind);
    object["apiVersion"] = json!(kind.api_version());
    let meta = of(object);
    for field in
        ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"]
    {
        meta.remove(field);
    }
    meta.insert("uid".into(), json!(uuid::Uuid::new_v4().to_string()));
    meta.insert("creationTimestamp".into(), json!(now()));
    if kind.namespaced() {
        meta.insert("namespace".into(), json!(namespace));
    } else {
        meta.remove("namespace");
    }
}

/// Draws a name from `generateName` when there is none; says whether it did.
pub fn draw_name(object: &mut Value) -> bool {
    let drawn = text(object, "name").is_empty() && !text(object, "generateName").is_empty();
    if drawn {
        redraw_name(object);
    }
    drawn
}

/// Draws another name from `generateName`.
pub fn redraw_name(object: &mut Value) {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rng = rand::rng();
    let mut name: String = text(object, "generateName").chars().take(58).collect();
    name.extend((0..5).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())])));
    of(object).insert("name".into(), json!(name));
}

/// Checks uid and resource version of a change against the stored object; says whether the client named a version.
pub fn check_preconditions(kind: &Kind, new: &Value, current: &Object) -> Result<bool, ApiError> {
    let uid = text(new, "uid");
    if !uid.is_empty() && uid != current.meta.uid {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            current.meta.uid
        );
        return Err(ApiError::conflict(&kind.group, &kind.plural, &current.meta.name, why));
    }
    let version = text(new, "resourceVersion");
    if version.is_empty() || version == "0" {
        return Ok(false);
    }
    if version != current.revision.to_string() {
        return Err(ApiError::modified(&kind.group, &kind.plural, &current.meta.name));
    }
    Ok(true)
}

/// Takes over what no client may change.
pub fn carry_over(new: &mut Value, old: &Value) {
    new["kind"] = old["kind"].clone();
    new["apiVersion"] = old["apiVersion"].clone();
    let before = old["metadata"].as_object().cloned().unwrap_or_default();
    let meta = of(new);
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "generateName",
    ] {
        match before.get(field) {
            Some(value) => meta.insert(field.into(), value.clone()),
            None => meta.remove(field),
        };
    }
    if !meta.contains_key("managedFields")
        && let Some(managed) = before.get("managedFields")
    {
        meta.insert("managedFields".into(), managed.clone());
    }
}

/// Counts a change of anything but metadata and status.
pub fn count_generation(kind: &Kind, new: &mut Value, old: &Value) {
    if !kind.generation {
        return;
    }
    let ours = |key: &str| !matches!(key, "metadata" | "status" | "kind" | "apiVersion");
    let empty = Map::new();
    let (a, b) = (new.as_object().unwrap_or(&empty), old.as_object().unwrap_or(&empty));
    let changed = a.iter().any(|(k, v)| ours(k) && b.get(k) != Some(v))
        || b.keys().any(|k| ours(k) && !a.contains_key(k));
    if changed {
        let next = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        new["metadata"]["generation"] = next.into();
    }
}

/// Whether the object was being deleted and nothing holds it any more.
pub fn ends_with(kind: &Kind, object: &Value) -> bool {
    let meta = &object["metadata"];
    !meta["deletionTimestamp"].is_null()
        && meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && meta["finalizers"].as_array().is_none_or(Vec::is_empty)
        && (kind.strategy.removable)(object)
}
