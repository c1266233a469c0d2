//! Records for tests.

use std::time::Duration;

use coracle_trace::{Flags, Moment, Record, SpanId, Stage, TraceId, Uid};

use crate::block::StoredRecord;
use crate::keep::Limits;
use crate::tree::{SpanIx, SpanNode, Tree, link};

/// Unix time that tests begin at.
pub(crate) const BEGIN: u64 = 1_763_287_200_000_000_000;
pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn record(stage: Stage, span: u64, parent: SpanId, start: u64, duration: u64) -> StoredRecord {
    StoredRecord {
        record: Record {
            stage,
            flags: Flags(0),
            code: 0,
            span: SpanId(span),
            parent,
            trace: TraceId::NONE,
            subject: Uid(0),
            revision: 0,
            start: Moment::MAX,
            duration: duration * MS,
        },
        start: BEGIN + start * MS,
        details: None,
        text: String::new(),
        node: String::new(),
        uncertainty: 0,
    }
}

impl StoredRecord {
    pub(crate) fn about(mut self, uid: u128, revision: u64) -> Self {
        (self.record.subject, self.record.revision) = (Uid(uid), revision);
        self
    }

    pub(crate) fn says(mut self, text: &str) -> Self {
        self.text = text.to_owned();
        self
    }
}

/// A write whose own id is its revision.
pub(crate) fn write_record(uid: u128, revision: u64, text: &str) -> StoredRecord {
    record(Stage::Write, revision, SpanId::NONE, revision, 1).about(uid, revision).says(text)
}

/// Records of tests are old.
pub(crate) fn limits(bytes: u64) -> Limits {
    Limits { bytes, age: Duration::MAX }
}

/// A span of a tree, times in milliseconds.
pub(crate) fn node(stage: Stage, parent: Option<SpanIx>, start: u64, end: u64) -> SpanNode {
    SpanNode {
        id: SpanId::fresh(),
        parent,
        children: Vec::new(),
        stage,
        name: String::new(),
        text: String::new(),
        object: None,
        revision: 0,
        node: String::new(),
        start: BEGIN + start * MS,
        end: Some(BEGIN + end * MS),
        uncertainty: 0,
        code: 0,
        flags: Flags(0),
    }
}

/// A tree of spans whose first is the root.
pub(crate) fn tree(mut spans: Vec<SpanNode>) -> Tree {
    link(&mut spans);
    let now = spans.iter().filter_map(|span| span.end).max().unwrap_or(BEGIN);
    Tree {
        root: 0,
        spans,
        objects: Vec::new(),
        notes: Vec::new(),
        trace: TraceId(1),
        remote: SpanId::NONE,
        now,
    }
}
