//! Deletion: at once, after a grace period, or when the last finalizer is removed. Objects whose initializers are pending are
//! deleted at once.

use super::admission::{Admitted, Operation};
use super::api::Api;
use super::conversion::object_of;
use super::fenced::write_failed;
use super::metadata;
use super::pending_initializers::is_pending;
use super::raced::Raced;
use super::scoped::scoped;
use super::write::durability;
use super::write_trace::WriteTrace;
use crate::metrics::store::Operation as StoreOperation;
use coracle_client::options::DeleteOptions;
use coracle_client::pipeline::Target;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Schema as _, make};
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::reflector::Unreadable;
use coracle_proto::status::ApiError;
use coracle_store::{Revision, StoreError, Write};
use coracle_trace::{Verb, WriteMark};
use serde_json::{Value, json};
use std::pin::pin;
use std::sync::Arc;

/// Dependents are removed before the object.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Dependents are left alone.
pub const ORPHAN: &str = "orphan";

/// How a removal ended.
pub struct Deleted {
    /// The object's last state.
    pub object: Arc<Object>,
    /// Whether it is gone already; else it waits for its grace period or finalizers.
    pub gone: bool,
    /// Warnings.
    pub warnings: Vec<String>,
}

impl Deleted {
    /// The Status that answers the removal; `None` if the object does.
    pub fn status(&self, kind: &Kind) -> Option<Value> {
        if !self.gone || kind.returns_deleted {
            return None;
        }
        let meta = &self.object.meta;
        let details = json!({"name": meta.name, "group": kind.group, "kind": kind.plural, "uid": meta.uid});
        let details: Value = details
            .as_object()
            .map(|d| d.iter().filter(|(_, v)| *v != "").map(|(k, v)| (k.clone(), v.clone())).collect())
            .unwrap_or_default();
        Some(
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
        )
    }
}

impl Api {
    /// Removes an object, or begins to.
    pub async fn remove(&self, target: &Target<'_>, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        let mut write = self.trace(Verb::Delete, target, target.name);
        let scope = write.scope();
        let removed = scoped(scope, pin!(self.remove_object(target, options, &mut write))).await;
        write.ended(removed.as_ref().err());
        removed
    }

    async fn remove_object(
        &self,
        target: &Target<'_>,
        options: &DeleteOptions,
        write: &mut WriteTrace,
    ) -> Result<Deleted, ApiError> {
        let kind = target.kind;
        loop {
            let current = match self.objects.get_whole(kind, target.namespace, target.name).await {
                Ok(current) => current,
                Err(error) => {
                    match self.objects.reflector.unreadable_at(&kind.key(target.namespace, target.name)) {
                        Some(broken) => return self.erase_unreadable(target, &broken, options, write).await,
                        None => return Err(error),
                    }
                }
            };
            write.changes(target, &current);
            check_preconditions(kind, current.revision, Some(&current.meta.uid), target.name, options)?;
            let old = self.converter.to_value(kind, &current).await?;
            let mut at = self.attributes(target, Operation::Delete, Some(&old));
            let admitted = self.admission.admit(&mut at, &mut Value::Null).await?;
            write.mark(WriteMark::Admitted);
            let warnings = std::mem::take(&mut at.warnings);
            drop(at);
            let mut new = old.clone();
            let plan = match is_pending(&current) {
                // Those who would remove its finalizers, or end its grace period, do not see it.
                true => Plan::Erase,
                false => plan(kind, &mut new, &old, options),
            };
            let outcome = match plan {
                Plan::Erase => {
                    let erased = self.delete_stored(target, &current, &new, admitted, write).await;
                    erased.map(|object| (object, true))
                }
                Plan::Mark => {
                    let marked = self.replace(target, &current, &new, admitted, write).await;
                    marked.map(|object| (object, false))
                }
                Plan::Wait => Ok((object_of(kind, &old, current.revision)?, false)),
            };
            match outcome {
                Ok((object, gone)) => return Ok(Deleted { object, gone, warnings }),
                Err(Raced::Failed(error)) => return Err(error),
                Err(Raced::Retry) => write.retried(),
            }
        }
    }

    /// Deletes an object that cannot be read.
    async fn delete_unreadable_one(
        &self,
        target: &Target<'_>,
        broken: &Unreadable,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let mut write = self.trace(Verb::Delete, target, target.name);
        let scope = write.scope();
        let erased = scoped(scope, pin!(self.erase_unreadable(target, broken, options, &mut write))).await;
        write.ended(erased.as_ref().err());
        erased
    }

    /// Deletes an object that cannot be read, whatever finalizers it has: nobody could take them off. Admission sees no more
    /// of it than its name.
    async fn erase_unreadable(
        &self,
        target: &Target<'_>,
        broken: &Unreadable,
        options: &DeleteOptions,
        write: &mut WriteTrace,
    ) -> Result<Deleted, ApiError> {
        let kind = target.kind;
        check_preconditions(kind, broken.revision, None, target.name, options)?;
        let last = make!(part PartialObjectMetadata {
            kind: &kind.kind,
            api_version: kind.api_version(),
            metadata: { name: target.name, namespace: kind.namespaced().then_some(target.namespace) },
        });
        let last = last.into_value();
        let mut at = self.attributes(target, Operation::Delete, Some(&last));
        self.admission.admit(&mut at, &mut Value::Null).await?;
        let warnings = std::mem::take(&mut at.warnings);
        drop(at);
        let mut revision = broken.revision;
        if !target.options.dry_run {
            let gone = Write {
                key: broken.key.clone(),
                expect: broken.revision,
                value: None,
                durability: durability(kind),
                fence: None,
            };
            let fence = target.options.fence.as_ref();
            revision = match self.store_write(kind, StoreOperation::Delete, gone, fence).await {
                Ok(revision) => revision,
                Err(StoreError::Conflict(_)) => {
                    return Err(ApiError::modified(&kind.group, &kind.plural, target.name));
                }
                Err(error) => return Err(write_failed(error, fence)),
            };
            write.stored(revision);
            self.objects.reflector.wait_for(revision).await;
            write.mark(WriteMark::Visible);
            tracing::warn!(
                key = broken.key,
                user = target.user.name,
                "an object that cannot be read was deleted"
            );
        }
        Ok(Deleted { object: object_of(kind, &last, revision)?, gone: true, warnings })
    }

    /// Deletes all objects of a kind that cannot be read, of one namespace or of all.
    pub async fn delete_unreadable(
        &self,
        target: &Target<'_>,
        namespace: Option<&str>,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        for broken in self.objects.reflector.unreadable() {
            let Some((within, name)) = broken.name(target.kind) else { continue };
            if namespace.is_none_or(|namespace| namespace == within) {
                let target = Target { namespace: within, name, ..*target };
                match self.delete_unreadable_one(&target, &broken, options).await {
                    Err(error) if !error.is_conflict() => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Deletes the key and gives the last state.
    pub(super) async fn delete_stored(
        &self,
        target: &Target<'_>,
        current: &Object,
        last: &Value,
        _admitted: Admitted,
        write: &mut WriteTrace,
    ) -> Result<Arc<Object>, Raced> {
        let kind = target.kind;
        let mut revision = current.revision;
        if !target.options.dry_run {
            let key = kind.key(target.namespace, &current.meta.name);
            let (expect, durability) = (current.revision, durability(kind));
            let gone = Write { key, expect, value: None, durability, fence: None };
            let fence = target.options.fence.as_ref();
            revision = match self.store_write(kind, StoreOperation::Delete, gone, fence).await {
                Ok(revision) => revision,
                Err(StoreError::Conflict(Some(_))) => return Err(Raced::Retry),
                Err(StoreError::Conflict(None)) => {
                    return Err(ApiError::not_found(&kind.group, &kind.plural, &current.meta.name).into());
                }
                Err(error) => return Err(write_failed(error, fence).into()),
            };
            write.stored(revision);
            self.objects.reflector.wait_for(revision).await;
            write.mark(WriteMark::Visible);
            if let Some(hook) = self.hook(kind) {
                hook.after_delete(self.hook_context(target.options), last).await;
            }
        }
        // Those who may have converted it need not do so again.
        if kind.stored_as.is_none() {
            return Ok(object_of(kind, last, revision)?);
        }
        let bytes = self.converter.stored_form(kind, last, Some(current)).await?;
        Ok(self.converter.decode_stored(kind, &bytes, revision).await?)
    }
}

/// `is` is the uid of the object, `None` when that cannot be read.
fn check_preconditions(
    kind: &Kind,
    revision: Revision,
    is: Option<&str>,
    name: &str,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let Some(wanted) = &options.preconditions else { return Ok(()) };
    let conflict = |why: String| Err(ApiError::conflict(&kind.group, &kind.plural, name, why));
    if let Some(uid) = &wanted.uid
        && is != Some(uid.as_str())
    {
        return conflict(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            is.unwrap_or_default()
        ));
    }
    if let Some(version) = &wanted.resource_version
        && *version != revision.to_string()
    {
        return conflict(format!(
            "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {revision}"
        ));
    }
    Ok(())
}

/// What a delete does to an object.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// Remove it now.
    Erase,
    /// Store it with a deletion timestamp.
    Mark,
    /// It is on its way already; nothing changes.
    Wait,
}

fn plan(kind: &Kind, new: &mut Value, old: &Value, options: &DeleteOptions) -> Plan {
    set_propagation(new, options);
    let grace = (kind.strategy.grace)(old, options.grace_period_seconds).max(0);
    let meta = PartialObjectMetadata::of(old).metadata();
    if meta.deletion_timestamp().is_set() {
        // A second delete may only shorten the time that is left.
        let left = meta.deletion_grace_period_seconds().or(0);
        if options.grace_period_seconds.is_some() && grace < left {
            mark(new, old, grace);
        }
    } else {
        mark(new, old, grace);
        (kind.strategy.begin_delete)(new);
    }
    if metadata::ends_with(kind, new) {
        Plan::Erase
    } else if new == old {
        Plan::Wait
    } else {
        Plan::Mark
    }
}

fn mark(new: &mut Value, old: &Value, grace: i64) {
    let before = PartialObjectMetadata::of(old).metadata();
    let begun = before.deletion_timestamp().get().and_then(|t| t.parse::<jiff::Timestamp>().ok());
    let left = before.deletion_grace_period_seconds().or(0);
    let start = match begun {
        Some(end) => end.saturating_sub(jiff::SignedDuration::from_secs(left)).unwrap_or(end),
        None => jiff::Timestamp::now(),
    };
    let end = start.saturating_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(start);
    let mut root = PartialObjectMetadata::edit(new);
    let mut meta = root.metadata().section();
    meta.deletion_timestamp().set(end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    meta.deletion_grace_period_seconds().set(grace);
    let generation = meta.view().generation().int();
    if let Some(generation) = generation {
        meta.generation().set(generation + 1);
    }
}

fn set_propagation(new: &mut Value, options: &DeleteOptions) {
    let policy = match (options.propagation_policy.as_deref(), options.orphan_dependents) {
        (Some(policy), _) => policy,
        (None, Some(true)) => "Orphan",
        (None, Some(false)) => "Background",
        (None, None) => return,
    };
    let mut root = PartialObjectMetadata::edit(new);
    let mut meta = root.metadata().section();
    meta.finalizers().retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
    match policy {
        "Foreground" => meta.finalizers().push(FOREGROUND),
        "Orphan" => meta.finalizers().push(ORPHAN),
        _ => {}
    }
    if meta.view().finalizers().is_empty() {
        meta.finalizers().clear();
    }
}
