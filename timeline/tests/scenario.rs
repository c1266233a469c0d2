//! From recorders of a server and a node to answers: a Deployment with two pods, by the API of the crates that record.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use coracle_timeline::{
    Batch, CollectorHandle, Keep, Limits, ObjectKey, Position, Question, State, Taken, Tree, assemble,
    end_of, find, roots, start_recording, state_of, view_of,
};
use coracle_trace::{
    Cause, Flags, Moment, Rank, Record, Recorder, RequestMark, Scope, Sizes, SpanId, Stage, TraceContext,
    TraceId, Uid, Verb, WriteMark, enter, mark, point, stage, stage_named, write_mark,
};
use tempfile::TempDir;

const DEPLOYMENT: &str = "d0000000-0000-4000-8000-000000000001";
const REPLICA_SET: &str = "d0000000-0000-4000-8000-000000000002";
const PODS: [&str; 2] = ["d0000000-0000-4000-8000-00000000000a", "d0000000-0000-4000-8000-00000000000b"];
const OTHER: &str = "d0000000-0000-4000-8000-0000000000ff";

struct Place {
    recorder: Recorder,
    handle: CollectorHandle,
    _dir: TempDir,
}

impl Place {
    fn new(sizes: Sizes) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::open(dir.path(), Limits::default()).unwrap();
        let (recorder, handle) = start_recording(None, sizes, keep);
        Self { recorder, handle, _dir: dir }
    }

    fn ask(&self, question: &Question) -> Vec<Tree> {
        self.handle.flushed();
        let recorder = self.recorder;
        let found = find(self.handle.keep(), &recorder.open(), question).unwrap();
        assemble(found, recorder.clock().unwrap().unix(recorder.now()))
    }

    fn object(&self, resource: &str, name: &str) -> Vec<Tree> {
        let object = ObjectKey { resource: resource.into(), namespace: "default".into(), name: name.into() };
        self.ask(&Question { object: Some(object), last: 1, ..Question::default() })
    }

    /// One object, below whatever the scope is; the store makes a batch of its own.
    fn write(&self, verb: Verb, resource: &str, name: &str, uid: &str, owner: &str, revision: u64) {
        let recorder = self.recorder;
        let mut write = recorder.write(verb, resource, "default", name);
        write.object(uid, name);
        write.owner(owner);
        enter(write.scope(), || {
            drop(stage_named(Stage::MutatingPlugin, "ServiceAccount"));
            write_mark(WriteMark::Mutated);
            write_mark(WriteMark::Validated);
            let began = recorder.now();
            pause();
            let (staged, synced) = (recorder.now(), recorder.now());
            recorder.batch(revision, revision, began, staged, synced, recorder.now());
            write_mark(WriteMark::Stored);
        });
        write.stored(revision);
    }

    fn request(&self, remote: Option<TraceContext>, path: &str, work: impl FnOnce()) {
        let mut request = self.recorder.request(remote, true);
        request.about("a0000000-0000-4000-8000-00000000000a", "POST", path);
        request.who("alice", "kubectl/v1.35.0");
        enter(request.scope(), || {
            mark(RequestMark::Authenticated);
            mark(RequestMark::Decoded);
            work();
        });
        request.finish(201);
    }

    fn turn(&self, controller: &str, key: &str, cause: Cause, work: impl FnOnce()) {
        let turn = self.recorder.reconcile(controller, key, cause, self.recorder.now());
        enter(turn.scope(), work);
    }

    fn cause(&self, uid: &str, revision: u64) -> Cause {
        Cause { uid: Uid::of(uid), revision, rank: Rank::Spec, since: self.recorder.now() }
    }
}

fn pause() {
    std::thread::sleep(Duration::from_micros(200));
}

fn deploy(server: &Place, remote: Option<TraceContext>) {
    server.request(remote, "/apis/apps/v1/namespaces/default/deployments", || {
        server.write(Verb::Create, "deployments.apps", "web", DEPLOYMENT, "", 101);
    });
    server.turn("deployment-controller", "default/web", server.cause(DEPLOYMENT, 101), || {
        server.write(Verb::Create, "replicasets.apps", "web-1", REPLICA_SET, DEPLOYMENT, 102);
    });
    server.turn("replicaset-controller", "default/web-1", server.cause(REPLICA_SET, 102), || {
        for (index, uid) in PODS.iter().enumerate() {
            server.write(
                Verb::Create,
                "pods",
                &format!("web-1-{index}"),
                uid,
                REPLICA_SET,
                103 + index as u64,
            );
        }
    });
    for (index, uid) in PODS.iter().enumerate() {
        let cause = server.cause(uid, 103 + index as u64);
        let about = (cause.uid, cause.revision);
        let now = server.recorder.now();
        server.recorder.span_at(Stage::SchedulerQueue, cause.span(), about, Moment(now.0 - 1000), now, "", 0);
        enter(Scope::of_cause(server.recorder, cause), || {
            let attempt = stage(Stage::Attempt);
            enter(attempt.scope(), || {
                point(Stage::Verdict, "node1=87 of 3", 0);
                server.write(
                    Verb::Bind,
                    "pods",
                    &format!("web-1-{index}"),
                    uid,
                    REPLICA_SET,
                    105 + index as u64,
                );
            });
        });
    }
}

/// The first pod starts on the node, and its status is reported. Returns the span of the report.
fn start_pod(node: &Place) -> SpanId {
    let (uid, revision) = (Uid::of(PODS[0]), 105);
    let now = node.recorder.now();
    node.recorder.span_at(
        Stage::Seen,
        SpanId::of_write(uid, revision),
        (uid, revision),
        now,
        node.recorder.now(),
        "",
        0,
    );
    enter(Scope::of_pod(node.recorder, uid, revision), || {
        let start = stage(Stage::PodStart);
        {
            let image = stage_named(Stage::Image, "nginx");
            enter(image.scope(), || {
                drop(stage_named(Stage::ImageLayer, "sha256:a2abf6c4d29d\n29126484 bytes"))
            });
            pause();
        }
        point(Stage::Ready, "", 0);
        drop(start);
        let report = stage(Stage::StatusReport);
        pause();
        report.id()
    })
}

fn deliver(node: &Place, server: &Place) {
    node.handle.flushed();
    let mut position = Position::default();
    loop {
        let spooled = node.handle.keep().blocks_after(position, 256 << 10).unwrap();
        if spooled.bytes.is_empty() {
            break;
        }
        position = spooled.next;
        let taken = Taken { spool: node.handle.keep().spool(), until: position.0 };
        let (node, blocks) = ("node1".into(), spooled.bytes);
        let batch = Batch { node, offset: 0, uncertainty: 0, boot: 1, blocks, taken };
        server.handle.ingest(batch, drop).unwrap();
    }
    node.handle.keep().acknowledged(position).unwrap();
}

fn report(server: &Place, span: SpanId) {
    let mut request = server.recorder.request(None, true);
    request.about(
        "a0000000-0000-4000-8000-00000000000b",
        "PATCH",
        "/api/v1/namespaces/default/pods/web-1-0/status",
    );
    enter(request.scope(), || {
        let mut write = server.recorder.write(Verb::Patch, "pods", "default", "web-1-0");
        write.object(PODS[0], "web-1-0");
        write.caused(span, server.cause(PODS[0], 105));
        write.stored(107);
    });
    request.finish(200);
}

fn stages_above(tree: &Tree, stage: Stage) -> Vec<Stage> {
    let mut at = tree.spans.iter().rposition(|span| span.stage == stage).unwrap();
    let mut stages = vec![stage];
    while let Some(parent) = tree.spans[at].parent {
        stages.push(tree.spans[parent].stage);
        at = parent;
    }
    stages
}

fn names(tree: &Tree) -> Vec<&str> {
    let mut names: Vec<&str> = tree.objects.iter().map(|object| object.key.name.as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_deployment_is_one_tree_from_the_request_to_the_status_of_its_pods() {
    let (server, node) = (Place::new(Sizes::SERVER), Place::new(Sizes::AGENT));
    server.request(None, "/api/v1/namespaces/default/configmaps", || {
        server.write(Verb::Create, "configmaps", "other", OTHER, "", 90);
    });
    deploy(&server, None);
    report(&server, start_pod(&node));
    deliver(&node, &server);

    let trees = server.object("deployments.apps", "web");
    assert_eq!(trees.len(), 1);
    let tree = &trees[0];
    assert_eq!(names(tree), ["web", "web-1", "web-1-0", "web-1-1"]);
    assert_eq!(tree.objects[0].key.resource, "deployments.apps");
    assert!(!tree.trace.is_none());
    // The node of the second pod has told nothing.
    assert_eq!(state_of(tree, None), State::Running);
    use Stage::{Attempt, Image, ImageLayer, PodStart, Reconcile, Request, StatusReport, Write};
    let pod = [Attempt, Write, Reconcile, Write, Reconcile, Write, Request];
    assert_eq!(stages_above(tree, Attempt), pod);
    assert_eq!(stages_above(tree, ImageLayer), [&[ImageLayer, Image, PodStart, Write][..], &pod].concat());
    let status = tree.spans.iter().position(|span| span.revision == 107 && span.stage == Write).unwrap();
    let request = tree.spans[status].parent.unwrap();
    assert_eq!(tree.spans[request].stage, Request);
    assert_eq!(tree.spans[tree.spans[request].parent.unwrap()].stage, StatusReport);
    for stage in [
        Stage::Authn,
        Stage::Mutating,
        Stage::MutatingPlugin,
        Stage::StoreCommit,
        Stage::Publish,
        Stage::Queued,
    ] {
        assert!(tree.spans.iter().any(|span| span.stage == stage), "{stage:?}");
    }
    let pod = tree.objects.iter().find(|object| object.key.name == "web-1-0").unwrap().key.clone();
    assert_eq!(state_of(tree, Some(&pod)), State::Ready);
    assert_eq!(tree.spans[end_of(tree, Some(&pod))].stage, Stage::Ready);
    let answer = view_of(tree, Some(&pod), Some(&server.handle.usual()));
    let total: u64 = answer.critical.iter().map(|piece| piece.end - piece.start).sum();
    assert_eq!(total, answer.summary.total);
    let hops: Vec<&str> = answer.critical.iter().map(|piece| piece.name.as_str()).collect();
    assert!(hops.contains(&"watch delivery to node1"), "{hops:?}");
    assert!(answer.spans.iter().any(|span| span.usual.is_some()));
}

#[test]
fn of_a_pod_only_its_branch_is_shown() {
    let server = Place::new(Sizes::SERVER);
    deploy(&server, None);
    let trees = server.object("pods", "web-1-1");
    assert_eq!(trees.len(), 1);
    assert_eq!(names(&trees[0]), ["web", "web-1", "web-1-1"]);
    assert_eq!(trees[0].spans[trees[0].root].stage, Stage::Request);
    let queues = trees[0].spans.iter().filter(|span| span.stage == Stage::Queued).count();
    assert_eq!(queues, 2);
    assert!(server.object("pods", "web-1-2").is_empty());
    assert!(server.object("services", "web-1-1").is_empty());
}

#[test]
fn a_trace_of_a_client_is_found_by_its_id() {
    let server = Place::new(Sizes::SERVER);
    let remote = TraceContext { trace: TraceId(77), span: SpanId(88), flags: TraceContext::SAMPLED };
    deploy(&server, Some(remote));
    let trees = server.ask(&Question { trace: Some(TraceId(77)), ..Question::default() });
    assert_eq!(trees.len(), 1);
    assert_eq!((trees[0].trace, trees[0].remote), (TraceId(77), SpanId(88)));
    assert_eq!(names(&trees[0]).len(), 4);
    let summary = &roots(server.handle.keep(), 0, 10).unwrap()[0];
    assert_eq!(
        (summary.verb.as_str(), summary.key.name.as_str(), summary.trace),
        ("create", "web", TraceId(77))
    );
    assert!(!summary.failed);
    assert_eq!((summary.user.as_str(), summary.program.as_str()), ("alice", "kubectl"));
}

#[test]
fn a_client_cannot_hang_itself_below_an_object() {
    let server = Place::new(Sizes::SERVER);
    deploy(&server, None);
    let forged =
        TraceContext { trace: TraceId(5), span: SpanId::of_write(Uid::of(DEPLOYMENT), 101), flags: 0 };
    server.request(Some(forged), "/api/v1/namespaces/default/configmaps", || {
        server.write(Verb::Create, "configmaps", "other", OTHER, "", 190);
    });
    assert!(!names(&server.object("deployments.apps", "web")[0]).contains(&"other"));
    assert_eq!(names(&server.object("configmaps", "other")[0]), ["other"]);
}

#[test]
fn a_node_cannot_hang_itself_below_an_object_nor_replace_spans_of_the_server() {
    let (server, node) = (Place::new(Sizes::SERVER), Place::new(Sizes::AGENT));
    deploy(&server, None);
    let tree = server.object("deployments.apps", "web").remove(0);
    let (request, uid, now) = (tree.spans[tree.root].id, Uid::of(PODS[0]), node.recorder.now());
    let forged = Record {
        stage: Stage::Image,
        flags: Flags::NONE,
        code: 0,
        span: request,
        parent: SpanId::of_stage(uid, Stage::PodStart),
        trace: TraceId::NONE,
        subject: uid,
        revision: 105,
        start: now,
        duration: 1 << 40,
    };
    node.recorder.push(&forged, None, "forged");
    let parent = SpanId::of_write(Uid::of(DEPLOYMENT), 101);
    node.recorder.push(&Record { span: SpanId(77), parent, ..forged }, None, "forged");
    node.recorder.push(&Record { span: SpanId(78), ..forged }, None, "own");
    deliver(&node, &server);
    let tree = server.object("deployments.apps", "web").remove(0);
    assert_eq!(tree.spans[tree.root].stage, Stage::Request);
    assert!(tree.spans.iter().all(|span| span.name != "forged"));
    assert!(tree.spans.iter().any(|span| span.name == "own"));
}

#[test]
fn the_last_operations_are_the_newest_and_the_last_change_is_a_request() {
    let server = Place::new(Sizes::SERVER);
    deploy(&server, None);
    server.request(None, "/apis/apps/v1/namespaces/default/deployments/web", || {
        server.write(Verb::Patch, "deployments.apps", "web", DEPLOYMENT, "", 120);
    });
    server.turn("horizontal-pod-autoscaler", "default/web", Cause::NONE, || {
        server.write(Verb::Update, "deployments.apps", "web", DEPLOYMENT, "", 121);
    });
    let object =
        ObjectKey { resource: "deployments.apps".into(), namespace: "default".into(), name: "web".into() };
    let trees = server.ask(&Question { object: Some(object), last: 9, ..Question::default() });
    let begins: Vec<(Stage, usize)> =
        trees.iter().map(|tree| (tree.spans[tree.root].stage, tree.objects.len())).collect();
    assert_eq!(begins, [(Stage::Reconcile, 1), (Stage::Request, 1), (Stage::Request, 4)]);
    let last = server.object("deployments.apps", "web");
    assert_eq!((last[0].spans[last[0].root].stage, last[0].objects.len()), (Stage::Request, 1));
}

#[test]
fn an_answer_has_no_more_spans_than_were_asked_for() {
    let server = Place::new(Sizes::SERVER);
    deploy(&server, None);
    let uid = Some(Uid::of(DEPLOYMENT));
    let trees = server.ask(&Question { uid, last: 1, most: 5, ..Question::default() });
    assert!(trees[0].notes.iter().any(|note| note.contains("more spans")), "{:?}", trees[0].notes);
    assert!(trees[0].objects.len() < 4);
}
