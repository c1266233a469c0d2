//! What the calls cost that are on the way of a request.

use super::ratio::median;
use crate::report::Report;
use coracle_timeline::shared_memory;
use coracle_trace::{
    Clock, Recorder, RequestMark, Scope, Sizes, Stage, Uid, Verb, WriteMark, enter, mark, point, stage_named,
    within, write_mark,
};
use futures::FutureExt;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 200;
/// What a round records has room in the memory of a recorder: 3 slots each.
const CALLS: usize = 200;
const AUDIT: &str = "11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11";

/// Measures them.
pub fn run(report: &mut Report) {
    let recorder = shared_memory::private(Sizes::SERVER).start(Clock::start());
    let pod = Scope::of_pod(recorder, Uid(7), 1);
    let mut time = |name: &str, call: &mut dyn FnMut()| report.add(name, nanos(recorder, call), "ns");
    time("clock read", &mut || {
        black_box(recorder.now());
    });
    enter(pod, || {
        time("point", &mut || point(Stage::Verdict, "node1=87 node2=85", 1));
        time("span", &mut || stage_named(Stage::Cgroup, "pod").finish());
    });
    let request = recorder.request(None, true);
    enter(request.scope(), || time("mark of a request", &mut || mark(RequestMark::Authenticated)));
    request.finish(200);
    time("future within a scope", &mut || {
        black_box(within(pod, async {}).now_or_never());
    });
    let mut revision = 0;
    time("all of a create, 10 marks", &mut || {
        revision += 1;
        create(recorder, revision);
    });
    let mut off = |name: &str, call: &mut dyn FnMut()| report.add(name, nanos(Recorder::OFF, call), "ns");
    off("all of a create, not recorded", &mut || create(Recorder::OFF, 1));
}

fn create(recorder: Recorder, revision: u64) {
    let mut request = recorder.request(None, true);
    request.about(AUDIT, "POST", "/api/v1/namespaces/default/configmaps");
    enter(request.scope(), || {
        mark(RequestMark::Authenticated);
        mark(RequestMark::Authorized);
        mark(RequestMark::BodyRead);
        mark(RequestMark::Decoded);
        let mut write = recorder.write(Verb::Create, "configmaps", "default", "c1");
        enter(write.scope(), || {
            write_mark(WriteMark::Mutated);
            write_mark(WriteMark::Validated);
            write_mark(WriteMark::Admitted);
            write_mark(WriteMark::Stored);
            write_mark(WriteMark::Visible);
        });
        write.object(AUDIT, "c1");
        write.stored(revision);
    });
    request.finish(201);
}

/// The median of rounds, per call; what was recorded is taken out between them.
fn nanos(recorder: Recorder, call: &mut dyn FnMut()) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let begun = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        let took = begun.elapsed();
        let read = recorder.read(&mut |_, _, _| ());
        recorder.release(read);
        took.as_nanos() as f64 / CALLS as f64
    });
    median(&rounds.collect::<Vec<f64>>())
}
