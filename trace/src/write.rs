use crate::cause::Cause;
use crate::context::TraceContext;
use crate::free_list::FreeList;
use crate::ids::{SpanId, TraceId, Uid};
use crate::record::{Details, Flags, Record, Text};
use crate::recorder::{Inner, Recorder};
use crate::scope::{HolderKind, Scope, current};
use crate::span::{new_record, sampled};
use crate::stage::Stage;

/// The ends of consecutive stages of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum WriteMark {
    /// The object is ready for admission.
    Prepared,
    /// Mutating admission is done.
    Mutated,
    /// Defaults are set.
    Defaulted,
    /// Field rules are checked.
    Validated,
    /// Validating admission is done.
    Admitted,
    /// The object is bytes.
    Encoded,
    /// The store has it.
    Stored,
    /// The caches have it.
    Visible,
}

/// What is done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Verb {
    /// It is made.
    Create,
    /// It is replaced.
    Update,
    /// Some of it is changed.
    Patch,
    /// Its fields are applied.
    Apply,
    /// It is removed, or marked for that.
    Delete,
    /// A pod gets its node.
    Bind,
}

/// One object that is written, by HTTP or in process.
///
/// It has an id of its own while it is open; what is below hangs below that one. Readers also know it as
/// [`SpanId::of_write`](crate::SpanId::of_write).
#[derive(Debug)]
#[must_use = "a write that is dropped before `stored` or `refused` counts as cancelled"]
pub struct WriteSpan {
    // In a box: writes are moved into futures, and those into others.
    live: Option<Box<Live>>,
}

#[derive(Debug)]
struct Live {
    inner: &'static Inner,
    record: Record,
    owner: Uid,
    text: Text,
    /// Where the name begins in the text.
    name_at: usize,
    /// For what is below it.
    scope: Scope,
    /// What it may still learn about its parent.
    origin: Origin,
}

thread_local!(static FREE: FreeList<Box<Live>> = const { FreeList::new() });

#[derive(Debug, Clone, Copy, PartialEq)]
enum Origin {
    /// The parent is known.
    Known,
    /// It is below a request that may get a parent.
    Request,
    /// It has none.
    Missing,
}

/// Ends a stage of the current write.
#[inline]
pub fn write_mark(mark: WriteMark) {
    let scope = current();
    if scope.write.is_none() {
        return;
    }
    if let Some(inner) = scope.recorder.inner() {
        inner.open.mark(scope.write, mark as usize, inner.clock.now());
    }
}

impl Verb {
    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::Bind => "bind",
        }
    }
}

impl Recorder {
    /// Begins the write of an object below the current scope. The resource is as in `deployments.apps`; namespace and name may be empty.
    pub fn write(self, verb: Verb, resource: &str, namespace: &str, name: &str) -> WriteSpan {
        let Some(inner) = self.inner() else { return WriteSpan { live: None } };
        let mut scope = Scope { recorder: self, ..current() };
        if scope.span.is_none() {
            scope.span = scope.cause.span();
        }
        let origin = match scope.holder_kind {
            _ if scope.span.is_none() => Origin::Missing,
            HolderKind::Root => Origin::Request,
            _ => Origin::Known,
        };
        if scope.trace.is_none() {
            (scope.trace, scope.flags) = match self.context_of(scope.cause.revision) {
                Some(known) => known,
                None if scope.span.is_none() => (TraceId::fresh(), 0),
                None => (TraceId::NONE, scope.flags),
            };
        }
        (scope.subject, scope.revision) = (Uid::NONE, 0);
        let record = new_record(&scope, Stage::Write, inner.clock.now());
        let slash = if namespace.is_empty() { "" } else { "/" };
        let text = Text::join(&[verb.name(), " ", resource, " ", namespace, slash]);
        let name_at = text.bytes().len();
        let live = Live { inner, record, owner: Uid::NONE, text, name_at, scope, origin };
        let mut live = FREE.with(|free| free.boxed(live));
        live.name(name);
        live.scope.span = live.record.span;
        live.scope.write = inner.claim(&live.record, &live.text);
        if live.scope.holder_kind == HolderKind::Root {
            live.scope.holder_kind = HolderKind::Request;
        }
        WriteSpan { live: Some(live) }
    }
}

impl WriteSpan {
    /// For what is below it, such as admission.
    #[inline]
    pub fn scope(&self) -> Scope {
        self.live.as_ref().map_or_else(current, |live| live.scope)
    }

    /// Sets the object, as soon as it has a uid and a name.
    pub fn object(&mut self, uid: &str, name: &str) {
        let Some(live) = &mut self.live else { return };
        live.record.subject = Uid::of(uid);
        live.scope.subject = live.record.subject;
        if live.text.bytes()[live.name_at..] == *name.as_bytes() {
            live.inner.open.set_subject(live.scope.write, live.record.subject);
            return;
        }
        live.name(name);
        live.inner.open.describe(live.scope.write, &live.record, live.text.bytes());
    }

    /// Sets the controller of the object.
    pub fn owner(&mut self, uid: &str) {
        if let Some(live) = &mut self.live {
            live.owner = Uid::of(uid);
            live.inner.open.set_owner(live.scope.write, live.owner);
        }
    }

    /// Sets the parent that the object names in its annotation, unless a parent is known.
    pub fn parent(&mut self, context: TraceContext) {
        self.adopt(
            context.span,
            Some((context.trace, context.flags)),
            Flags::REMOTE | sampled(context.flags),
        );
    }

    /// Sets the span of a node that reports to have caused the write, and the change that it reacted to, unless a parent is known.
    pub fn caused(&mut self, span: SpanId, cause: Cause) {
        self.adopt(span, self.context_of(cause), Flags::NONE);
    }

    /// Sets the cause that the owner of the object suggests, unless a parent is known.
    pub fn inferred(&mut self, cause: Cause) {
        self.adopt(cause.span(), self.context_of(cause), Flags::INFERRED);
    }

    /// Notes that it is tried again after a conflict: the marks are those of the last try.
    pub fn retried(&mut self) {
        self.change(|live| {
            live.record.flags |= Flags::RETRIED;
            live.inner.open.clear_marks(live.scope.write);
        });
    }

    /// Notes that it was refused with an HTTP status.
    pub fn refused(&mut self, code: u16) {
        self.change(|live| {
            live.record.flags |= Flags::FAILED;
            live.record.code = code;
        });
    }

    /// Notes that it is stored, and with which revision. Whoever sees the revision finds the trace by it.
    pub fn stored(&mut self, revision: u64) {
        let Some(live) = &mut self.live else { return };
        live.record.revision = revision;
        live.scope.revision = revision;
        live.inner.contexts.put(revision, live.record.trace, live.scope.flags);
        live.inner.open.set_revision(live.scope.write, revision);
        live.scope.used();
    }

    /// Forgets it: nothing was written.
    pub fn discard(mut self) {
        if let Some(live) = self.live.take() {
            live.inner.open.free(live.scope.write);
            reuse(live);
        }
    }

    fn context_of(&self, cause: Cause) -> Option<(TraceId, u8)> {
        self.live.as_ref().and_then(|live| live.scope.recorder.context_of(cause.revision))
    }

    fn adopt(&mut self, parent: SpanId, context: Option<(TraceId, u8)>, flags: Flags) {
        if parent.is_none() {
            return;
        }
        self.change(|live| {
            let (trace, trace_flags) = context.unwrap_or_default();
            let is_adopted = match live.origin {
                Origin::Known => false,
                Origin::Missing => {
                    live.record.parent = parent;
                    live.record.flags |= flags;
                    true
                }
                Origin::Request => live.inner.open.adopt(live.scope.holder, parent, trace, flags),
            };
            if is_adopted {
                live.record.trace = trace;
                (live.scope.trace, live.scope.flags) = (trace, trace_flags);
            }
            live.origin = Origin::Known;
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut Live)) {
        if let Some(live) = &mut self.live {
            change(live);
            live.inner.open.update(live.scope.write, &live.record, live.text.bytes());
        }
    }
}

impl Live {
    fn name(&mut self, name: &str) {
        self.text.truncate(self.name_at);
        let is_whole = self.text.push(name);
        self.record.flags = self.record.flags.without(Flags::TRUNCATED);
        if !is_whole {
            self.record.flags |= Flags::TRUNCATED;
        }
    }
}

impl Drop for WriteSpan {
    fn drop(&mut self) {
        let Some(mut live) = self.live.take() else { return };
        live.record.duration = live.inner.clock.now().nanos_since(live.record.start);
        if live.record.revision == 0 && !live.record.flags.contains(Flags::FAILED) {
            live.record.flags |= Flags::CANCELLED;
        }
        let marks =
            live.inner.open.gathered(live.scope.write).map_or([0; Details::MARKS], |gathered| gathered.marks);
        let details = Details { marks, owner: live.owner };
        live.scope.used();
        live.inner.push(&live.record, (details != Details::NONE).then_some(&details), &live.text);
        live.inner.open.free(live.scope.write);
        reuse(live);
    }
}

/// Keeps the box for the next write of this thread.
fn reuse(live: Box<Live>) {
    let _ends_with_its_thread = FREE.try_with(|free| free.put(live));
}

#[cfg(test)]
mod tests;
