use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::ids::{SpanId, Uid};
use crate::scope::{Scope, enter};
use crate::span::stage_named;
use crate::stage::Stage;

#[test]
fn sizes_are_those_of_the_design() {
    assert_eq!(Recorder::words(Sizes::SERVER) * 8, 896 * 1024);
    assert_eq!(Recorder::words(Sizes::AGENT) * 8, 192 * 1024);
    assert_eq!(Recorder::words(Sizes::TEST) * 8, 24 * 1024);
}

#[test]
fn off_does_nothing() {
    let off = Recorder::OFF;
    assert!(!off.is_on() && off.clock().is_none() && off.contexts().is_none() && off.now().is_none());
    off.batch(1, 2, Moment(0), Moment(1), Moment(2), Moment(3));
    assert_eq!(
        off.span_at(Stage::InitRun, SpanId(1), (Uid(1), 1), Moment(0), Moment(1), "", 0),
        SpanId::NONE
    );
    off.wake(thread::current());
    let read = off.read(&mut |_, _, _| panic!("nothing is recorded"));
    off.release(read);
    assert_eq!((off.open().len(), off.lost()), (0, 0));
    assert_eq!(format!("{off:?}"), "Recorder(off)");
}

#[test]
fn the_collector_is_woken_at_half_full() {
    let recorder = Recorder::for_tests();
    let collector = thread::spawn(move || {
        recorder.wake(thread::current());
        let mut records = 0;
        let until = Instant::now() + Duration::from_secs(20);
        while records < 32 && Instant::now() < until {
            thread::park_timeout(Duration::from_secs(20));
            let read = recorder.read(&mut |_, _, _| ());
            records += read.records();
            recorder.release(read);
        }
        records
    });
    let began = Instant::now();
    while !collector.is_finished() && began.elapsed() < Duration::from_secs(10) {
        enter(Scope::of_pod(recorder, Uid(1), 1), || drop(stage_named(Stage::Volume, "data")));
        thread::sleep(Duration::from_micros(100));
    }
    assert!(collector.join().expect("no panic") >= 32);
    assert!(began.elapsed() < Duration::from_secs(10), "it was not woken");
}

fn record(recorder: Recorder) {
    recorder.span_at(Stage::Volume, SpanId(1), (Uid(1), 1), Moment(0), Moment(1), "", 0);
}

/// A wake-up that is lost costs the collector all of the time that it may sleep.
#[test]
fn the_first_record_wakes_the_collector() {
    const RECORDS: usize = 5000;
    const MOST: Duration = Duration::from_secs(60);
    let recorder = Recorder::for_tests();
    let seen = AtomicUsize::new(0);
    thread::scope(|threads| {
        let collector = threads.spawn(|| {
            recorder.wake(thread::current());
            let mut records = 0;
            while records < RECORDS {
                let began = Instant::now();
                recorder.park(0, Some(MOST), || false);
                assert!(began.elapsed() < MOST, "it was not woken after {records} records");
                let read = recorder.read(&mut |_, _, _| ());
                records += read.records();
                recorder.release(read);
                seen.store(records, Relaxed);
            }
        });
        for number in 1..=RECORDS {
            record(recorder);
            // So that the collector is at another place of its loop each time, and never behind.
            if number % 3 > 0 {
                while seen.load(Relaxed) < number && !collector.is_finished() {
                    thread::yield_now();
                }
            }
        }
    });
    assert_eq!((seen.load(Relaxed), recorder.lost()), (RECORDS, 0));
}

#[test]
fn a_collector_with_work_does_not_sleep() {
    let recorder = Recorder::for_tests();
    recorder.wake(thread::current());
    recorder.park(0, None, || true);
    record(recorder);
    recorder.park(0, None, || false);
    let read = recorder.read(&mut |_, _, _| ());
    // What is read may not be written yet.
    recorder.park(0, None, || false);
    recorder.release(read);
    let began = Instant::now();
    recorder.park(0, Some(Duration::from_millis(20)), || false);
    assert!(began.elapsed() >= Duration::from_millis(20), "there is nothing to do");
    for _ in 0..65 {
        record(recorder);
    }
    recorder.release(recorder.read(&mut |_, _, _| ()));
    recorder.park(0, None, || false);
    Recorder::OFF.park(0, None, || true);
}

#[test]
fn what_does_not_fit_is_counted() {
    let recorder = Recorder::for_tests();
    for _ in 0..70 {
        recorder.span_at(Stage::Volume, SpanId(1), (Uid(1), 1), Moment(0), Moment(1), "", 0);
    }
    assert_eq!(recorder.lost(), 6);
    let read = recorder.read(&mut |_, _, _| ());
    assert_eq!(read.records(), 64);
}

/// Spans, requests and writes of eight threads while a collector empties the ring and another thread looks at what is open.
#[test]
fn everything_at_once() {
    use crate::write::Verb;

    let words: Vec<AtomicU64> = (0..Recorder::words(Sizes::SERVER)).map(|_| AtomicU64::new(0)).collect();
    let recorder = Recorder::on(Vec::leak(words), Sizes::SERVER, Clock::start());
    const ROUNDS: u64 = 500;
    let mut writes = std::collections::HashSet::new();
    let mut requests = std::collections::HashSet::new();
    let mut parents = Vec::new();
    thread::scope(|threads| {
        let workers: Vec<_> = (0..8u64)
            .map(|thread| {
                threads.spawn(move || {
                    for round in 0..ROUNDS {
                        let request = recorder.request(None, true);
                        let revision = 1 + thread + 8 * round;
                        enter(request.scope(), || {
                            let mut write = recorder.write(Verb::Create, "pods", "default", "web");
                            enter(write.scope(), || drop(stage_named(Stage::MutatingPlugin, "x")));
                            write.stored(revision);
                            assert!(
                                recorder.contexts().is_some_and(|contexts| contexts.get(revision).is_some())
                            );
                        });
                        request.finish(201);
                    }
                })
            })
            .collect();
        let mut collect = || {
            let read = recorder.read(&mut |record, _, _| match record.stage {
                Stage::Write => {
                    assert!(writes.insert(record.revision));
                    parents.push(record.parent);
                }
                Stage::Request => assert!(requests.insert(record.span)),
                _ => {}
            });
            recorder.release(read);
            assert!(recorder.open().len() <= 16);
        };
        while !workers.iter().all(|worker| worker.is_finished()) {
            collect();
        }
        collect();
    });
    if recorder.lost() == 0 {
        assert_eq!(writes.len() as u64, 8 * ROUNDS);
        assert!(parents.iter().all(|parent| requests.contains(parent)));
    }
    assert!(recorder.open().is_empty());
}
