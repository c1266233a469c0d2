//! Expressions that never end.
