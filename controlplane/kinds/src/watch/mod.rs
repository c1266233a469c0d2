//! Objects in memory: for every kind the newest objects and a ring of recent events. Watchers are cursors on the ring,
//! so that publishing costs the same for one watcher and for ten thousand; one that falls off gets `410 Expired`.

// Fills the caches from one watch on the store.
pub mod reflector;
// Events of objects.
pub mod event;
// The line of an event that watchers get.
pub mod render;
// One kind's objects and cursors on its events.
pub mod cache;
// The recent events of a kind.
mod ring;
// How far the caches are, and who waits for it.
pub mod progress;
