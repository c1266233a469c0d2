//! Field rules per kind, with upstream's wording. Rules read like prose: a [`spot::Spot`] is a value together with
//! its path and the list that its errors go to.

// A value, its path and where its errors go.
pub mod spot;
// Names, and short texts that follow a pattern.
pub mod names;
// Metadata of every object.
pub mod meta;
