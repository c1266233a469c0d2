//! Spans and their causes, recorded at the price of a few clock reads.
//!
//! Entry points (an HTTP request, a turn of a control loop, a pod worker) set a [`Scope`] for each poll of a future; everything below
//! them records with [`stage`], [`tracked`] or [`point`] and needs no parameter. Finished spans go into a ring, which a collector empties;
//! spans that have not ended are in a table. Both are in one block of memory, which may be shared with a file, so that the next process
//! finds what this one recorded.
//!
//! Nothing is allocated for a span, and no lock is taken: what requests and writes carry is in boxes, of which each thread keeps some for
//! the next ones. Only if more of them begin than end on a thread, the next one is allocated, or taken from a common list.
//!
//! The id of the span of a write can be computed from the object's uid and revision ([`SpanId::of_write`]). Whoever sees an object can
//! therefore name the write that it reacts to, and nothing has to travel beside objects.
//!
//! ```
//! use coracle_trace::{Recorder, Verb, Stage, enter, stage_named};
//!
//! let recorder = Recorder::for_tests();
//! let mut write = recorder.write(Verb::Create, "pods", "default", "web");
//! write.object("11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11", "web");
//! enter(write.scope(), || drop(stage_named(Stage::MutatingPlugin, "ServiceAccount")));
//! write.stored(42);
//! drop(write);
//!
//! let mut texts = Vec::new();
//! let read = recorder.read(&mut |_, _, text| texts.push(text.to_owned()));
//! recorder.release(read);
//! assert_eq!(texts, ["ServiceAccount", "create pods default/web"]);
//! ```

#![forbid(unsafe_code)]

/// Ids of traces, spans and objects.
mod ids;
/// W3C Trace Context.
mod context;
/// Moments, and what they are in unix time.
mod clock;
/// What a span can be about.
mod stage;
/// A finished span.
mod record;
/// The words of a finished span in memory.
mod slot;
/// The queue of finished spans.
mod ring;
/// When the collector sleeps, and who wakes it.
mod sleep;
/// The table of spans that have not ended.
mod open;
/// The table from revisions to traces.
mod contexts;
/// Why a control loop does something.
mod cause;
/// What the code that runs now is part of.
mod scope;
/// Spans of stages.
mod span;
/// What is used again instead of being allocated.
mod free_list;
/// Marks and sums of a request that is being served.
mod tally;
/// Spans of HTTP requests.
mod request;
/// Spans of writes.
mod write;
/// Spans of turns of control loops.
mod reconcile;
/// The recorder and its memory.
mod recorder;
/// Spans that are recorded when they are over.
mod finished;
/// What a process that was killed left in its memory.
mod leftover;

pub use cause::{Cause, Rank};
pub use clock::{Clock, Moment};
pub use context::TraceContext;
pub use contexts::Contexts;
pub use finished::Shown;
pub use ids::{SpanId, TraceId, Uid};
pub use leftover::{Leftover, leftover};
pub use open::OpenSpan;
pub use reconcile::ReconcileSpan;
pub use record::{Details, Flags, Record, Text};
pub use recorder::{Recorder, Sizes};
pub use request::{RequestMark, RequestSpan, RequestTimes, Sum, add, mark, measured};
pub use ring::Read;
pub use scope::{Scope, carried, carry, cause, caused_by, current, enter, is_detailed, within};
pub use span::{Span, point, stage, stage_named, tracked, tracked_sync};
pub use stage::{Part, Stage};
pub use write::{Verb, WriteMark, WriteSpan, write_mark};
