//! Objects in memory: for every kind the newest objects and a ring of recent events. Watchers are cursors on the ring,
//! so that publishing costs the same for one watcher and for ten thousand; one that falls off gets `410 Expired`.

// One kind's objects, its ring, and cursors on it.
pub mod cache;
// Feeds the caches from the store's single history.
pub mod feed;
