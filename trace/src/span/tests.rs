use std::task::{Context, Poll, Waker};

use super::*;
use crate::recorder::Recorder;

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn records(recorder: Recorder) -> Vec<(Record, String)> {
    let mut records = Vec::new();
    let read = recorder.read(&mut |record, _, text| records.push((*record, text.to_owned())));
    recorder.release(read);
    records
}

#[test]
fn nothing_is_recorded_outside_of_a_scope() {
    let mut span = stage(Stage::Image);
    span.rename("x");
    assert_eq!(span.id(), SpanId::NONE);
    point(Stage::Exit, "x", 1);
    assert_eq!(tracked_sync(Stage::Image, "x", || Ok::<_, ()>(1)), Ok(1));
    assert!(matches!(poll(pin!(tracked(Stage::Image, "x", async { Err::<(), _>(2) }))), Poll::Ready(Err(2))));
}

#[test]
fn children_hang_below() {
    let recorder = Recorder::for_tests();
    let pod = Scope::of_pod(recorder, Uid(7), 3);
    let inner = async {
        point(Stage::Exit, "web", 137);
        Ok::<_, ()>(())
    };
    let work = tracked(Stage::Sandbox, "web", tracked(Stage::Network, "cni0", inner));
    assert!(enter(pod, || poll(pin!(work))).is_ready());
    let records = records(recorder);
    let [exit, network, sandbox] = &records[..] else { panic!("{records:?}") };
    assert_eq!(exit.0.parent, network.0.span);
    assert_eq!(network.0.parent, sandbox.0.span);
    assert_eq!(sandbox.0.parent, pod.span);
    assert_eq!((exit.0.code, exit.1.as_str()), (137, "web"));
    assert_eq!((sandbox.0.subject, sandbox.0.revision, sandbox.0.flags), (Uid(7), 3, Flags::NONE));
    assert!(recorder.open().is_empty());
}

#[test]
fn open_stages_are_seen_and_end_as_they_should() {
    let recorder = Recorder::for_tests();
    enter(Scope::of_pod(recorder, Uid(7), 3), || {
        {
            let mut pulled = pin!(tracked(Stage::Image, "nginx", std::future::pending::<Result<(), ()>>()));
            assert!(poll(pulled.as_mut()).is_pending());
            let open = recorder.open();
            assert_eq!(open.len(), 1);
            assert_eq!((open[0].record.stage, open[0].text.as_str()), (Stage::Image, "nginx"));
        }
        let mut span = stage_named(Stage::Container, "web");
        span.rename("web\nno such file");
        span.code(2);
        span.failed();
        assert_eq!(recorder.open()[0].record.code, 2);
        span.finish();
        stage(Stage::Volume).discard();
    });
    assert!(recorder.open().is_empty());
    let records = records(recorder);
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].0.flags, Flags::CANCELLED);
    assert_eq!((records[1].0.flags, records[1].1.as_str()), (Flags::FAILED, "web\nno such file"));
}

#[test]
fn the_start_of_a_pod_has_the_id_that_anybody_can_compute() {
    let recorder = Recorder::for_tests();
    let start = enter(Scope::of_pod(recorder, Uid(7), 3), || stage(Stage::PodStart));
    assert_eq!(start.id(), SpanId::of_stage(Uid(7), Stage::PodStart));
    assert_eq!(start.scope().span, start.id());
    let mut end = enter(start.scope(), || stage(Stage::Terminate));
    end.about(Uid(7), 9);
    drop((start, end));
    let records = records(recorder);
    assert_eq!(records[0].0.parent, SpanId::of_write(Uid(7), 3));
    assert_eq!(records[1].0.parent, SpanId::of_write(Uid(7), 9));
    assert_eq!(records[1].0.span, SpanId::of_stage(Uid(7), Stage::Terminate));
}

#[test]
fn a_panic_cancels() {
    let recorder = Recorder::for_tests();
    let scope = Scope::of_pod(recorder, Uid(7), 3);
    let work = move || {
        enter(scope, || tracked_sync(Stage::Cgroup, "", || -> Result<(), ()> { panic!("on purpose") }))
    };
    assert!(std::thread::spawn(work).join().is_err());
    assert_eq!(records(recorder)[0].0.flags, Flags::CANCELLED);
}

#[test]
fn long_names_are_cut() {
    let recorder = Recorder::for_tests();
    enter(Scope::of_pod(recorder, Uid(7), 3), || drop(stage_named(Stage::Image, &"x".repeat(200))));
    let records = records(recorder);
    assert_eq!(records[0].1.len(), 159);
    assert_eq!(records[0].0.flags, Flags::TRUNCATED);
}
