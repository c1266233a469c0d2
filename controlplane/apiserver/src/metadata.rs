//! Metadata handling of the write pipeline, for every kind.

use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::{ApiError, FieldError};
use rand::RngExt;
use serde_json::{Map, Value};

/// Now, as objects carry it.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Refuses a body whose namespace or name is not that of the request.
pub fn check_body(kind: &Kind, namespace: &str, name: &str, object: &Value) -> Result<(), ApiError> {
    let meta = PartialObjectMetadata::of(object).metadata();
    let given = meta.namespace().text();
    if kind.namespaced() && !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let given = meta.name().text();
    if !name.is_empty() && !given.is_empty() && given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// Starts the life of an object: the fields that only the server sets.
pub fn begin(kind: &Kind, namespace: &str, object: &mut Value) {
    let mut root = PartialObjectMetadata::edit(object);
    root.kind().set(&kind.kind);
    root.api_version().set(kind.api_version());
    let mut meta = root.metadata().section();
    meta.resource_version().clear();
    meta.deletion_timestamp().clear();
    meta.deletion_grace_period_seconds().clear();
    meta.self_link().clear();
    meta.generation().clear();
    meta.uid().set(uuid::Uuid::new_v4().to_string());
    meta.creation_timestamp().set(now());
    meta.namespace().set(kind.namespaced().then_some(namespace));
}

/// Draws a name from `generateName` when there is none; says whether it did.
pub fn draw_name(object: &mut Value) -> bool {
    let meta = PartialObjectMetadata::of(object).metadata();
    let drawn = meta.name().text().is_empty() && !meta.generate_name().text().is_empty();
    if drawn {
        redraw_name(object);
    }
    drawn
}

/// Draws another name from `generateName`.
pub fn redraw_name(object: &mut Value) {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rng = rand::rng();
    let base = PartialObjectMetadata::of(object).metadata().generate_name().text();
    let mut name: String = base.chars().take(58).collect();
    name.extend((0..5).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())])));
    PartialObjectMetadata::edit(object).metadata().name().set(name);
}

/// Checks uid and resource version of a change against the stored object; says whether the client named a version. Another
/// uid is a conflict in an object that replaces the stored one, and an invalid change in a patch.
pub fn check_preconditions(
    kind: &Kind,
    new: &Value,
    current: &Object,
    patched: bool,
) -> Result<bool, ApiError> {
    let meta = PartialObjectMetadata::of(new).metadata();
    let uid = meta.uid().text();
    if !uid.is_empty() && uid != current.meta.uid {
        if patched {
            let cause = FieldError::invalid("metadata.uid", &Value::from(uid), "field is immutable");
            return Err(ApiError::invalid(&kind.group, &kind.kind, &current.meta.name, vec![cause]));
        }
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            current.meta.uid
        );
        return Err(ApiError::conflict(&kind.group, &kind.plural, &current.meta.name, why));
    }
    let version = meta.resource_version().text();
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
    let (mut new, old) = (PartialObjectMetadata::edit(new), PartialObjectMetadata::of(old));
    new.kind().set(old.kind());
    new.api_version().set(old.api_version());
    let (mut meta, before) = (new.metadata().section(), old.metadata());
    meta.name().set(before.name());
    meta.namespace().set(before.namespace());
    meta.uid().set(before.uid());
    meta.creation_timestamp().set(before.creation_timestamp());
    // Only a deletion begins one: field rules refuse a time that was not there, and another number of seconds.
    if before.deletion_timestamp().is_set() || !meta.view().deletion_timestamp().is_set() {
        meta.deletion_timestamp().set(before.deletion_timestamp());
    }
    meta.deletion_grace_period_seconds().default(before.deletion_grace_period_seconds());
    meta.generation().set(before.generation());
    meta.resource_version().set(before.resource_version());
    meta.generate_name().set(before.generate_name());
    // `null` says that the client wants none.
    if meta.managed_fields().tree().is_none() {
        meta.managed_fields().set(before.managed_fields());
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
        let next = PartialObjectMetadata::of(old).metadata().generation().or(0) + 1;
        PartialObjectMetadata::edit(new).metadata().generation().set(next);
    }
}

/// Whether the object was being deleted and nothing holds it any more.
pub fn ends_with(kind: &Kind, object: &Value) -> bool {
    let meta = PartialObjectMetadata::of(object).metadata();
    meta.deletion_timestamp().is_set()
        && meta.deletion_grace_period_seconds().or(0) == 0
        && meta.finalizers().is_empty()
        && (kind.strategy.removable)(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_deletion_begins_one() {
        let with = |time: Value, seconds: Value| {
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "uid": "u",
                "deletionTimestamp": time, "deletionGracePeriodSeconds": seconds}})
        };
        let time = "2020-01-01T00:00:00Z";
        let old = with(Value::Null, Value::Null);
        let ending = with(json!(time), json!(30));
        for (mut new, old, want) in [
            (old.clone(), &old, (json!(null), json!(null))),
            // The field rules refuse these.
            (ending.clone(), &old, (json!(time), json!(30))),
            (with(Value::Null, json!(5)), &ending, (json!(time), json!(5))),
            (old.clone(), &ending, (json!(time), json!(30))),
            (with(json!("2019-01-01T00:00:00Z"), Value::Null), &ending, (json!(time), json!(30))),
        ] {
            carry_over(&mut new, old);
            let meta = &new["metadata"];
            assert_eq!((&meta["deletionTimestamp"], &meta["deletionGracePeriodSeconds"]), (&want.0, &want.1));
        }
    }
}
