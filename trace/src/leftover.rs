use std::sync::atomic::AtomicU64;

use crate::clock::Moment;
use crate::ids::TraceId;
use crate::open::{self, OpenSpan};
use crate::record::{Details, Flags, Record};
use crate::recorder::Sizes;
use crate::{contexts, ring, slot};

/// What a process that ended without notice left in its memory. Its moments are those of the clock of that process.
#[derive(Debug, Clone)]
pub struct Leftover {
    /// Complete records that were not released, oldest first within a shard.
    pub records: Vec<(Record, Option<Details>, String)>,
    /// Spans that had not ended: unfinished, with the time until [`Leftover::newest`].
    pub open: Vec<OpenSpan>,
    /// Revisions with their traces and flags, oldest first.
    pub contexts: Vec<(u64, TraceId, u8)>,
    /// The newest moment in records and open spans: the process lived at least until then.
    pub newest: Moment,
}

/// Reads the memory of a recorder whose process is gone, before a new one is made of it.
///
/// # Panics
///
/// If the memory is smaller than [`Recorder::words`](crate::Recorder::words) of the sizes.
pub fn leftover(memory: &[AtomicU64], sizes: Sizes) -> Leftover {
    let [ring_end, open_end, contexts_end] = sizes.ends();
    let shards = memory[..ring_end].chunks_exact(sizes.slots * slot::SLOT);
    let records: Vec<_> = shards
        .flat_map(ring::left)
        .map(|(record, details, text)| (record, details, text.as_str().to_owned()))
        .collect();
    let mut open = open::spans(&memory[ring_end..open_end], Moment::MAX);
    let newest = newest(&records, &open);
    for OpenSpan { record, .. } in &mut open {
        record.flags |= Flags::UNFINISHED;
        record.duration = newest.nanos_since(record.start);
    }
    Leftover { records, open, contexts: contexts::left(&memory[open_end..contexts_end]), newest }
}

fn newest(records: &[(Record, Option<Details>, String)], open: &[OpenSpan]) -> Moment {
    let ends = records.iter().map(|(record, ..)| record.start.0.saturating_add(record.duration));
    let marks = open.iter().map(|span| {
        let last = span.details.marks.into_iter().max().unwrap_or(0);
        span.record.start.0.saturating_add(u64::from(last) * Details::UNIT)
    });
    Moment(ends.chain(marks).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::ids::{SpanId, Uid};
    use crate::recorder::Recorder;
    use crate::request::{RequestMark, mark};
    use crate::scope::{Scope, enter};
    use crate::span::{stage, stage_named};
    use crate::stage::Stage;
    use crate::write::Verb;

    fn memory() -> &'static [AtomicU64] {
        Vec::leak((0..Recorder::words(Sizes::TEST)).map(|_| AtomicU64::new(0)).collect())
    }

    #[test]
    fn an_empty_memory_has_nothing() {
        let found = leftover(memory(), Sizes::TEST);
        assert!(found.records.is_empty() && found.open.is_empty() && found.contexts.is_empty());
        let memory = memory();
        let recorder = Recorder::on(memory, Sizes::TEST, Clock::start());
        assert!(recorder.is_on());
        assert!(leftover(memory, Sizes::TEST).records.is_empty());
    }

    #[test]
    fn records_open_spans_and_contexts_are_found() {
        let memory = memory();
        let recorder = Recorder::on(memory, Sizes::TEST, Clock::start());
        let pod = Scope::of_pod(recorder, Uid(7), 1);
        // More than once around the ring, and the last ten are not released.
        for n in 0..100 {
            enter(pod, || drop(stage_named(Stage::Volume, &format!("volume {n} {}", "x".repeat(n)))));
            if n < 90 {
                recorder.release(recorder.read(&mut |_, _, _| ()));
            }
        }
        let request = recorder.request(None, true);
        let scope = request.scope();
        std::thread::sleep(std::time::Duration::from_millis(2));
        enter(scope, || mark(RequestMark::Authorized));
        let mut write = enter(scope, || recorder.write(Verb::Create, "pods", "default", "web"));
        write.stored(77);
        let start = enter(pod, || stage(Stage::PodStart));

        let found = leftover(memory, Sizes::TEST);
        let numbers: Vec<_> =
            found.records.iter().map(|(_, _, text)| text.split(' ').nth(1).expect("a number")).collect();
        assert_eq!(numbers, ["90", "91", "92", "93", "94", "95", "96", "97", "98", "99"]);
        let mut stages: Vec<_> = found.open.iter().map(|span| span.record.stage).collect();
        stages.sort_unstable();
        assert_eq!(stages, [Stage::Request, Stage::Write, Stage::PodStart]);
        for span in &found.open {
            assert!(span.record.flags.contains(Flags::UNFINISHED));
            assert!(span.record.start.0 + span.record.duration <= found.newest.0.max(span.record.start.0));
        }
        let request_span =
            found.open.iter().find(|span| span.record.stage == Stage::Request).expect("the request");
        assert!(
            request_span
                .details
                .mark(RequestMark::Authorized as usize)
                .is_some_and(|nanos| nanos >= 2_000_000)
        );
        assert_eq!(found.contexts, [(77, scope.trace, 0)]);
        assert_eq!(start.id(), SpanId::of_stage(Uid(7), Stage::PodStart));

        let again = Recorder::on(memory, Sizes::TEST, Clock::start());
        assert!(again.open().is_empty());
        assert_eq!(again.read(&mut |_, _, _| ()).records(), 0);
    }
}
