//! Field rules per kind, with upstream's wording.
