//! A record of an answer, and which of two records of one span says more.

use coracle_trace::{Flags, Record, Stage};

use crate::block::StoredRecord;

/// A record, and whether its span has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// Of an open span up to now.
    pub stored: StoredRecord,
    /// Whether it goes on.
    pub open: bool,
}

impl Known {
    /// Takes in a second record of the same span. What a node tells once, and again after its restart if it was killed before anybody
    /// heard of it, is what it told first. The start and the end of a pod go on in the agent after its restart: they began with
    /// the first record, and because of the write that this one names.
    pub(crate) fn merge(
        &mut self,
        record: &Record,
        node: &str,
        open: bool,
        start: u64,
        stored: impl FnOnce() -> StoredRecord,
    ) {
        if is_told_once(record.stage) && node == self.stored.node {
            if start < self.stored.start {
                *self = Known { stored: stored(), open };
            }
            return;
        }
        let goes_on = record.stage.is_single() && node == self.stored.node;
        let began = if goes_on { start.min(self.stored.start) } else { u64::MAX };
        let own = &self.stored.record;
        let causes = [(own.revision, own.parent), (record.revision, record.parent)];
        let cause = causes.into_iter().filter(|(revision, _)| goes_on && *revision != 0);
        let cause = cause.min_by_key(|(revision, _)| *revision);
        if is_better(record, node, open, self) {
            *self = Known { stored: stored(), open };
        }
        if let Some(cause) = cause {
            (self.stored.record.revision, self.stored.record.parent) = cause;
        }
        let earlier = self.stored.start.saturating_sub(began);
        self.stored.start -= earlier;
        self.stored.record.duration = self.stored.record.duration.saturating_add(earlier);
    }
}

/// Whether an agent that was restarted may tell the same again, later.
fn is_told_once(stage: Stage) -> bool {
    matches!(stage, Stage::Seen | Stage::Ready)
}

/// Whether a second record of a span says more than the first: finished beats unfinished, then the longer one. Nodes make ids
/// themselves: a record of one replaces nobody else's.
fn is_better(record: &Record, node: &str, open: bool, than: &Known) -> bool {
    if node != than.stored.node {
        return node.is_empty();
    }
    let rank = |record: &Record, open: bool| {
        let unfinished = record.flags.contains(Flags::UNFINISHED);
        (!open && !unfinished, open, record.duration)
    };
    rank(record, open) > rank(&than.stored.record, than.open)
}

#[cfg(test)]
mod tests {
    use coracle_trace::SpanId;

    use super::*;
    use crate::testing::{BEGIN, MS, record};

    #[test]
    fn what_a_restarted_agent_tells_again_is_what_it_told_first() {
        let told = |at, duration| {
            let stored = record(Stage::Seen, 7, SpanId(1), at, duration);
            StoredRecord { node: "n1".to_owned(), ..stored }
        };
        for (first, second) in [(told(5, 1), told(90, 4)), (told(90, 4), told(5, 1))] {
            let mut known = Known { stored: first, open: false };
            let (again, node, start) = (second.record, second.node.clone(), second.start);
            known.merge(&again, &node, false, start, || second);
            assert_eq!((known.stored.start, known.stored.record.duration), (BEGIN + 5 * MS, MS));
        }
    }
}
