//! Reads objects by their type again, after a patch or a webhook has changed them, and before they are stored.

use super::error::{KindMismatch, bad_patch, strict_error};
use super::expected::{Expected, set_kind};
use coracle_client::options::FieldValidation;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::registry::equivalent::Named;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::decode::{self, Meta, Read, Tree};
use coracle_proto::schema::{self, Type};
use coracle_proto::status::{ApiError, FieldError};
use serde_json::Value;

/// Reads a patched object by its type again: drops fields that the kind does not have, refuses values of a wrong type.
/// Returns sentences for the `Warning` header.
pub fn prune(kind: &Kind, object: &mut Value, validation: FieldValidation) -> Result<Vec<String>, ApiError> {
    if kind.custom.is_some() {
        let dropped = unknown(kind, object, validation);
        if validation == FieldValidation::Strict && !dropped.is_empty() {
            return Err(bad_patch(object, &strict_error(&dropped)));
        }
        return Ok(dropped);
    }
    let Some(of) = type_of(kind) else { return Ok(Vec::new()) };
    let mut read = read_patched(of, object)?;
    // In the order of their names: that in which patched objects are written in Kubernetes.
    read.strict.sort();
    if validation == FieldValidation::Strict && !read.strict.is_empty() {
        return Err(bad_patch(object, &strict_error(&read.strict)));
    }
    *object = read.value;
    Ok(if validation == FieldValidation::Warn { read.strict } else { Vec::new() })
}

/// The same for a patched value of a type in the schema, such as a Scale; what the type does not have is dropped silently.
pub fn patched(name: &str, object: Value) -> Result<Value, ApiError> {
    match schema::type_of(name) {
        Some(of) => Ok(read_patched(of, &object)?.value),
        None => Ok(object),
    }
}

fn read_patched(of: &Type, object: &Value) -> Result<Read, ApiError> {
    decode::read(of, Tree::from(object.clone())).map_err(|e| bad_patch(object, &e.to_string()))
}

/// Reads what a webhook made of an object of a built-in kind by its type again: drops fields that the kind does not have. As
/// upstream, an object that cannot be read is an internal error whatever the failure policy is: what the client sent could be.
pub fn changed(name: &Named, object: Value) -> Result<Value, ApiError> {
    let Some(of) = schema::kind_type(&name.group, &name.version, &name.kind) else { return Ok(object) };
    let unfit = |why: &dyn std::fmt::Display| {
        ApiError::internal(format!("{} changed by a webhook: {why}", name.kind))
    };
    let tree = Tree::from(object);
    let mut meta = Meta::of(&tree).map_err(|why| unfit(&why))?;
    if meta.kind.is_empty() {
        meta.kind.clone_from(&name.kind);
    }
    if meta.api_version.is_empty() {
        meta.api_version = name.api_version();
    }
    if let Some(why) = Expected::new(&name.group, &name.version, &name.kind).mismatch(&meta) {
        return Err(unfit(&why));
    }
    let mut read = decode::read(of, tree).map_err(|why| unfit(&why))?.value;
    set_kind(&mut read, meta.kind, meta.api_version);
    Ok(read)
}

/// Refuses a patched object that is no longer of its kind; without kind or version it still is.
pub fn same_kind(kind: &Kind, object: &Value) -> Result<(), ApiError> {
    let (view, version) = (PartialObjectMetadata::of(object), kind.api_version());
    let meta = Meta {
        kind: view.kind().filled().unwrap_or(&kind.kind).to_owned(),
        api_version: view.api_version().filled().unwrap_or(&version).to_owned(),
    };
    if kind.custom.is_some() {
        let wrong = [("kind", &meta.kind, &kind.kind), ("apiVersion", &meta.api_version, &version)];
        let Some((field, is, must)) = wrong.into_iter().find(|(_, is, must)| is != must) else {
            return Ok(());
        };
        let cause = FieldError::invalid(field, &Value::from(is.as_str()), &format!("must be {must}"));
        let name = view.metadata().name().text();
        return Err(ApiError::invalid(&kind.group, &kind.kind, name, vec![cause]));
    }
    // Another version of the same kind is converted upstream; here nothing of it would be different.
    match Expected::of(kind).mismatch(&meta) {
        Some(why) if meta.kind != kind.kind || matches!(why, KindMismatch::Unknown { .. }) => {
            Err(bad_patch(object, &why.to_string()))
        }
        _ => Ok(()),
    }
}

/// Drops what the schema of a custom resource does not know; what a strict reader has to say about it.
pub fn unknown(kind: &Kind, object: &mut Value, validation: FieldValidation) -> Vec<String> {
    let Some(custom) = &kind.custom else { return Vec::new() };
    let dropped = coracle_kinds::registry::custom::prune::root(&custom.schema, object);
    if validation == FieldValidation::Ignore {
        return Vec::new();
    }
    dropped.into_iter().map(|path| format!("unknown field {path:?}")).collect()
}

/// Brings an object into the form that clients compare.
pub fn normalize(kind: &Kind, object: &mut Value) {
    if let Some(of) = type_of(kind) {
        decode::normalize(of, object);
    }
}

/// Brings an object into the form that is validated and stored, whatever way it came: sent by a client, applied, written by a
/// controller, mutated by admission. Afterwards every value has the type of its field, and there are no other fields. Objects
/// that have this form already, as all that were read by their type, are not read again.
///
/// 500 when a value is of another type: who made it has not read it by its type. An object that is stored with such values
/// can still be changed, to remove them or its finalizers.
pub fn conform(kind: &Kind, object: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    let Some(of) = type_of(kind).filter(|_| kind.custom.is_none()) else { return Ok(()) };
    if decode::normalize(of, object) {
        return Ok(());
    }
    match decode::read(of, Tree::from(object.clone())) {
        Ok(read) => *object = read.value,
        Err(_) if old.is_some_and(|old| decode::read(of, Tree::from(old.clone())).is_err()) => {}
        Err(why) => {
            let name = PartialObjectMetadata::of(object).metadata().name().text();
            let refused = ApiError::internal(format!("{} cannot be stored: {why}", kind.kind));
            return Err(refused.about(&kind.group, &kind.kind, name));
        }
    }
    Ok(())
}

fn type_of(kind: &Kind) -> Option<&'static Type> {
    schema::type_of(&kind.schema).or_else(|| schema::kind_type(&kind.group, &kind.version, &kind.kind))
}
