//! The table of kinds, API objects in their stored form, and the watch cache. `watch` uses `registry`, and both use `object`.
//!
//! May depend on `coracle-store`, `coracle-expressions` and `coracle-validation`. It knows no HTTP and no users.

#![forbid(unsafe_code)]

// The table of kinds: one row per kind, with strategies and columns.
pub mod registry;
// An API object in memory: its bytes, plus the metadata that selectors and owners need.
pub mod object;
// The watch cache: objects and recent events per kind.
pub mod watch;
