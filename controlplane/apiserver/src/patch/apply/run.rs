//! Server-side apply of one object: it is merged into the live object, fields that its manager no longer applies and
//! nobody else owns are removed, changes to fields of other managers are conflicts, and ownership is updated.

use super::compare::compare;
use super::entry::{self, Entry, Operation};
use super::overlay::overlay;
use super::prune::{remove, with_named_fields};
use super::set::Set;
use super::track::{after_change, ownable};
use super::{Writer, check, fields};
use crate::patch::types::Type;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_proto::decode::{self, DecodeError, Tree};
use coracle_proto::status::{ApiError, FieldError};
use serde_json::{Map, Value};

/// The annotation in which client-side apply keeps what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A field of another manager that the apply would change.
struct Conflict {
    with: String,
    path: String,
}

/// Why there is no new object.
enum Failure {
    /// Others own what would change.
    Conflicts(Vec<Conflict>),
    /// The result is no object of the type.
    Unfit(DecodeError),
}

/// Applies `config` to the live object (`None` creates it) and returns the object to default, validate and store,
/// with its new `managedFields`.
///
/// 400 for a config of another version or with `managedFields`, 409 with one `FieldManagerConflict` per field when
/// others own what would change and `force` is not set, 500 (as upstream) for a config, or a result, that does not fit the
/// type.
pub fn apply(live: Option<&Value>, config: &Value, writer: &Writer, force: bool) -> Result<Value, ApiError> {
    check_config(config, writer)?;
    let mut base = live.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let mut entries = entry::decode(&base)
        .map_err(|e| ApiError::new(500, "InternalError", format!("failed to decode managed fields: {e}")))?;
    entry::strip(&mut base);
    if entries.is_empty() && live.is_some() {
        let before = Writer { manager: "before-first-apply", subresource: "", ..*writer };
        entries = after_change(None, &base, entries, &before);
    }
    let failed = |failure: Failure| match failure {
        Failure::Conflicts(conflicts) => conflict_error(conflicts),
        Failure::Unfit(why) => unfit(config, &why),
    };
    match attempt(&base, config, &entries, writer, force) {
        Ok(object) => Ok(object),
        Err(Failure::Conflicts(conflicts)) => {
            let forgiven = forgiven(&base, config, writer).unwrap_or_default().paths();
            let left: Vec<Conflict> = conflicts.into_iter().filter(|c| !forgiven.contains(&c.path)).collect();
            if left.is_empty() {
                return attempt(&base, config, &entries, writer, true).map_err(failed);
            }
            Err(conflict_error(left))
        }
        Err(other) => Err(failed(other)),
    }
}

fn check_config(config: &Value, writer: &Writer) -> Result<(), ApiError> {
    let object = PartialObjectMetadata::of(config);
    let version = object.api_version().text();
    if version != writer.api_version {
        return Err(ApiError::bad_request(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            writer.api_version
        )));
    }
    if object.metadata().managed_fields().is_set() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let mut misfits = check::misfits(config, writer.ty);
    misfits.extend(writer.custom.map(|custom| custom.undeclared(config)).unwrap_or_default());
    if misfits.is_empty() {
        return Ok(());
    }
    let list =
        if misfits.len() == 1 { misfits[0].clone() } else { format!("errors:\n  {}", misfits.join("\n  ")) };
    Err(ApiError::new(500, "", format!("failed to create typed patch object ({}): {list}", about(config))))
}

/// `default/web; apps/v1, Kind=Deployment`.
fn about(config: &Value) -> String {
    let metadata = PartialObjectMetadata::of(config).metadata();
    format!("{}/{}; {}", metadata.namespace().text(), metadata.name().text(), kind(config))
}

/// `apps/v1, Kind=Deployment`, or `/v1, Kind=Pod`.
fn kind(config: &Value) -> String {
    let object = PartialObjectMetadata::of(config);
    let version = object.api_version().text();
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={}", object.kind().text())
}

/// 500, as upstream, for an object with a value that fits the coarse schema of apply and not the type.
fn unfit(config: &Value, why: &DecodeError) -> ApiError {
    let why = format!(
        "failed to convert new object ({}) to proper version: unable to convert unstructured object to {}: {why}",
        about(config),
        kind(config)
    );
    ApiError::new(500, "", why)
}

fn attempt(
    base: &Value,
    config: &Value,
    entries: &[Entry],
    writer: &Writer,
    force: bool,
) -> Result<Value, Failure> {
    let mut mine = Entry::of(writer, Operation::Apply, fields::of(config, writer.ty).without(writer.reset));
    let (last, others): (Vec<Entry>, Vec<Entry>) =
        entries.iter().cloned().partition(|e| e.same_manager(&mine));
    let merged = overlay(base, config, writer.ty);
    let merged = match last.first() {
        Some(last) => prune(merged, &last.fields, &mine.fields, &others, writer),
        None => merged,
    };
    let change = compare(base, &merged, writer.ty).without(writer.reset);
    let taken = change.modified.union(&change.added);
    let conflicts: Vec<Conflict> = others
        .iter()
        .flat_map(|e| {
            let paths = e.fields.intersection(&taken).paths();
            paths.into_iter().map(|path| Conflict { with: e.describe(), path })
        })
        .collect();
    if !force && !conflicts.is_empty() {
        return Err(Failure::Conflicts(conflicts));
    }
    let mut merged = typed(merged, writer).map_err(Failure::Unfit)?;
    let gone = taken.union(&change.removed);
    let mut entries = others;
    for entry in &mut entries {
        entry.fields = entry.fields.difference(&gone);
    }
    if merged == *base {
        mine.time = last.first().and_then(|e| e.time.clone()).or(mine.time);
    }
    mine.fields = ownable(mine.fields);
    entries.push(mine);
    refresh_last_applied(&mut merged, config, writer);
    entry::encode(&mut merged, entries);
    Ok(merged)
}

/// The object as its type reads it: numbers and quantities in the form that is stored, no nulls. Custom resources have no type
/// but their schema, which they are held to later.
fn typed(object: Value, writer: &Writer) -> Result<Value, DecodeError> {
    match (writer.ty, writer.custom) {
        (Type::Struct(of, _), None) => Ok(decode::read(of, Tree::from(object))?.value),
        _ => Ok(object),
    }
}

/// Takes out what the manager applied last time, does not apply now, and nobody else owns.
fn prune(merged: Value, last: &Set, now: &Set, others: &[Entry], writer: &Writer) -> Value {
    if last.is_empty() {
        return merged;
    }
    let ty = writer.ty;
    let named = |set: &Set| with_named_fields(set, ty);
    let last = named(last);
    let all = named(&fields::of(&merged, ty));
    let without = remove(&merged, &last, ty);
    let owned = others.iter().fold(now.clone(), |sum, e| sum.union(&e.fields));
    let keep = named(&fields::of(&without, ty)).union(&named(&owned));
    let without = remove(&merged, &all.difference(&keep), ty);
    let gone = all.difference(&named(&fields::of(&without, ty)));
    remove(&merged, &gone.intersection(&last), ty)
}

/// What a move from client-side apply forgives: live fields that still are as the annotation of `kubectl apply` has them.
fn forgiven(base: &Value, config: &Value, writer: &Writer) -> Option<Set> {
    let live = PartialObjectMetadata::of(base);
    if writer.manager != "kubectl" || !PartialObjectMetadata::of(config).kind().same_as(live.kind()) {
        return None;
    }
    let text = live.metadata().annotations().key(LAST_APPLIED).get()?;
    let last: Value = serde_json::from_str(text).ok()?;
    let version = PartialObjectMetadata::of(&last).api_version();
    if version != writer.api_version || !check::misfits(&last, writer.ty).is_empty() {
        return None;
    }
    let change = compare(&last, base, writer.ty);
    let set = fields::of(&last, writer.ty);
    Some(set.difference(&change.modified).difference(&change.added).difference(&change.removed))
}

/// `kubectl apply --server-side` keeps the annotation of client-side apply current, so that one may go back.
fn refresh_last_applied(object: &mut Value, config: &Value, writer: &Writer) {
    if writer.manager != "kubectl" {
        return;
    }
    let mut object = PartialObjectMetadata::edit(object);
    let mut metadata = object.metadata();
    let mut annotations = metadata.annotations();
    if let Some(Value::String(annotation)) = annotations.map_mut().and_then(|all| all.get_mut(LAST_APPLIED))
        && !annotation.is_empty()
    {
        let mut applied = config.clone();
        PartialObjectMetadata::edit(&mut applied).metadata().annotations().remove(LAST_APPLIED);
        *annotation = format!("{applied}\n");
    }
}

fn conflict_error(mut conflicts: Vec<Conflict>) -> ApiError {
    conflicts.sort_by(|a, b| a.with.cmp(&b.with));
    let message = match &conflicts[..] {
        [one] => format!("Apply failed with 1 conflict: conflict with {}: {}", one.with, one.path),
        many => {
            let mut lines = Vec::new();
            let mut last = "";
            for conflict in many {
                if conflict.with != last {
                    lines.push(format!("conflicts with {}:", conflict.with));
                    last = &conflict.with;
                }
                lines.push(format!("- {}", conflict.path));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    let mut error = ApiError::new(409, "Conflict", message);
    error.details.causes = conflicts
        .into_iter()
        .map(|c| FieldError::new("FieldManagerConflict", c.path, format!("conflict with {}", c.with)))
        .collect();
    error
}
