//! Feeds the caches from the store.
