//! The span of a write, and what led to it.

use super::api::Api;
use super::fenced;
use crate::metrics::store::Operation;
use coracle_client::fence::Fence;
use coracle_client::pipeline::Target;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::{ApiError, qualified};
use coracle_store::{Revision, StoreError, Write};
use coracle_trace::{
    Cause, Rank, Recorder, Scope, Sum, TraceContext, Uid, Verb, WriteMark, WriteSpan, add, current,
    is_detailed, write_mark,
};
use serde_json::Value;
use std::time::Instant;

/// The span of one write, until it is known how the write ended.
pub(super) struct WriteTrace {
    span: WriteSpan,
    is_on: bool,
    stored: bool,
}

impl Api {
    /// Begins the span of a write. Dry runs, and kinds whose writes are lazy, have none.
    pub(super) fn trace(&self, verb: Verb, target: &Target<'_>, name: &str) -> WriteTrace {
        let is_on = self.recorder.is_on() && !target.kind.lazy && !target.options.dry_run;
        if !is_on {
            return WriteTrace { span: Recorder::OFF.write(verb, "", "", ""), is_on, stored: false };
        }
        let resource = qualified(&target.kind.group, &target.kind.plural);
        let span = self.recorder.write(verb, &resource, target.namespace, name);
        WriteTrace { span, is_on, stored: false }
    }

    /// Writes to the store if the fence holds, and counts how long that takes.
    pub(super) async fn store_write(
        &self,
        kind: &Kind,
        operation: Operation,
        write: Write,
        fence: Option<&Fence>,
    ) -> Result<Revision, StoreError> {
        let begun = Instant::now();
        let result = fenced::write(self.store.as_ref(), write, fence).await;
        let took = begun.elapsed();
        add(Sum::Store, took);
        self.metrics.store.observe(operation, kind, took);
        result
    }

    /// What a new object says about what led to it: its annotation, and its owner.
    pub(super) fn trace_origin(&self, write: &mut WriteTrace, target: &Target<'_>, object: &Value) {
        if !write.is_on {
            return;
        }
        write.annotated(object, None);
        let mut owners = PartialObjectMetadata::of(object).metadata().owner_references().items();
        let Some(owner) = owners.find(|owner| owner.controller().flag()) else { return };
        let uid = owner.uid().text();
        write.span.owner(uid);
        // What a control loop of this server does has its cause in the scope.
        if current().cause != Cause::NONE {
            return;
        }
        let (group, version) = match owner.api_version().text().split_once('/') {
            Some((group, version)) => (group, version),
            None => ("", owner.api_version().text()),
        };
        let Some(kind) = self.objects.registry.kind(group, version, owner.kind().text()) else { return };
        let namespace = if kind.namespaced() { target.namespace } else { "" };
        if let Ok(found) = self.objects.cached(&kind, namespace, owner.name().text())
            && found.meta.uid == uid
        {
            let revision = found.revision;
            write.span.inferred(Cause { uid: Uid::of(uid), revision, rank: Rank::Related, ..Cause::NONE });
        }
    }
}

impl WriteTrace {
    /// What everything below the write runs in.
    pub(super) fn scope(&self) -> Scope {
        self.span.scope()
    }

    /// The object that is changed, and what a node says about its reason to change it.
    pub(super) fn changes(&mut self, target: &Target<'_>, current: &Object) {
        if !self.is_on {
            return;
        }
        self.span.object(&current.meta.uid, &current.meta.name);
        if let Some(owner) = current.meta.owner_references.iter().find(|owner| owner.controller) {
            self.span.owner(&owner.uid);
        }
        if let Some((span, cause)) = target.options.trace.cause
            && cause.uid == Uid::of(&current.meta.uid)
        {
            self.span.caused(span, cause);
        }
    }

    /// The context that the annotation of an object names, if the annotation is new.
    pub(super) fn annotated(&mut self, object: &Value, old: Option<&Value>) {
        if !self.is_on {
            return;
        }
        let Some(now) = annotation(object) else { return };
        if old.and_then(annotation) != Some(now)
            && let Some(context) = TraceContext::parse(now)
        {
            self.span.parent(context);
        }
    }

    /// Writes the context of this write into the annotation of an object.
    pub(super) fn annotate(&self, object: &mut Value) {
        let context = self.scope().context().filter(|_| self.is_on).map(TraceContext::text);
        if let Some(text) = context.as_ref().and_then(|text| std::str::from_utf8(text).ok()) {
            PartialObjectMetadata::edit(object)
                .metadata()
                .annotations()
                .insert(TraceContext::ANNOTATION, text);
        }
    }

    /// The new object has a uid and a name.
    pub(super) fn names(&mut self, object: &Value) {
        if self.is_on {
            let meta = PartialObjectMetadata::of(object).metadata();
            self.span.object(meta.uid().text(), meta.name().text());
        }
    }

    /// The write has come this far.
    pub(super) fn mark(&self, mark: WriteMark) {
        if self.is_on {
            write_mark(mark);
        }
    }

    /// The same for what is worth a clock read only if the client asked for details.
    pub(super) fn mark_if_detailed(&self, mark: WriteMark) {
        if self.is_on && is_detailed() {
            write_mark(mark);
        }
    }

    /// Somebody else was faster: all begins anew.
    pub(super) fn retried(&mut self) {
        self.span.retried();
    }

    /// The store has it.
    pub(super) fn stored(&mut self, revision: Revision) {
        if self.is_on {
            write_mark(WriteMark::Stored);
            self.span.stored(revision);
            self.stored = true;
        }
    }

    /// Ends the span. A write that changed nothing, or of an object that is not there, leaves none.
    pub(super) fn ended(mut self, error: Option<&ApiError>) {
        match error {
            _ if self.stored => {}
            Some(error) if !error.is_not_found() => self.span.refused(error.code),
            _ => self.span.discard(),
        }
    }
}

fn annotation(object: &Value) -> Option<&str> {
    let annotations = PartialObjectMetadata::of(object).metadata().annotations();
    annotations.key(TraceContext::ANNOTATION).get().filter(|text| !text.is_empty())
}
