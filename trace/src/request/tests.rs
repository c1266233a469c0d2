use super::*;
use crate::ids::SpanId;
use crate::scope::{enter, is_detailed};
use crate::span::point;
use crate::write::Verb;

const AUDIT_ID: &str = "11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11";

fn records(recorder: Recorder) -> Vec<(Record, Option<Details>, String)> {
    let mut records = Vec::new();
    let read = recorder
        .read(&mut |record, details, text| records.push((*record, details.copied(), text.to_owned())));
    recorder.release(read);
    records
}

fn remote(flags: u8) -> Option<TraceContext> {
    Some(TraceContext { trace: TraceId(0xabc), span: SpanId(0xdef), flags })
}

#[test]
fn only_requests_that_matter_are_kept() {
    let cases = [
        ("read", None, false, 200, false),
        ("read that was refused", None, false, 403, false),
        ("read that failed", None, false, 500, true),
        ("read that the client records", remote(1), false, 200, true),
        ("read that the client does not record", remote(0), false, 200, false),
        ("write that wrote nothing", None, true, 200, false),
        ("write that was refused", None, true, 409, true),
        ("write of nobody", remote(1), true, 401, false),
    ];
    for (name, context, writes, code, is_kept) in cases {
        let recorder = Recorder::for_tests();
        let mut request = recorder.request(context, writes);
        request.about(AUDIT_ID, "GET", "/api");
        request.finish(code);
        assert_eq!(records(recorder).len(), usize::from(is_kept), "{name}");
        assert!(recorder.open().is_empty());
    }
}

#[test]
fn refused_requests_are_limited() {
    let inner = Recorder::for_tests().inner().expect("it is on");
    for second in [7, 8] {
        let now = Moment(second * 1_000_000_000);
        assert_eq!((0..1000).filter(|_| inner.may_keep(now)).count(), 200);
    }
}

#[test]
fn what_is_recorded_below_keeps_a_request() {
    let recorder = Recorder::for_tests();
    let request = recorder.request(None, false);
    enter(request.scope(), || point(Stage::Exit, "", 0));
    request.finish(200);
    assert_eq!(records(recorder).len(), 2);
}

#[test]
fn a_request_that_is_dropped_was_cancelled() {
    let recorder = Recorder::for_tests();
    let mut request = recorder.request(None, true);
    request.who("alice", "curl");
    drop(request);
    drop(recorder.request(None, false));
    // Nobody has said who that was.
    drop(recorder.request(remote(1), true));
    let records = records(recorder);
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].0.flags, records[0].0.code), (Flags::CANCELLED, 0));
}

#[test]
fn parts_of_the_text_have_lines() {
    let recorder = Recorder::for_tests();
    let mut request = recorder.request(remote(1), true);
    request.about(AUDIT_ID, "POST", "/api/v1/namespaces/default/pods");
    assert_eq!(recorder.open()[0].text.as_str(), "POST /api/v1/namespaces/default/pods");
    request.who("alice\nroot", "kubectl/v1.35.0");
    request.finish(201);
    let mut request = recorder.request(remote(1), true);
    request.about("", "POST", &format!("/{}", "a".repeat(200)));
    request.who(&"b".repeat(50), &"c".repeat(50));
    request.finish(201);
    let records = records(recorder);
    assert_eq!(records[0].2, "POST /api/v1/namespaces/default/pods\nalice root\nkubectl/v1.35.0");
    assert_eq!(records[0].0.subject, Uid::of(AUDIT_ID));
    let lines: Vec<_> = records[1].2.split('\n').map(str::len).collect();
    assert_eq!(lines, [95, 31, 31]);
    assert!(records[1].0.flags.contains(Flags::TRUNCATED) && !records[0].0.flags.contains(Flags::TRUNCATED));
}

#[test]
fn the_context_of_the_client_is_that_of_the_request() {
    let recorder = Recorder::for_tests();
    let request = recorder.request(remote(1), true);
    let scope = request.scope();
    assert_eq!((scope.trace, scope.flags), (TraceId(0xabc), 1));
    assert_eq!(scope.context().map(|context| context.span), Some(scope.span));
    enter(scope, || recorder.write(Verb::Create, "pods", "default", "web").stored(5));
    request.finish(201);
    let records = records(recorder);
    let (write, request) = (records[0].0, records[1].0);
    assert_eq!((request.parent, request.trace), (SpanId(0xdef), TraceId(0xabc)));
    assert!(request.flags.contains(Flags::REMOTE | Flags::SAMPLED));
    assert_eq!((write.parent, write.trace, write.flags), (request.span, TraceId(0xabc), Flags::SAMPLED));
    assert_eq!(recorder.contexts().and_then(|contexts| contexts.get(5)), Some((TraceId(0xabc), 1)));
}

#[test]
fn marks_and_sums_are_ambient() {
    let recorder = Recorder::for_tests();
    let request = recorder.request(None, true);
    let write = enter(request.scope(), || {
        mark(RequestMark::Authenticated);
        mark(RequestMark::Decoded);
        recorder.write(Verb::Create, "pods", "default", "web")
    });
    enter(write.scope(), || {
        mark(RequestMark::Handled);
        add(Sum::Store, Duration::from_micros(64));
        add(Sum::MutatingWebhook, Duration::from_micros(640));
        add(Sum::ValidatingWebhook, Duration::from_micros(64));
    });
    write.discard();
    let times = request.finish(409);
    let marked: Vec<_> = (0..16).filter(|mark| times.marks[*mark].is_some()).collect();
    assert_eq!(
        marked,
        [RequestMark::Authenticated as usize, RequestMark::Decoded as usize, RequestMark::Handled as usize]
    );
    assert!(
        times.marks[0] <= times.marks[5] && times.marks[6] <= Some(times.total + Duration::from_nanos(64))
    );
    assert_eq!((times.webhooks, times.store), (Duration::from_micros(704), Duration::from_micros(64)));
    assert_eq!(times.mutating_webhooks, Duration::from_micros(640));
    let details = records(recorder)[0].1.expect("marks");
    assert!(details.mark(5).is_some() && details.mark(4).is_none());
}

#[test]
fn reads_have_marks_and_are_dropped_unless_they_matter() {
    for (code, is_kept) in [(200, false), (500, true)] {
        let recorder = Recorder::for_tests();
        let request = recorder.request(None, false);
        enter(request.scope(), || {
            mark(RequestMark::Authenticated);
            mark(RequestMark::Handled);
            add(Sum::FlowQueue, Duration::from_millis(1));
        });
        assert_eq!(recorder.open()[0].details, Details::NONE, "nobody looks at what a read does now");
        let times = request.finish(code);
        let marked = |mark: RequestMark| times.marks[mark as usize];
        assert!(marked(RequestMark::Authenticated).is_some() && marked(RequestMark::Decoded).is_none());
        assert!(marked(RequestMark::Handled) >= marked(RequestMark::Authenticated));
        assert_eq!(times.queued, Duration::from_millis(1));
        let kept: Vec<_> = records(recorder).into_iter().map(|(_, details, _)| details).collect();
        assert_eq!(kept.len(), usize::from(is_kept));
        assert!(kept.iter().all(|details| details.is_some_and(|details| details.mark(6).is_some())));
    }
}

#[test]
fn a_full_table_takes_no_time_from_a_request() {
    let recorder = Recorder::for_tests();
    let others: Vec<_> = (0..64).map(|_| recorder.request(None, true)).collect();
    let request = recorder.request(None, true);
    assert!(request.scope().holder.is_none(), "the table is full");
    enter(request.scope(), || {
        mark(RequestMark::Decoded);
        add(Sum::ValidatingWebhook, Duration::from_millis(7));
    });
    let times = request.finish(201);
    assert_eq!(times.webhooks, Duration::from_millis(7));
    assert!(times.marks[RequestMark::Decoded as usize].is_some());
    drop(others);
}

#[test]
fn details_are_limited() {
    let recorder = Recorder::for_tests();
    let is_detailed_request = |flags| {
        let request = recorder.request(remote(flags), true);
        assert_eq!(request.is_detailed(), enter(request.scope(), is_detailed));
        request.is_detailed()
    };
    assert!(!is_detailed_request(0));
    // The second may change meanwhile.
    let detailed = (0..400).filter(|_| is_detailed_request(1)).count();
    assert!((100..=200).contains(&detailed), "{detailed}");
    assert!(!is_detailed());
}

#[test]
fn without_a_recorder_there_are_times() {
    let mut request = Recorder::OFF.request(remote(1), true);
    request.about(AUDIT_ID, "GET", "/");
    request.who("alice", "curl");
    assert!(!request.is_detailed() && !request.scope().recorder.is_on());
    enter(request.scope(), || {
        mark(RequestMark::Authorized);
        add(Sum::MutatingWebhook, Duration::from_millis(2));
        measured(Sum::Serialize, || std::thread::sleep(Duration::from_millis(1)));
    });
    let times = request.finish(200);
    assert!(times.total >= times.serialize && times.serialize >= Duration::from_millis(1));
    assert_eq!(times.transform, Duration::ZERO);
    assert!(times.marks[RequestMark::Authorized as usize].is_some());
    assert_eq!(times.webhooks, Duration::from_millis(2));
}
