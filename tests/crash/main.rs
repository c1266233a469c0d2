//! `kill -9`: of the whole server under writers and watchers, and of the embedded store alone. A few rounds have every kind of
//! crash in them; `scripts/test crash_soak` has many more, to meet moments that are rare.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used)]

// How often, and numbers that look random.
mod dice;
// What was written, what must be there, what must have been seen.
mod ledger;
// Who writes while the server dies.
mod writers;
// Who watches over all its lives.
mod watchers;
// The server.
mod server;
// The store alone.
mod store;
// The timeline.
mod explain;
