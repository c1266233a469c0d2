//! The write pipeline: decode (by the caller) → mutating admission → defaults → validation → validating admission →
//! store. Create and update are here, deletion in `delete.rs`.

use super::admission::{Admitted, Attributes, Mutated, Operation};
use super::admission_input::{AdmissionInput, AdmissionProgress};
use super::api::Api;
use super::conversion::object_of;
use super::decode;
use super::fenced::write_failed;
use super::field_writer::track;
use super::hook::Projection;
use super::metadata;
use super::patch::apply;
use super::pending_initializers::is_pending;
use super::raced::Raced;
use super::scoped::scoped;
use super::write_trace::WriteTrace;
use crate::metrics::store::Operation as StoreOperation;
use bytes::Bytes;
use coracle_client::pipeline::{Change, Target};
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::{ApiError, FieldError};
use coracle_store::{Durability, Revision, StoreError, Write};
use coracle_trace::{Verb, WriteMark};
use serde_json::Value;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::SemaphorePermit;

/// How often a change without a resource version is tried again when somebody else was faster.
const RETRIES: usize = 64;
/// How often a generated name is drawn again when it is taken.
const NAMES: usize = 8;

/// The outcome of a write: the object and sentences for the `Warning` header.
pub struct Written {
    /// The object as it is now (for a dry run: as it would be).
    pub object: Arc<Object>,
    /// Warnings.
    pub warnings: Vec<String>,
    /// Whether a change made the object anew (apply, or an update of a kind that allows it).
    pub created: bool,
}

impl Api {
    /// Stores a new object.
    pub async fn create(&self, target: &Target<'_>, object: Value) -> Result<Written, ApiError> {
        let name = PartialObjectMetadata::of(&object).metadata().name().text();
        let mut write = self.trace(Verb::Create, target, name);
        self.trace_origin(&mut write, target, &object);
        let scope = write.scope();
        let created = scoped(scope, pin!(self.create_object(target, object, &mut write))).await;
        write.ended(created.as_ref().err());
        let (written, place) = created?;
        if !is_pending(&written.object) {
            return Ok(written);
        }
        let initialized = Box::pin(self.initialized(target, written)).await;
        drop(place);
        initialized
    }

    /// Stores a new object; also the place in which its create waits if its initializers are pending.
    async fn create_object(
        &self,
        target: &Target<'_>,
        mut object: Value,
        write: &mut WriteTrace,
    ) -> Result<(Written, Option<SemaphorePermit<'_>>), ApiError> {
        let kind = target.kind;
        metadata::check_body(kind, target.namespace, target.name, &object)?;
        metadata::begin(kind, target.namespace, &mut object);
        kind.fill(&mut object);
        let meta = PartialObjectMetadata::of(&object).metadata();
        let (name, called) = (meta.name().text().to_owned(), meta.generate_name().text().to_owned());
        let mut at = self.attributes(target, Operation::Create, None);
        (at.name, at.called) = (&name, called);
        track(target, None, &mut object);
        write.mark_if_detailed(WriteMark::Prepared);
        let mutated = self.mutate(&mut at, &mut object).await?;
        write.mark(WriteMark::Mutated);
        // A webhook may have moved it to where nobody would look for it.
        metadata::check_body(kind, target.namespace, target.name, &object)?;
        kind.fill(&mut object);
        // Before the strategy, which may write the name elsewhere: a Job's pods are labelled with it.
        let generated = metadata::draw_name(&mut object);
        kind.prepare_create(&mut object);
        if let Some(sign) = kind.strategy.sign {
            sign(&mut object, &target.user.info());
        }
        decode::conform(kind, &mut object, None)?;
        let place = self.waiting_creates.place(target.options, &object)?;
        if kind.generation {
            PartialObjectMetadata::edit(&mut object).metadata().generation().set(1);
        }
        write.names(&object);
        write.mark_if_detailed(WriteMark::Defaulted);
        refuse(kind, &object, kind.check_create(&object))?;
        write.mark(WriteMark::Validated);
        let admitted = mutated.validate(&mut at, &object).await;
        write.mark(WriteMark::Admitted);
        let mut warnings = std::mem::take(&mut at.warnings);
        warnings.extend((kind.strategy.warnings)(&object, None));
        let stored = match admitted {
            Ok(admitted) => self.store_new(target, object, generated, admitted, write).await,
            Err(refused) => Err(refused),
        };
        at.finish(stored.is_ok() && !target.options.dry_run).await;
        Ok((Written { object: stored?, warnings, created: true }, place))
    }

    /// Stores an object that was admitted; draws its name again when it was generated and is taken.
    async fn store_new(
        &self,
        target: &Target<'_>,
        mut object: Value,
        generated: bool,
        _admitted: Admitted,
        write: &mut WriteTrace,
    ) -> Result<Arc<Object>, ApiError> {
        let hook = self.hook(target.kind);
        if let Some(hook) = &hook {
            hook.before_create(self.hook_context(target.options), &mut object, target.options.dry_run)
                .await?;
        }
        if self.trace_annotations {
            write.annotate(&mut object);
        }
        let tries = if generated { NAMES } else { 1 };
        for attempt in 1..=tries {
            match self.insert(target, &object, write).await {
                Ok(object) => return Ok(object),
                Err(error) if error.is_already_exists() && attempt < tries => {
                    metadata::redraw_name(&mut object);
                    write.names(&object);
                }
                Err(error) => {
                    // A dry run has taken nothing: what the object names may be somebody's.
                    if let (Some(hook), false) = (&hook, target.options.dry_run) {
                        hook.create_failed(self.hook_context(target.options), &object).await;
                    }
                    return Err(error);
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn insert(
        &self,
        target: &Target<'_>,
        object: &Value,
        write: &mut WriteTrace,
    ) -> Result<Arc<Object>, ApiError> {
        let kind = target.kind;
        let name = PartialObjectMetadata::of(object).metadata().name().text();
        if target.options.dry_run {
            if self.objects.get_whole(kind, target.namespace, name).await.is_ok() {
                return Err(ApiError::already_exists(&kind.group, &kind.plural, name));
            }
            let bytes = self.converter.stored_form(kind, object, None).await?;
            return self.converter.decode_stored(kind, &bytes, 0).await;
        }
        let bytes = self.converter.stored_form(kind, object, None).await?;
        write.mark_if_detailed(WriteMark::Encoded);
        let key = kind.key(target.namespace, name);
        let (value, durability) = (Some(bytes.clone()), durability(kind));
        let new = Write { key, expect: 0, value, durability, fence: None };
        let fence = target.options.fence.as_ref();
        match self.store_write(kind, StoreOperation::Create, new, fence).await {
            Ok(revision) => {
                write.stored(revision);
                self.read_back(target, name, bytes, revision, write).await
            }
            Err(StoreError::Conflict(_)) => Err(ApiError::already_exists(&kind.group, &kind.plural, name)),
            Err(error) => Err(write_failed(error, fence)),
        }
    }

    /// Changes an object: update, patch and apply are each a `change` of the current object. When the new object carries
    /// a resource version, losing the race is a conflict; without one the change is tried again.
    pub async fn change(&self, target: &Target<'_>, change: &Change<'_>) -> Result<Written, ApiError> {
        self.change_as(target, change, AdmissionInput::Object, Verb::Update).await
    }

    /// The same for a patch or an apply.
    pub(super) async fn change_by_patch(
        &self,
        target: &Target<'_>,
        change: &Change<'_>,
    ) -> Result<Written, ApiError> {
        let verb = if target.applied { Verb::Apply } else { Verb::Patch };
        self.change_as(target, change, AdmissionInput::Object, verb).await
    }

    /// Changes an object by way of another form of it, such as its Scale: `change` and admission see that form.
    pub async fn change_through(
        &self,
        target: &Target<'_>,
        projection: &dyn Projection,
        change: &Change<'_>,
    ) -> Result<Written, ApiError> {
        self.change_as(target, change, AdmissionInput::Projection(projection), Verb::Update).await
    }

    /// Changes an object for a request that was admitted in its own form, such as a Binding: it is not asked about twice.
    pub async fn change_admitted(
        &self,
        target: &Target<'_>,
        admitted: Admitted,
        change: &Change<'_>,
    ) -> Result<Written, ApiError> {
        let verb = if target.subresource == "binding" { Verb::Bind } else { Verb::Update };
        self.change_as(target, change, AdmissionInput::Admitted(admitted), verb).await
    }

    async fn change_as(
        &self,
        target: &Target<'_>,
        change: &Change<'_>,
        input: AdmissionInput<'_>,
        verb: Verb,
    ) -> Result<Written, ApiError> {
        let mut write = self.trace(verb, target, target.name);
        let scope = write.scope();
        let patched = matches!(verb, Verb::Patch | Verb::Apply);
        let changed =
            scoped(scope, pin!(self.change_object(target, change, input, patched, &mut write))).await;
        write.ended(changed.as_ref().err());
        if let Ok(written) = &changed
            && is_pending(&written.object)
        {
            Box::pin(self.end_failed(target, &written.object)).await?;
        }
        changed
    }

    async fn change_object(
        &self,
        target: &Target<'_>,
        change: &Change<'_>,
        input: AdmissionInput<'_>,
        patched: bool,
        write: &mut WriteTrace,
    ) -> Result<Written, ApiError> {
        let kind = target.kind;
        // Admission would be shown an object of another kind than it is told.
        if let (AdmissionInput::Object, Some(taken)) = (input, kind.taken_by(target.subresource)) {
            let why = format!("{}/{} takes a {}", kind.plural, target.subresource, taken.kind);
            return Err(ApiError::internal(why).about(&kind.group, &kind.plural, target.name));
        }
        for _ in 0..RETRIES {
            // Subresources of objects whose initializers are pending are not there yet.
            let current = match target.subresource {
                "" => self.objects.get_whole(kind, target.namespace, target.name).await?,
                _ => self.objects.get(kind, target.namespace, target.name).await?,
            };
            write.changes(target, &current);
            match self.change_once(target, &current, change, input, patched, write).await {
                Err(Raced::Retry) => write.retried(),
                Err(Raced::Failed(error)) => return Err(error),
                Ok(written) => return Ok(written),
            }
        }
        Err(ApiError::modified(&kind.group, &kind.plural, target.name))
    }

    async fn change_once(
        &self,
        target: &Target<'_>,
        current: &Arc<Object>,
        change: &Change<'_>,
        input: AdmissionInput<'_>,
        patched: bool,
        write: &mut WriteTrace,
    ) -> Result<Written, Raced> {
        let kind = target.kind;
        let old = self.converter.to_value(kind, current).await?;
        let shown: &Value = &input.of(&old);
        let mut new = change(shown)?;
        let mut at = self.attributes(target, Operation::Update, Some(shown));
        at.initializes = is_pending(current) && target.subresource.is_empty();
        let (insists, progress) = match input {
            AdmissionInput::Object => {
                let insists = begin_change(target, current, &old, &mut new, patched)?;
                write.mark_if_detailed(WriteMark::Prepared);
                let mutated = self.mutate(&mut at, &mut new).await?;
                write.mark(WriteMark::Mutated);
                metadata::check_body(kind, target.namespace, target.name, &new)?;
                kind.fill(&mut new);
                (insists, AdmissionProgress::Mutated(mutated))
            }
            AdmissionInput::Projection(projection) => {
                let mutated = self.admission.mutate(&mut at, &mut new).await?;
                write.mark(WriteMark::Mutated);
                new = projection.merge(&old, &new)?;
                (begin_change(target, current, &old, &mut new, patched)?, AdmissionProgress::Mutated(mutated))
            }
            AdmissionInput::Admitted(admitted) => (
                begin_change(target, current, &old, &mut new, patched)?,
                AdmissionProgress::Admitted(admitted),
            ),
        };
        decode::conform(kind, &mut new, Some(&old))?;
        // To be given a node is no change of what was asked for.
        if target.subresource != "binding" {
            metadata::count_generation(kind, &mut new, &old);
        }
        write.annotated(&new, Some(&old));
        write.mark_if_detailed(WriteMark::Defaulted);
        let causes = match at.initializes {
            true => kind.check_initializing(&new, &old),
            false => kind.check_update(target.subresource, &new, &old),
        };
        refuse(kind, &new, causes)?;
        write.mark(WriteMark::Validated);
        let admitted = progress.finish(&mut at, &input.of(&new)).await;
        write.mark(WriteMark::Admitted);
        let mut warnings = std::mem::take(&mut at.warnings);
        warnings.extend((kind.strategy.warnings)(&new, Some(&old)));
        let stored = match admitted {
            Ok(admitted) => {
                let from = Before { current, old: &old, insists };
                self.store_changed(target, from, new, admitted, write).await
            }
            Err(refused) => Err(refused.into()),
        };
        at.finish(stored.is_ok() && !target.options.dry_run).await;
        Ok(Written { object: stored?, warnings, created: false })
    }

    /// Stores a change that was admitted.
    async fn store_changed(
        &self,
        target: &Target<'_>,
        Before { current, old, insists }: Before<'_>,
        mut new: Value,
        admitted: Admitted,
        write: &mut WriteTrace,
    ) -> Result<Arc<Object>, Raced> {
        let kind = target.kind;
        // What is stored in a version that is no longer the stored one is written anew: so objects are migrated.
        let current_form = kind.custom.as_ref().is_none_or(|custom| custom.is_current(current));
        if new == *old && current_form {
            return Ok(if kind.is_view() {
                object_of(kind, old, current.revision)?
            } else {
                current.clone()
            });
        }
        if metadata::ends_with(kind, &new) {
            // The last finalizer is gone from an object that is being deleted: the change is its removal.
            let erased = self.delete_stored(target, current, &new, admitted, write).await;
            return erased.map_err(|error| error.or_insist(insists, kind, target.name));
        }
        let hook = self.hook(kind);
        if let Some(hook) = &hook {
            hook.before_update(self.hook_context(target.options), &mut new, old, target.options.dry_run)
                .await?;
        }
        if self.trace_annotations && generation(&new) != generation(old) {
            write.annotate(&mut new);
        }
        let stored = self.replace(target, current, &new, admitted, write).await;
        if let Some(hook) = &hook
            && !target.options.dry_run
        {
            hook.update_done(self.hook_context(target.options), &new, old, stored.is_ok()).await;
        }
        stored.map_err(|error| error.or_insist(insists, kind, target.name))
    }

    /// Writes `new` over `current`, for those who have prepared and checked it.
    pub(super) async fn replace(
        &self,
        target: &Target<'_>,
        current: &Object,
        new: &Value,
        _admitted: Admitted,
        write: &mut WriteTrace,
    ) -> Result<Arc<Object>, Raced> {
        let kind = target.kind;
        let bytes = self.converter.stored_form(kind, new, Some(current)).await?;
        write.mark_if_detailed(WriteMark::Encoded);
        if target.options.dry_run {
            return Ok(self.converter.decode_stored(kind, &bytes, current.revision).await?);
        }
        let changed = Write {
            key: kind.key(target.namespace, &current.meta.name),
            expect: current.revision,
            value: Some(bytes.clone()),
            durability: durability(kind),
            fence: None,
        };
        let fence = target.options.fence.as_ref();
        match self.store_write(kind, StoreOperation::Update, changed, fence).await {
            Ok(revision) => {
                write.stored(revision);
                Ok(self.read_back(target, &current.meta.name, bytes, revision, write).await?)
            }
            Err(StoreError::Conflict(None)) => {
                Err(ApiError::not_found(&kind.group, &kind.plural, &current.meta.name).into())
            }
            Err(StoreError::Conflict(Some(_))) => Err(Raced::Retry),
            Err(error) => Err(write_failed(error, fence).into()),
        }
    }

    /// Waits until reads see a write of our own, and gives its object.
    async fn read_back(
        &self,
        target: &Target<'_>,
        name: &str,
        bytes: Bytes,
        revision: Revision,
        write: &WriteTrace,
    ) -> Result<Arc<Object>, ApiError> {
        self.objects.reflector.wait_for(revision).await;
        write.mark(WriteMark::Visible);
        // The cache has read it already, unless somebody has written again since.
        match self.objects.whole_cache(target.kind)?.get(target.namespace, name) {
            Some(object) if object.revision == revision => {
                self.converter.to_version(target.kind, &object).await
            }
            _ => self.converter.decode_stored(target.kind, &bytes, revision).await,
        }
    }

    /// Mutating admission. Owners of fields that nobody can read afterwards are again what they were before.
    async fn mutate(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<Mutated<'_>, ApiError> {
        let owners = PartialObjectMetadata::of(object).metadata().managed_fields().to_value();
        let mutated = self.admission.mutate(at, object).await?;
        if let Err(why) = apply::keep_readable(object, owners) {
            at.warnings.push(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an \
                 outdated mutating admission controller; please fix your requests: {why}"
            ));
        }
        Ok(mutated)
    }
}

/// What a change begins with.
#[derive(Clone, Copy)]
struct Before<'a> {
    current: &'a Arc<Object>,
    old: &'a Value,
    /// Whether the client named a resource version.
    insists: bool,
}

fn generation(object: &Value) -> i64 {
    PartialObjectMetadata::of(object).metadata().generation().or(0)
}

pub(super) fn durability(kind: &Kind) -> Durability {
    if kind.lazy { Durability::Lazy } else { Durability::Sync }
}

/// Brings a change into the form that is stored; whether it insists on a resource version.
fn begin_change(
    target: &Target<'_>,
    current: &Object,
    old: &Value,
    new: &mut Value,
    patched: bool,
) -> Result<bool, ApiError> {
    let kind = target.kind;
    metadata::check_body(kind, target.namespace, target.name, new)?;
    let insists = metadata::check_preconditions(kind, new, current, patched)?;
    metadata::carry_over(new, old);
    kind.prepare_update(target.subresource, new, old);
    kind.fill(new);
    track(target, Some(old), new);
    Ok(insists)
}

fn refuse(kind: &Kind, object: &Value, causes: Vec<FieldError>) -> Result<(), ApiError> {
    if causes.is_empty() {
        return Ok(());
    }
    let meta = PartialObjectMetadata::of(object).metadata();
    let name = meta.name().get().or(meta.generate_name().get()).unwrap_or_default();
    Err(ApiError::invalid(&kind.group, &kind.kind, name, causes))
}
