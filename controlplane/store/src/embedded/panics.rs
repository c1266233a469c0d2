//! Panics of the engine and of threads.

use std::{panic::resume_unwind, thread::ScopedJoinHandle};

/// The message of a panic.
pub(super) fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Waits for a thread; a panic goes on in this one.
pub(super) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    }
}
