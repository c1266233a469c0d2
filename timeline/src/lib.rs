//! The timeline of the cluster: spans of [`coracle_trace`] on disk, and what can be read from them.
//!
//! Writing: [`Collector`] drains a recorder into blocks, [`Keep`] appends them to segments and deletes old ones. Reading: [`find`]
//! searches the segments, [`assemble`] makes trees of the records, [`critical_path`] says where the time went, [`view`] is the JSON.

// Memory of the recorder that outlives the process.
pub mod shared_memory;
// Integers and bytes of a block.
mod varint;
// One write to disk: records with their strings and uids.
mod block;
mod builder;
mod decoder;
mod single_stage;
// Which pieces of a segment may have a record.
mod filter;
// A file of blocks and its index.
mod segment;
// The directory of segments.
mod keep;
mod keep_error;
mod segment_view;
mod exclusive;
mod spool;
mod spool_id;
// From the recorder to the directory.
mod collect;
mod handle;
mod recover;
mod usual;
// From the directory to the records of a question.
mod pieces;
mod taken;
mod known;
// What other servers have for a question.
mod elsewhere;
mod search;
mod ancestors;
mod cut_off;
mod descendants;
mod roots;
// From records to trees.
mod standing;
mod tree;
mod parents;
mod marks;
mod assemble;
mod clock;
// From trees to answers.
mod state;
mod scope;
mod ending;
mod waiting;
mod critical;
mod hand_over;
mod gaps;
mod coverage;
mod timestamp;
mod view;
// Trees of objects and Events where no span is known.
pub mod evidence;
mod evidence_events;

#[cfg(test)]
mod testing;

pub use assemble::assemble;
pub use block::{Block, BlockError, MAX_BLOCK, StoredRecord};
pub use builder::encode;
pub use collect::{Collector, start_recording};
pub use coverage::coverage;
pub use critical::{critical_path, end_of};
pub use elsewhere::{Elsewhere, Wanted, records_of_server};
pub use gaps::name_gaps;
pub use handle::{Batch, CollectorHandle, Counters, IngestError};
pub use keep::{Keep, Limits};
pub use keep_error::KeepError;
pub use known::Known;
pub use recover::{Recovered, recover};
pub use roots::{RootSummary, roots};
pub use search::{Found, Group, Question, find};
pub use spool::{Position, Spooled};
pub use standing::{Cause, Standing};
pub use state::{State, state_of};
pub use taken::Taken;
pub use timestamp::{format_timestamp, parse_timestamp};
pub use tree::{ObjectKey, Piece, SpanIx, SpanNode, TracedObject, Tree};
pub use usual::Usual;
pub use view::{KeptView, ObjectView, PieceView, RootView, SpanView, SummaryView, TraceView, view, view_of};
pub use waiting::AUTOSCALERS;
