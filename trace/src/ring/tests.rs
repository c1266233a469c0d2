use std::collections::VecDeque;
use std::thread;

use super::*;
use crate::clock::Moment;
use crate::ids::{SpanId, TraceId, Uid, joined, random};
use crate::record::Flags;
use crate::stage::Stage;

fn ring(shards: usize, slots: usize) -> &'static Ring {
    let words: Vec<AtomicU64> = (0..shards * slots * SLOT).map(|_| AtomicU64::new(0)).collect();
    Box::leak(Box::new(Ring::new(Vec::leak(words), shards, slots)))
}

/// A record whose every part follows from two numbers.
fn sample(thread: u64, number: u64) -> (Record, Option<Details>, String) {
    let mixed = SpanId(thread << 40 | number).of_mark(1).0;
    let record = Record {
        stage: Stage::ALL[mixed as usize % Stage::ALL.len()],
        flags: Flags(mixed as u16),
        code: (mixed >> 16) as u16,
        span: SpanId(thread),
        parent: SpanId(number),
        trace: TraceId(joined(mixed, !mixed)),
        subject: Uid(joined(!mixed, mixed)),
        revision: mixed.rotate_left(7),
        start: Moment(mixed.rotate_left(13)),
        duration: mixed.rotate_left(23),
    };
    let marks = std::array::from_fn(|mark| (mixed as u32).rotate_left(mark as u32));
    let details = (mixed & 1 == 0).then_some(Details { marks, owner: Uid(joined(mixed, 3)) });
    let len = if mixed & 2 == 0 { 0 } else { (mixed >> 32) as usize % 160 };
    let text = (0..len).map(|at| char::from(b'a' + ((mixed >> (at % 32)) % 26) as u8)).collect();
    (record, details, text)
}

fn push(ring: &Ring, thread: u64, number: u64) -> bool {
    let (record, details, text) = sample(thread, number);
    ring.push(thread as usize, &record, details.as_ref(), text.as_bytes())
}

fn check(record: &Record, details: Option<&Details>, text: &str) {
    let expected = sample(record.span.0, record.parent.0);
    assert_eq!((*record, details.copied(), text), (expected.0, expected.1, expected.2.as_str()));
}

#[test]
fn a_record_takes_one_to_three_slots() {
    let cases = [
        (false, 0, 1),
        (false, 40, 1),
        (false, 41, 2),
        (false, 159, 2),
        (true, 80, 2),
        (true, 81, 3),
        (true, 159, 3),
    ];
    for (has_details, text, expected) in cases {
        assert_eq!(slots(has_details, text), expected, "{has_details} {text}");
    }
}

#[test]
fn what_is_read_stays_until_it_is_released() {
    let ring = ring(1, 16);
    for number in 0..4 {
        push(ring, 0, number);
    }
    let numbers = |ring: &'static Ring| {
        let mut numbers = Vec::new();
        let read = ring.read(&mut |record, details, text| {
            check(record, details, text);
            numbers.push(record.parent.0);
        });
        (numbers, read)
    };
    let (first, read) = numbers(ring);
    assert_eq!(first, [0, 1, 2, 3]);
    assert_eq!(ring.read(&mut |_, _, _| ()).records(), 0, "one reader at a time");
    drop(read);
    let (again, read) = numbers(ring);
    assert_eq!((again, read.records()), (first, 4));
    push(ring, 0, 4);
    read.release();
    assert_eq!(numbers(ring).0, [4]);
}

#[test]
fn the_consumer_is_woken_once_per_reading() {
    let ring = ring(1, 64);
    let record = sample(0, 0).0;
    let woken = |count| (0..count).filter(|_| ring.push(0, &record, None, b"")).count();
    assert_eq!(woken(31), 0);
    assert_eq!(woken(33), 1);
    assert_eq!((woken(5), ring.lost()), (0, 5));
    let read = ring.read(&mut |_, _, _| ());
    read.release();
    assert_eq!(woken(31), 0);
    assert_eq!(woken(1), 1);
}

#[test]
fn a_full_shard_uses_the_others() {
    let ring = ring(4, 4);
    let record = sample(0, 0).0;
    for _ in 0..17 {
        ring.push(2, &record, None, b"");
    }
    assert_eq!(ring.lost(), 1);
    assert_eq!(ring.read(&mut |_, _, _| ()).records(), 16);
}

/// A queue with the same capacity says what a ring of few slots must do.
#[test]
fn it_behaves_as_a_queue() {
    for slots_of_ring in [4, 8, 64] {
        let ring = ring(1, slots_of_ring);
        let (mut model, mut used, mut lost) = (VecDeque::new(), 0, 0);
        for number in 0..3000 {
            let (_, details, text) = sample(9, number);
            let needed = slots(details.is_some(), text.len()) as usize;
            push(ring, 9, number);
            if used + needed <= slots_of_ring {
                used += needed;
                model.push_back(number);
            } else {
                lost += 1;
            }
            if random().is_multiple_of(3) {
                let mut found = VecDeque::new();
                let read = ring.read(&mut |record, details, text| {
                    check(record, details, text);
                    found.push_back(record.parent.0);
                });
                assert_eq!(found, model);
                if random().is_multiple_of(2) {
                    read.release();
                    (model, used) = (VecDeque::new(), 0);
                }
            }
            assert_eq!(ring.lost(), lost);
        }
    }
}

/// Eight producers and a consumer that reads, checks and frees: each record is read once or counted as lost, in the order of its thread.
fn stress(shards: usize, slots: usize, pushes: u64) {
    const THREADS: u64 = 8;
    let ring = ring(shards, slots);
    let mut seen = vec![vec![false; pushes as usize]; THREADS as usize];
    let mut newest = [None; THREADS as usize];
    let mut consume = || {
        let read = ring.read(&mut |record, details, text| {
            check(record, details, text);
            let (thread, number) = (record.span.0 as usize, record.parent.0);
            assert!(!std::mem::replace(&mut seen[thread][number as usize], true), "read twice");
            // With several shards a thread whose shard is full uses another one.
            assert!(shards > 1 || newest[thread].replace(number) < Some(number), "out of order");
        });
        read.release();
    };
    thread::scope(|threads| {
        let producers: Vec<_> = (0..THREADS)
            .map(|thread| {
                threads.spawn(move || {
                    for number in 0..pushes {
                        push(ring, thread, number);
                        if number % 64 == 63 {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        while !producers.iter().all(|producer| producer.is_finished()) {
            consume();
        }
    });
    consume();
    let read: usize = seen.iter().flatten().filter(|seen| **seen).count();
    assert_eq!(read as u64 + ring.lost(), THREADS * pushes);
    assert!(read > 0);
}

#[test]
fn eight_threads_and_one_shard() {
    stress(1, 256, 4_000);
}

#[test]
fn eight_threads_and_four_shards() {
    stress(4, 64, 4_000);
}

#[test]
fn eight_threads_and_hardly_any_room() {
    stress(1, 4, 4_000);
}

/// Ten million pushes, for an optimised build.
#[test]
#[ignore = "takes half a minute"]
fn eight_threads_for_long() {
    stress(1, 1024, 625_000);
    stress(4, 1024, 625_000);
}

/// A producer that was killed between claiming slots and completing them leaves a hole: the process that goes on stops there, the next
/// process skips it.
#[test]
fn holes_are_skipped_by_the_next_process() {
    let ring = ring(1, 16);
    let shard = &ring.shards[0];
    let text = "x".repeat(100);
    let record = |number: u64| Record { span: SpanId(number + 1), ..sample(1, number).0 };
    ring.push(0, &record(0), None, b"");
    let hole = shard.claim(3).expect("room");
    ring.push(0, &record(1), Some(&Details::NONE), text.as_bytes());
    // The killed producer had completed all slots but the first.
    for position in hole + 1..hole + 3 {
        shard.slot(position)[0].store((position + 1) | CONTINUES, Relaxed);
    }
    let spans = |records: &[(Record, Option<Details>, Text)]| {
        records.iter().map(|(record, ..)| record.span.0).collect::<Vec<_>>()
    };
    assert_eq!(spans(&left(shard.slots.as_flattened())), [1, 2]);
    assert_eq!(left(shard.slots.as_flattened())[1].2.as_str(), text);
    let read = ring.read(&mut |_, _, _| ());
    assert_eq!(read.records(), 1);
    read.release();
    assert_eq!(spans(&left(shard.slots.as_flattened())), [2]);
}

/// Whatever is in the memory, reading it ends.
#[test]
fn any_memory_can_be_read() {
    for _ in 0..200 {
        let words: Vec<AtomicU64> = (0..8 * SLOT)
            .map(|word| AtomicU64::new(if word % SLOT == 0 { random() % 32 } else { random() }))
            .collect();
        for (_, _, text) in left(&words) {
            assert!(text.as_str().len() <= Text::MOST);
        }
    }
}
