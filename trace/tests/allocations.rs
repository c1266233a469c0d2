//! What is recorded is not allocated: requests and writes use the memory of those before them.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use coracle_trace::{
    Recorder, RequestMark, Stage, Sum, Verb, WriteMark, add, enter, mark, stage_named, write_mark,
};

thread_local!(static ALLOCATED: Cell<u64> = const { Cell::new(0) });

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: every call is passed on as it is; the counter is a plain number of the thread, whose access allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|allocated| allocated.set(allocated.get() + 1));
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory is of `alloc`, which is that of the system.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A request that creates an object, as the API server records it.
fn serve(recorder: Recorder, revision: u64) {
    let mut request = recorder.request(None, true);
    request.about("11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11", "POST", "/api/v1/namespaces/default/pods");
    request.who("alice", "kubectl/v1.35.0");
    enter(request.scope(), || {
        mark(RequestMark::Authorized);
        let mut write = recorder.write(Verb::Create, "pods", "default", "web");
        write.object("0f3c3f0a-7d9f-4a5b-8a54-0d7b6a1d0c11", "web");
        enter(write.scope(), || {
            drop(stage_named(Stage::MutatingPlugin, "ServiceAccount"));
            write_mark(WriteMark::Mutated);
            add(Sum::Store, Duration::from_micros(3));
        });
        write.stored(revision);
    });
    request.finish(201);
}

#[test]
fn nothing_is_allocated_for_requests_and_writes() {
    let recorder = Recorder::for_tests();
    let allocated = |work: &dyn Fn()| {
        let before = ALLOCATED.get();
        work();
        ALLOCATED.get() - before
    };
    serve(recorder, 1);
    assert_eq!(allocated(&|| (2..1000).for_each(|revision| serve(recorder, revision))), 0);
    let several = || drop::<[_; 4]>(std::array::from_fn(|_| recorder.request(None, false)));
    assert!(allocated(&several) > 0, "there are not as many yet");
    assert_eq!(allocated(&several), 0, "those that were dropped are used again");
}
