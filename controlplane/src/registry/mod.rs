//! The kinds the server knows and how objects of each kind are made, changed and read.

// One row per kind; routes, discovery, storage, selectors and columns derive from it.
pub mod kinds;
