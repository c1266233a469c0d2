//! Runs a part of a request in a scope of its own.

use coracle_trace::{Scope, enter};
use std::future::poll_fn;
use std::pin::Pin;

/// The same as `coracle_trace::within`, for a future that is pinned already and not to be kept twice.
pub(crate) async fn scoped<F: Future>(scope: Scope, mut work: Pin<&mut F>) -> F::Output {
    poll_fn(|context| enter(scope, || work.as_mut().poll(context))).await
}
