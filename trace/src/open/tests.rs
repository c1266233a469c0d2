use std::thread;

use super::*;

fn table(slots: usize) -> &'static Open {
    let words: Vec<AtomicU64> = (0..slots * SLOT).map(|_| AtomicU64::new(0)).collect();
    Box::leak(Box::new(Open::new(Vec::leak(words))))
}

fn sample(number: u64) -> Record {
    Record {
        stage: Stage::Write,
        flags: Flags(number as u16 & 0x3ff),
        code: number as u16,
        span: SpanId(number),
        parent: SpanId(number + 1),
        trace: TraceId(joined(number, number)),
        subject: Uid(joined(number, number)),
        revision: number,
        start: Moment(number),
        duration: 0,
    }
}

#[test]
fn a_span_is_in_the_table_until_it_is_freed() {
    let open = table(8);
    let slot = open.claim(0, &sample(100), b"create pods default/web");
    assert!(!slot.is_none());
    open.mark(slot, 3, Moment(100 + 6400));
    open.mark(slot, 4, Moment(100 + 64));
    open.mark(slot, 4, Moment(100 + 128));
    open.set_owner(slot, Uid(55));
    let spans = open.spans(Moment(1100));
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0].record, Record { duration: 1000, ..sample(100) });
    assert_eq!(spans[0].text.as_str(), "create pods default/web");
    assert_eq!((spans[0].details.mark(3), spans[0].details.mark(4)), (Some(6400), Some(128)));
    assert_eq!(spans[0].details.owner, Uid(55));
    open.clear_marks(slot);
    assert_eq!(open.spans(Moment(1100))[0].details, Details { owner: Uid(55), ..Details::NONE });
    open.free(slot);
    assert!(open.spans(Moment(1100)).is_empty());
}

#[test]
fn what_a_scope_outlived_is_not_changed_through_it() {
    let open = table(1);
    let stale = open.claim(0, &sample(1), b"");
    open.free(stale);
    let slot = open.claim(0, &sample(2), b"");
    open.mark(stale, 0, Moment(500));
    open.used(stale);
    open.update(stale, &sample(1), b"x");
    open.free(stale);
    assert!(open.gathered(stale).is_none());
    let gathered = open.gathered(slot).expect("open");
    assert!(!gathered.is_used);
    assert_eq!((gathered.marks[0], gathered.parent), (0, SpanId(3)));
}

#[test]
fn use_and_parent_survive_updates() {
    let open = table(4);
    let root = Record { stage: Stage::Request, parent: SpanId::NONE, flags: Flags::NONE, ..sample(9) };
    let slot = open.claim(0, &root, b"");
    open.used(slot);
    open.update(slot, &root, b"GET /");
    assert!(open.adopt(slot, SpanId(77), TraceId(78), Flags::INFERRED));
    assert!(!open.adopt(slot, SpanId(80), TraceId(81), Flags::REMOTE), "it has a parent");
    let gathered = open.gathered(slot).expect("open");
    assert!(gathered.is_used);
    assert_eq!((gathered.parent, gathered.trace, gathered.flags), (SpanId(77), TraceId(78), Flags::INFERRED));
}

#[test]
fn a_full_table_has_no_slot() {
    let open = table(4);
    let slots: Vec<_> = (0..4).map(|number| open.claim(0, &sample(number), b"")).collect();
    assert!(slots.iter().all(|slot| !slot.is_none()));
    assert!(open.claim(0, &sample(9), b"").is_none());
    open.free(slots[2]);
    assert!(!open.claim(0, &sample(9), b"").is_none());
    assert!(table(0).claim(0, &sample(9), b"").is_none());
}

#[test]
fn a_thread_looks_elsewhere_after_a_crowded_part() {
    let open = table(64);
    let mut found = 0;
    for number in 0..200 {
        found += usize::from(!open.claim(0, &sample(number), b"").is_none());
    }
    assert_eq!(found, 64);
}

#[test]
fn a_slot_is_found_beside_the_many_of_another_thread() {
    let open = table(64);
    let claims = |of: usize, count: u64| {
        let claim = move |number| !open.claim(of, &sample(number), b"").is_none();
        thread::spawn(move || (0..count).all(claim)).join().expect("no panic")
    };
    assert!(claims(0, 20));
    assert!(claims(1, 1));
}

/// Threads that open, mark and free, and one that looks: what it sees belongs to one span.
#[test]
fn nobody_sees_half_a_span() {
    let open = table(16);
    let texts: Vec<String> = (0..4).map(|thread| char::from(b'a' + thread).to_string().repeat(90)).collect();
    thread::scope(|threads| {
        let workers: Vec<_> = (0..4u64)
            .map(|thread| {
                let text = &texts[thread as usize];
                threads.spawn(move || {
                    for round in 0..5_000 {
                        let record = sample(thread << 32 | round << 8);
                        let slot = open.claim(thread as usize, &record, text.as_bytes());
                        open.mark(slot, 1, Moment(record.start.0 + 6400));
                        open.used(slot);
                        if let Some(gathered) = open.gathered(slot) {
                            assert_eq!((gathered.marks[1], gathered.is_used), (100, true));
                        }
                        open.free(slot);
                    }
                })
            })
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            for span in open.spans(Moment(u64::MAX - 1)) {
                let number = span.record.span.0;
                assert_eq!(Record { duration: 0, ..span.record }, sample(number));
                assert_eq!(span.text.as_str(), texts[(number >> 32) as usize]);
                assert!(matches!(span.details.marks[1], 0 | 100));
            }
        }
    });
    assert!(open.spans(Moment(0)).is_empty());
}
