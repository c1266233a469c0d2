#![allow(clippy::unwrap_used)]

use coracle_trace::{Moment, OpenSpan, SpanId, Uid, Verb};

use super::*;
use crate::handle::IngestError;
use crate::search::{Found, Question, find};
use crate::taken::Taken;
use crate::testing::{limits, record, write_record};

const UID: &str = "11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11";

fn keep(dir: &tempfile::TempDir) -> Keep {
    Keep::open(dir.path(), limits(1 << 20)).unwrap()
}

fn ask(handle: &CollectorHandle, open: &[OpenSpan]) -> Found {
    handle.flushed();
    find(handle.keep(), open, &Question { uid: Some(Uid::of(UID)), last: 9, ..Question::default() }).unwrap()
}

fn batch(blocks: Vec<u8>) -> Batch {
    Batch { node: "node1".into(), offset: 0, uncertainty: 0, boot: 9, blocks, taken: Taken::default() }
}

fn write(recorder: Recorder, revision: u64) {
    let mut write = recorder.write(Verb::Create, "pods", "default", "web");
    write.object(UID, "web");
    write.stored(revision);
}

#[test]
fn what_was_recorded_is_found_after_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let (recorder, handle) = start_recording(None, Sizes::TEST, keep(&dir));
    let blocks = handle.subscribe();
    write(recorder, 42);
    let found = ask(&handle, &[]);
    assert_eq!(found.groups.len(), 1);
    let stored = &found.groups[0].records[0].stored;
    assert!(stored.start.abs_diff(now()) < 60_000_000_000);
    assert_eq!(stored.text, "create pods default/web");
    assert_eq!(blocks.recv().unwrap().records().unwrap().len(), 1);
    assert_eq!(handle.counters().records, 1);
    handle.stop();
    handle.flushed();
    handle.stop();
    // Subscriptions end with the collector.
    blocks.iter().for_each(drop);
    assert!(handle.subscribe().recv().is_err());
}

/// It is open when the question begins, and may be neither on disk nor open any more when that looks.
#[test]
fn a_span_that_ends_while_it_is_asked_for_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (recorder, handle) = start_recording(None, Sizes::TEST, keep(&dir));
    for revision in 1..=200 {
        let mut write = recorder.write(Verb::Create, "pods", "default", "web");
        write.object(UID, "web");
        let (span, asker) = (write.scope().span, handle.clone());
        let question = Question { uid: Some(Uid::of(UID)), last: 1, ..Question::default() };
        let asked = thread::spawn(move || asker.find(&question).unwrap());
        write.stored(revision);
        let found = asked.join().unwrap();
        assert!(!found.behind);
        let mut spans = found.groups.iter().flat_map(|group| &group.records);
        assert!(spans.any(|known| known.stored.record.span == span), "{revision}: {found:?}");
    }
    handle.stop();
}

/// Nobody asks, and the collector sleeps: the record wakes it.
#[test]
fn a_record_is_written_soon() {
    let dir = tempfile::tempdir().unwrap();
    let (recorder, handle) = start_recording(None, Sizes::TEST, keep(&dir));
    let blocks = handle.subscribe();
    for revision in 1..=3 {
        write(recorder, revision);
        let block = blocks.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(block.records().unwrap()[0].record.revision, revision);
    }
    handle.stop();
}

#[test]
fn a_killed_process_leaves_finished_and_unfinished_spans() {
    let (dir, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let path = shared.path().join("spans");
    // The first process has no collector: nothing is written.
    let (memory, _) = shared_memory::open(&path, Sizes::TEST).unwrap();
    let killed = memory.start_unlocked(Clock::start());
    write(killed, 42);
    let mut open = killed.write(Verb::Update, "pods", "default", "web");
    open.object(UID, "web");

    let (recorder, handle) = start_recording(Some(&path), Sizes::TEST, keep(&dir));
    assert!(recorder.contexts().unwrap().get(42).is_some());
    let found = ask(&handle, &[]);
    let mut records: Vec<_> = found.groups.iter().flat_map(|group| &group.records).collect();
    records.sort_by_key(|known| known.stored.start);
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].stored.record.revision, 42);
    assert!(records[1].stored.record.flags.contains(coracle_trace::Flags::UNFINISHED));
    assert_eq!(found.markers.len(), 1);
    assert!(found.markers[0].text.starts_with("killed"));
    drop(open);
}

#[test]
fn spans_of_nodes_get_the_time_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let handle = Collector::start(Recorder::OFF, keep(&dir));
    let mut pod = write_record(Uid::of(UID).0, 3, "bind pods default/web");
    pod.node = "liar".into();
    pod.start = now() - 1_000_000_000;
    let blocks = encode(std::slice::from_ref(&pod)).remove(0).bytes;
    let batch = Batch { offset: -5_000, uncertainty: 70, ..batch(blocks) };
    handle.ingest(batch.clone(), drop).unwrap();
    let found = ask(&handle, &[]);
    let stored = &found.groups[0].records[0].stored;
    assert_eq!((stored.node.as_str(), stored.start, stored.uncertainty), ("node1", pod.start - 5_000, 70));
    pod.record.span = SpanId(77);
    (pod.start, pod.record.duration) = (u64::MAX, u64::MAX);
    handle.ingest(Batch { blocks: encode(&[pod]).remove(0).bytes, ..batch.clone() }, drop).unwrap();
    let found = ask(&handle, &[]);
    assert!(
        found.groups.iter().flat_map(|group| &group.records).all(|known| known.stored.end() <= now() + AHEAD)
    );
    let mut damaged = batch;
    damaged.blocks.push(1);
    assert!(matches!(handle.ingest(damaged, drop), Err(IngestError::Block(_))));
}

/// Whether a batch was written, when that is known.
fn is_written(handle: &CollectorHandle, batch: Batch) -> bool {
    let (sender, written) = std::sync::mpsc::channel();
    handle.ingest(batch, move |is_written| sender.send(is_written).unwrap()).unwrap();
    written.recv_timeout(Duration::from_secs(60)).unwrap()
}

/// As after the end of a process that is killed.
#[test]
fn what_a_node_delivered_is_on_disk_when_it_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let handle = Collector::start(Recorder::OFF, keep(&dir));
    let pod = write_record(Uid::of(UID).0, 3, "bind pods default/web");
    for until in [100, 200] {
        let blocks = encode(std::slice::from_ref(&pod)).remove(0).bytes;
        assert!(is_written(&handle, Batch { taken: Taken { spool: 7, until }, ..batch(blocks) }));
    }
    // Nobody has stopped the collector.
    let reopened = keep(&dir);
    let question = Question { uid: Some(Uid::of(UID)), last: 1, ..Question::default() };
    assert_eq!(find(&reopened, &[], &question).unwrap().groups.len(), 1);
    let next = Collector::start(Recorder::OFF, reopened);
    assert_eq!(next.taken("node1").unwrap(), Some(Taken { spool: 7, until: 200 }));
    assert_eq!(next.taken("node2").unwrap(), None);
}

#[test]
fn a_node_is_told_that_nothing_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let handle = Collector::start(Recorder::OFF, keep(&dir));
    let pod = write_record(Uid::of(UID).0, 3, "bind pods default/web");
    let blocks = encode(std::slice::from_ref(&pod)).remove(0).bytes;
    std::fs::remove_dir_all(dir.path()).unwrap();
    assert!(!is_written(&handle, batch(blocks.clone())));
    std::fs::create_dir(dir.path()).unwrap();
    assert!(is_written(&handle, batch(blocks)), "as soon as the disk works again");
}

#[test]
fn open_spans_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let (recorder, handle) = start_recording(None, Sizes::TEST, keep(&dir));
    let mut open = recorder.write(Verb::Create, "pods", "default", "web");
    open.object(UID, "web");
    let found = ask(&handle, &recorder.open());
    assert!(found.groups[0].records[0].open);
    assert!(found.groups[0].records[0].stored.start.abs_diff(now()) < 60_000_000_000);
    open.stored(7);
    drop(open);
    assert!(!ask(&handle, &recorder.open()).groups[0].records[0].open);
}

#[test]
fn a_full_ring_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::for_tests();
    let handle = Collector::start(recorder, keep(&dir));
    handle.flushed();
    let blocks = handle.subscribe();
    let mut read = Vec::new();
    for revision in 0..10_000 {
        recorder.span_at(Stage::Attempt, SpanId(1), (Uid(1), revision), Moment(5), Moment(6), "", 0);
        // As many blocks as the subscriber may be behind could come of one record each.
        if revision % 32 == 0 {
            read.extend(blocks.try_iter());
        }
    }
    handle.flushed();
    handle.flushed();
    read.extend(blocks.try_iter());
    let lost = handle.counters().lost;
    let records: Vec<_> = read.iter().flat_map(|block| block.records().unwrap()).collect();
    let noted: u64 = records
        .iter()
        .filter(|stored| stored.record.stage == Stage::Lost)
        .map(|stored| stored.record.revision)
        .sum();
    let attempts = records.iter().filter(|stored| stored.record.stage == Stage::Attempt).count() as u64;
    assert_eq!(noted, lost);
    assert_eq!(attempts + lost, 10_000);
}

#[test]
fn a_slow_subscriber_is_told_what_it_missed() {
    let (sender, receiver) = sync_channel(2);
    let mut subscriber = Subscriber { sender, missed: 0 };
    let block = Arc::new(encode(&[record(Stage::Other, 1, SpanId::NONE, 0, 1)]).remove(0));
    for _ in 0..5 {
        assert!(hand_out(&mut subscriber, &block));
    }
    assert_eq!(subscriber.missed, 3);
    assert_eq!(receiver.try_iter().count(), 2);
    assert!(hand_out(&mut subscriber, &block));
    let lost = receiver.recv().unwrap().records().unwrap();
    assert_eq!((lost[0].record.stage, lost[0].record.revision), (Stage::Lost, 3));
    assert_eq!(receiver.recv().unwrap(), block);
    drop(receiver);
    assert!(!hand_out(&mut subscriber, &block));
}
