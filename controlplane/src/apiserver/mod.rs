//! The request's journey, top down.

// The four patch formats and field ownership.
pub mod patch;
