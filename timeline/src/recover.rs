//! After a crash: what the process before this one had recorded and not written.

use std::collections::HashMap;

use coracle_trace::{Details, Flags, Moment, OpenSpan, Record, Recorder, SpanId, Stage, TraceId, Uid};

use crate::block::StoredRecord;
use crate::keep::{Keep, now};
use crate::keep_error::KeepError;
use crate::shared_memory::Left;
use crate::timestamp::format_timestamp;

/// What was found in the memory of the process before this one.
#[derive(Debug)]
pub struct Recovered {
    /// Finished spans.
    pub records: usize,
    /// Spans that the end of the process cut off.
    pub unfinished: usize,
    /// Starts and ends of pods among them, by uid and stage: the revision that they began with.
    pub cut: HashMap<(Uid, Stage), u64>,
    contexts: Vec<(u64, TraceId, u8)>,
}

impl Recovered {
    /// Gives a new recorder the traces of the newest revisions.
    pub fn restore(self, recorder: Recorder) {
        let Some(contexts) = recorder.contexts() else { return };
        for (revision, trace, flags) in self.contexts {
            contexts.put(revision, trace, flags);
        }
    }
}

/// Appends finished and unfinished spans of the process before this one.
///
/// If this process is killed meanwhile, the next one does it again: readers drop the second record of a span.
pub fn recover(keep: &Keep, left: &Left) -> Result<Recovered, KeepError> {
    let found = left.read();
    let stored = |record: Record, details: Option<Details>, text: &str| {
        stored(record, details, text, left.epoch().saturating_add(record.start.0))
    };
    let mut records: Vec<StoredRecord> =
        found.records.iter().map(|(record, details, text)| stored(*record, *details, text)).collect();
    let starts = found.open.iter().map(|open| left.epoch().saturating_add(open.record.start.0));
    let newest = records.iter().map(StoredRecord::end).chain(starts).max();
    let finished = records.len();
    for open in found.open.iter().filter(|open| is_worth_keeping(open)) {
        let mut unfinished = stored(open.record, Some(open.details), open.text.as_str());
        unfinished.record.flags.insert(Flags::UNFINISHED);
        unfinished.record.duration = newest.unwrap_or_default().saturating_sub(unfinished.start);
        records.push(unfinished);
    }
    let unfinished = records.len() - finished;
    let how = if records.is_empty() { "stopped" } else { "killed" };
    records.push(restarted(newest, how));
    keep.append_records(&records)?;
    let single = found.open.iter().map(|open| &open.record).filter(|record| record.stage.is_single());
    let cut = single.map(|record| ((record.subject, record.stage), record.revision)).collect();
    Ok(Recovered { records: finished, unfinished, cut, contexts: found.contexts })
}

/// Requests that only read are open all the time (watches): that they were cut off explains nothing.
fn is_worth_keeping(open: &OpenSpan) -> bool {
    let text = open.text.as_str();
    open.record.stage != Stage::Request || !(text.starts_with("GET ") || text.starts_with("HEAD "))
}

/// Says that the process began anew: from the last sign of the one before it, if that is known, until now.
pub(crate) fn restarted(since: Option<u64>, how: &str) -> StoredRecord {
    let now = now();
    let since = since.unwrap_or(now).min(now);
    marker(
        Stage::Restarted,
        since,
        now - since,
        0,
        &format!("{how}\nlast span at {}", format_timestamp(since)),
    )
}

/// A record that is about the recording itself.
pub(crate) fn marker(stage: Stage, start: u64, duration: u64, count: u64, text: &str) -> StoredRecord {
    let record = Record {
        stage,
        flags: Flags(0),
        code: 0,
        span: SpanId::fresh(),
        parent: SpanId::NONE,
        trace: TraceId::NONE,
        subject: Uid::NONE,
        revision: count,
        start: Moment::MAX,
        duration,
    };
    stored(record, None, text, start)
}

/// A record of this machine.
pub(crate) fn stored(record: Record, details: Option<Details>, text: &str, start: u64) -> StoredRecord {
    StoredRecord {
        record: Record { start: Moment::MAX, ..record },
        start,
        details,
        text: text.to_owned(),
        node: String::new(),
        uncertainty: 0,
    }
}
