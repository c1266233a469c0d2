use super::*;
use crate::cause::Rank;
use crate::clock::Moment;
use crate::scope::{caused_by, enter};

const UID: &str = "11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11";

fn records(recorder: Recorder) -> Vec<(Record, Option<Details>, String)> {
    let mut records = Vec::new();
    let read = recorder
        .read(&mut |record, details, text| records.push((*record, details.copied(), text.to_owned())));
    recorder.release(read);
    records
}

fn owner(revision: u64) -> Cause {
    Cause { uid: Uid(0x77), revision, rank: Rank::Spec, since: Moment(0) }
}

#[test]
fn a_write_has_its_object_owner_and_marks() {
    let recorder = Recorder::for_tests();
    let mut write = recorder.write(Verb::Create, "pods", "default", "");
    write.object(UID, "web-1");
    write.owner("22d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11");
    enter(write.scope(), || {
        write_mark(WriteMark::Mutated);
        write_mark(WriteMark::Stored);
    });
    let open = recorder.open()[0];
    assert_eq!((open.record.subject, open.details.owner.0 >> 120), (Uid::of(UID), 0x22));
    write.stored(42);
    enter(write.scope(), || write_mark(WriteMark::Visible));
    drop(write);
    let records = records(recorder);
    let (record, details, text) = &records[0];
    let details = details.expect("marks");
    assert_eq!(text, "create pods default/web-1");
    assert_eq!(
        (record.subject, record.revision, record.flags, record.code),
        (Uid::of(UID), 42, Flags::NONE, 0)
    );
    assert_eq!(details.owner.to_string(), "22d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11");
    let marked: Vec<_> = (0..16).filter(|mark| details.mark(*mark).is_some()).collect();
    assert_eq!(
        marked,
        [WriteMark::Mutated as usize, WriteMark::Stored as usize, WriteMark::Visible as usize]
    );
    assert_eq!(recorder.contexts().and_then(|contexts| contexts.get(42)), Some((record.trace, 0)));
    assert!(!record.trace.is_none() && record.parent.is_none());
}

#[test]
fn a_write_ends_in_one_of_four_ways() {
    let recorder = Recorder::for_tests();
    let write = || recorder.write(Verb::Update, "nodes", "", "node1");
    write().stored(5);
    write().refused(409);
    drop(write());
    write().discard();
    let found: Vec<_> =
        records(recorder).iter().map(|(record, _, text)| (record.flags, record.code, text.clone())).collect();
    let text = || "update nodes node1".to_owned();
    assert_eq!(
        found,
        [(Flags::NONE, 0, text()), (Flags::FAILED, 409, text()), (Flags::CANCELLED, 0, text())]
    );
    assert!(recorder.open().is_empty());
    let mut off = Recorder::OFF.write(Verb::Bind, "pods", "default", "web");
    off.object(UID, "web");
    off.stored(7);
}

#[test]
fn marks_of_nested_writes_do_not_mix() {
    let recorder = Recorder::for_tests();
    let mut outer = recorder.write(Verb::Create, "pods", "default", "web");
    enter(outer.scope(), || {
        write_mark(WriteMark::Prepared);
        let mut inner = recorder.write(Verb::Update, "resourcequotas", "default", "quota");
        inner.inferred(owner(3));
        enter(inner.scope(), || write_mark(WriteMark::Stored));
        inner.stored(6);
    });
    outer.stored(7);
    drop(outer);
    let records = records(recorder);
    let marks =
        |at: usize| records[at].1.map(|details| (details.mark(0).is_some(), details.mark(6).is_some()));
    assert_eq!((marks(0), marks(1)), (Some((false, true)), Some((true, false))));
    assert_eq!((records[0].0.parent, records[0].0.trace), (records[1].0.span, records[1].0.trace));
    assert!(!records[0].0.flags.contains(Flags::INFERRED), "the outer write is its parent");
}

#[test]
fn only_the_marks_of_the_last_try_count() {
    let recorder = Recorder::for_tests();
    let mut write = recorder.write(Verb::Patch, "pods", "default", "web");
    enter(write.scope(), || write_mark(WriteMark::Encoded));
    write.retried();
    enter(write.scope(), || write_mark(WriteMark::Prepared));
    write.stored(3);
    drop(write);
    let records = records(recorder);
    let details = records[0].1.expect("marks");
    assert_eq!((details.mark(0).is_some(), details.mark(5)), (true, None));
    assert_eq!(records[0].0.flags, Flags::RETRIED);
}

#[test]
fn a_request_without_context_gets_the_parent_that_its_write_finds() {
    let recorder = Recorder::for_tests();
    recorder.contexts().expect("a table").put(3, TraceId(0x33), 1);
    let request = recorder.request(None, true);
    enter(request.scope(), || {
        let mut write = recorder.write(Verb::Create, "pods", "default", "web");
        write.inferred(owner(3));
        write.inferred(owner(2));
        assert_eq!(write.scope().trace, TraceId(0x33));
        write.stored(4);
    });
    request.finish(201);
    let records = records(recorder);
    let (write, request) = (records[0].0, records[1].0);
    assert_eq!((request.parent, request.trace), (owner(3).span(), TraceId(0x33)));
    assert!(request.flags.contains(Flags::INFERRED) && !write.flags.contains(Flags::INFERRED));
    assert_eq!((write.parent, write.trace), (request.span, TraceId(0x33)));
    assert_eq!(recorder.contexts().and_then(|contexts| contexts.get(4)), Some((TraceId(0x33), 1)));
}

#[test]
fn a_request_with_a_context_keeps_its_parent() {
    let recorder = Recorder::for_tests();
    let client = TraceContext { trace: TraceId(0xabc), span: SpanId(0xdef), flags: 0 };
    let request = recorder.request(Some(client), true);
    enter(request.scope(), || {
        let mut write = recorder.write(Verb::Create, "pods", "default", "web");
        write.parent(TraceContext { trace: TraceId(1), span: SpanId(2), flags: 1 });
        write.inferred(owner(3));
        write.stored(4);
    });
    request.finish(201);
    let records = records(recorder);
    assert_eq!((records[0].0.parent, records[0].0.trace), (records[1].0.span, TraceId(0xabc)));
    assert_eq!((records[1].0.parent, records[1].0.flags), (SpanId(0xdef), Flags::REMOTE));
}

#[test]
fn annotation_and_node_are_asked_before_the_owner() {
    let recorder = Recorder::for_tests();
    let annotation = TraceContext { trace: TraceId(1), span: SpanId(2), flags: 1 };
    let mut write = recorder.write(Verb::Create, "pods", "default", "web");
    write.parent(annotation);
    write.inferred(owner(3));
    write.stored(4);
    drop(write);
    recorder.contexts().expect("a table").put(9, TraceId(0x99), 0);
    let mut write = recorder.write(Verb::Patch, "pods", "default", "web");
    write.caused(SpanId(0x50), owner(9));
    write.inferred(owner(3));
    write.stored(10);
    drop(write);
    let records = records(recorder);
    assert_eq!((records[0].0.parent, records[0].0.trace), (SpanId(2), TraceId(1)));
    assert_eq!(records[0].0.flags, Flags::REMOTE | Flags::SAMPLED);
    assert_eq!((records[1].0.parent, records[1].0.trace), (SpanId(0x50), TraceId(0x99)));
    assert_eq!(records[1].0.flags, Flags::NONE);
}

#[test]
fn an_ambient_cause_is_a_parent() {
    let recorder = Recorder::for_tests();
    caused_by(owner(3), || recorder.write(Verb::Create, "events", "default", "e").stored(4));
    let records = records(recorder);
    assert_eq!((records[0].0.parent, records[0].0.trace), (owner(3).span(), TraceId::NONE));
    assert_eq!(recorder.contexts().and_then(|contexts| contexts.get(4)), None);
}
