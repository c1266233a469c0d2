//! The request's journey, top down.

// The four patch formats and field ownership.
pub mod patch;
// Tables and partial metadata.
pub mod table;
// Paths of printer columns.
pub mod jsonpath;
