#![allow(clippy::unwrap_used)]

use coracle_trace::Details;

use super::*;
use crate::assemble::assemble;
use crate::testing::{BEGIN, MS, limits, record, write_record};
use crate::tree::Tree;

const TRACE: TraceId = TraceId(77);

fn kept(records: &[StoredRecord]) -> (tempfile::TempDir, Keep) {
    let dir = tempfile::tempdir().unwrap();
    let keep = Keep::open(dir.path(), limits(1 << 24)).unwrap();
    keep.append_records(records).unwrap();
    (dir, keep)
}

fn below(mut stored: StoredRecord, parent: SpanId) -> StoredRecord {
    stored.record.parent = parent;
    stored
}

fn of_trace(mut stored: StoredRecord) -> StoredRecord {
    stored.record.trace = TRACE;
    stored
}

/// A request of a client with a trace context.
fn request(span: u64, start: u64, text: &str) -> StoredRecord {
    let mut stored = of_trace(record(Stage::Request, span, SpanId(1), start, 1).says(text));
    stored.record.flags.insert(Flags::REMOTE);
    stored
}

fn owned(mut stored: StoredRecord, owner: u128) -> StoredRecord {
    stored.details = Some(Details { owner: Uid(owner), ..Details::NONE });
    stored
}

fn key(resource: &str, name: &str) -> ObjectKey {
    ObjectKey { resource: resource.into(), namespace: "a".into(), name: name.into() }
}

/// The names of the objects of each tree.
fn names(found: Found) -> Vec<Vec<String>> {
    let of_tree = |tree: &Tree| tree.objects.iter().map(|object| object.key.name.clone()).collect();
    assemble(found, BEGIN + 100_000 * MS).iter().map(of_tree).collect()
}

/// Six objects whose controllers wrote more records than are followed up of one object.
fn applied() -> Vec<StoredRecord> {
    let mut records = Vec::new();
    for object in 0..6_u64 {
        let (uid, revision) = (100 + u128::from(object), 1000 + object);
        let begin = 10 * object;
        records.push(request(10 + object, begin, "POST /x\nadmin\nkubectl"));
        let text = format!("create configmaps a/x{object}");
        records.push(of_trace(below(write_record(uid, revision, &text), SpanId(10 + object))));
        for turn in 0..80 {
            let span = 10_000 + 100 * object + turn;
            let cause = SpanId::of_write(Uid(uid), revision);
            records.push(of_trace(record(Stage::Reconcile, span, cause, begin + 2, 1).about(uid, revision)));
        }
    }
    records
}

#[test]
fn everything_that_a_command_asked_for_is_in_its_trace() {
    let mut records = applied();
    // A node reports something about one of the objects long afterwards.
    let report = record(Stage::Request, 900, SpanId(901), 9000, 1).says("PATCH /x\nsystem:node:n1\nagent");
    let reported = below(write_record(100, 9001, "patch configmaps a/x0"), SpanId(900));
    records.extend([of_trace(report), of_trace(reported)]);
    let (_dir, keep) = kept(&records);
    let question = Question { trace: Some(TRACE), last: 100, ..Question::default() };
    let found = find(&keep, &[], &question).unwrap();
    assert!(!found.truncated);
    assert_eq!(found.groups.iter().map(|group| group.records.len()).collect::<Vec<_>>(), [82; 6]);
    assert_eq!(names(found).concat(), ["x5", "x4", "x3", "x2", "x1", "x0"]);
}

#[test]
fn changes_of_a_command_are_shown_before_its_reads_and_what_is_left_out_is_said() {
    let mut records = applied();
    let reads = (0..20).map(|read| request(500 + read, 100 + read, "GET /y\nadmin\nkubectl"));
    records.extend(reads);
    let (_dir, keep) = kept(&records);
    let question = Question { trace: Some(TRACE), last: 6, ..Question::default() };
    let found = find(&keep, &[], &question).unwrap();
    assert!(found.truncated);
    assert_eq!(names(found).concat().len(), 6);
}

#[test]
fn of_a_trace_that_began_elsewhere_the_rest_is_shown() {
    let turn = of_trace(record(Stage::Reconcile, 5, SpanId(99), 3, 2).about(7, 11));
    let made = of_trace(below(write_record(8, 12, "create pods a/web"), SpanId(5)));
    let (_dir, keep) = kept(&[turn, made]);
    let question = Question { trace: Some(TRACE), ..Question::default() };
    assert_eq!(names(find(&keep, &[], &question).unwrap()), [["web"]]);
}

#[test]
fn a_span_that_ended_while_it_was_asked_for_has_ended() {
    let ended = request(10, 0, "POST /x\nadmin\nkubectl");
    let open = Known { stored: ended.clone(), open: true };
    for records in [[true, false], [false, true]] {
        let records = records.map(|is_open| Known { open: is_open, ..open.clone() });
        let known = once(records.to_vec());
        assert_eq!(known.len(), 1);
        assert!(!known[0].open);
    }
}

/// A pod that was made in a Deployment, was ready, and was evicted and replaced much later.
fn evicted(later: bool) -> Vec<StoredRecord> {
    let (pod, other) = (8, 9);
    let start = SpanId::of_stage(Uid(pod), Stage::PodStart);
    let mut on_node = vec![
        record(Stage::PodStart, start.0, SpanId::of_write(Uid(pod), 12), 13, 7).about(pod, 12),
        record(Stage::Ready, 21, start, 19, 0).about(pod, 12),
    ];
    let mut records = vec![
        record(Stage::Request, 10, SpanId::NONE, 9, 3).says("POST /x\nadmin\nkubectl"),
        below(write_record(7, 11, "create deployments.apps a/web"), SpanId(10)),
        record(Stage::Reconcile, 20, SpanId::of_write(Uid(7), 11), 12, 1).about(7, 11).says("rs a/web"),
        owned(below(write_record(pod, 12, "create pods a/old"), SpanId(20)), 7),
    ];
    if later {
        on_node.extend([
            record(Stage::Evicted, 30, SpanId::NONE, 5000, 0).about(pod, 12).says("\nlow on memory"),
            record(Stage::Stop, 31, SpanId(30), 5001, 3).about(pod, 12),
            record(Stage::StatusReport, 32, SpanId(30), 5005, 4).about(pod, 12),
        ]);
        records.extend([
            record(Stage::Request, 40, SpanId(32), 5006, 2).says("PATCH /x\nsystem:node:n1\nagent"),
            owned(below(write_record(pod, 5007, "patch pods a/old"), SpanId(40)), 7),
            record(Stage::Reconcile, 50, SpanId::of_write(Uid(pod), 5007), 5009, 3)
                .about(pod, 5007)
                .says("rs a/web"),
            owned(below(write_record(other, 5010, "create pods a/new"), SpanId(50)), 7),
            below(write_record(7, 5011, "update deployments.apps a/web"), SpanId(50)),
        ]);
    }
    on_node.iter_mut().for_each(|stored| stored.node = "n1".into());
    records.extend(on_node);
    records
}

#[test]
fn an_eviction_is_a_change_of_the_pod_and_no_part_of_its_creation() {
    let ((_before, before), (_after, after)) = (kept(&evicted(false)), kept(&evicted(true)));
    let web = |last| Question { object: Some(key("deployments.apps", "web")), last, ..Question::default() };
    let trees =
        |keep: &Keep, question: &Question| assemble(find(keep, &[], question).unwrap(), BEGIN + 100_000 * MS);
    let picture = |keep: &Keep| crate::view(&trees(keep, &web(1))[0], None);
    assert_eq!(picture(&before), picture(&after), "a finished change stays as it was");
    let last = trees(&after, &web(3));
    let roots: Vec<Stage> = last.iter().map(|tree| tree.spans[tree.root].stage).collect();
    assert_eq!(roots, [Stage::Evicted, Stage::Request], "the newest first");
    assert!(last[0].spans.iter().any(|span| span.stage == Stage::Stop), "what happened to the pod");
    assert!(last[0].objects.iter().any(|object| object.key.name == "new"), "and what followed");
    let of_pod = Question { object: Some(key("pods", "old")), last: 1, ..Question::default() };
    let tree = trees(&after, &of_pod).remove(0);
    assert_eq!(tree.spans[tree.root].stage, Stage::Evicted);
    let answer = crate::view_of(&tree, Some(&key("pods", "old")), None);
    assert_eq!((answer.state, answer.summary.total / MS), (crate::State::Failed, 9));
    assert!(answer.summary.covered >= 0.98, "{:?}", answer.critical);
}

#[test]
fn more_than_one_tree_are_the_newest_whatever_they_changed() {
    let mut records = evicted(true);
    for (number, start) in [(0, 100), (1, 200), (2, 300)] {
        records.extend([
            record(Stage::Request, 60 + number, SpanId::NONE, start - 1, 3).says("PATCH /x\nadmin\nkubectl"),
            below(write_record(7, start, "patch deployments.apps a/web"), SpanId(60 + number)),
        ]);
    }
    // Its pod is deleted.
    records.extend([
        record(Stage::Request, 70, SpanId::NONE, 400, 3).says("DELETE /x\nadmin\nkubectl"),
        below(write_record(8, 401, "delete pods a/old"), SpanId(70)),
        record(Stage::Reconcile, 71, SpanId::of_write(Uid(8), 401), 402, 3).about(8, 401).says("rs a/web"),
        below(write_record(7, 403, "update deployments.apps a/web"), SpanId(71)),
    ]);
    let (_dir, keep) = kept(&records);
    let question =
        |last| Question { object: Some(key("deployments.apps", "web")), last, ..Question::default() };
    let roots = |last| -> Vec<u64> {
        let found = find(&keep, &[], &question(last)).unwrap();
        found.groups.iter().map(|group| group.root.0).collect()
    };
    assert_eq!(roots(3), [30, 70, 62]);
    assert_eq!(roots(1), [62], "the last that somebody asked for");
}

#[test]
fn a_refused_request_does_not_hide_who_made_the_object() {
    let request = |span, start, code| {
        let mut stored = record(Stage::Request, span, SpanId::NONE, start, 3).says("POST /x\nadmin\nkubectl");
        stored.record.code = code;
        stored
    };
    let mut refused = below(write_record(0, 0, "create deployments.apps a/web"), SpanId(90));
    (refused.record.span, refused.record.code) = (SpanId(91), 409);
    refused.record.flags = coracle_trace::Flags::FAILED;
    refused.start = BEGIN + 501 * MS;
    let made =
        [request(80, 99, 201), below(write_record(7, 100, "create deployments.apps a/web"), SpanId(80))];
    let records = [made.to_vec(), vec![request(90, 500, 409), refused]].concat();
    let roots = |records: &[StoredRecord], last| -> Vec<u64> {
        let (_dir, keep) = kept(records);
        let question = Question { object: Some(key("deployments.apps", "web")), last, ..Question::default() };
        find(&keep, &[], &question).unwrap().groups.iter().map(|group| group.root.0).collect()
    };
    assert_eq!(roots(&records, 1), [80]);
    assert_eq!(roots(&records, 2), [90, 80], "it is among the last ones");
    assert_eq!(roots(&records[2..], 1), [90], "nothing else is known");
}
