//! The newest traces.

use std::collections::{HashMap, HashSet};

use coracle_trace::{Flags, Record, SpanId, Stage, TraceId, Uid};

use crate::assemble::name_and_text;
use crate::block::StoredRecord;
use crate::keep::Keep;
use crate::keep_error::KeepError;
use crate::pieces::Pieces;
use crate::tree::ObjectKey;

/// What a trace begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootSummary {
    /// The first object that was written.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Uid,
    /// What was done with it.
    pub verb: String,
    /// The trace id of the root.
    pub trace: TraceId,
    /// When the root began, in nanoseconds of unix time.
    pub start: u64,
    /// When the root itself ended.
    pub end: u64,
    /// The request or the write was refused, or failed.
    pub failed: bool,
    /// The user of a request; nothing for turns of control loops.
    pub user: String,
    /// The program of a request as it names itself, or the control loop.
    pub program: String,
}

/// Requests and turns of control loops that nothing else caused and that wrote something, newest first.
pub fn roots(keep: &Keep, since: u64, limit: usize) -> Result<Vec<RootSummary>, KeepError> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    Pieces::open(keep)?.each_newest(&[], since, &mut |records| {
        let mut writes: HashMap<SpanId, &StoredRecord> = HashMap::new();
        for write in records.iter().filter(|stored| stored.record.stage == Stage::Write) {
            let first = writes.entry(write.record.parent).or_insert(write);
            if write.start < first.start {
                *first = write;
            }
        }
        for root in records.iter().filter(|stored| stored.end() >= since && is_root(&stored.record)) {
            if seen.insert(root.record.span) {
                found.extend(summary(root, &writes));
            }
        }
        found.len() < limit
    })?;
    found.sort_by_key(|root: &RootSummary| std::cmp::Reverse(root.start));
    found.truncate(limit);
    Ok(found)
}

fn is_root(record: &Record) -> bool {
    matches!(record.stage, Stage::Request | Stage::Reconcile | Stage::Write)
        && (record.parent.is_none() || record.flags.contains(Flags::REMOTE))
}

/// A root and its first write, which ended just before it and so is nearly always in the same piece.
fn summary(root: &StoredRecord, writes: &HashMap<SpanId, &StoredRecord>) -> Option<RootSummary> {
    let write = if root.record.stage == Stage::Write { root } else { writes.get(&root.record.span)? };
    let (verb, key) = ObjectKey::of_write(&write.text)?;
    let (user, program) = author(root);
    Some(RootSummary {
        key,
        uid: write.record.subject,
        verb: verb.to_owned(),
        trace: root.record.trace,
        start: root.start,
        end: root.end(),
        failed: root.record.flags.contains(Flags::FAILED) || write.record.flags.contains(Flags::FAILED),
        user: user.to_owned(),
        program: program.to_owned(),
    })
}

/// User and program of a root.
fn author(root: &StoredRecord) -> (&str, &str) {
    let (name, text) = name_and_text(root.record.stage, &root.text);
    match root.record.stage {
        Stage::Request => {
            let (user, rest) = text.split_once('\n').unwrap_or((text, ""));
            (user, rest.split(['/', ' ', '\n']).next().unwrap_or_default())
        }
        Stage::Reconcile => ("", name),
        _ => ("", ""),
    }
}
