//! Selectors of lists and watches, and of workloads.

// By labels.
mod labels;
// By the fields a kind offers.
mod fields;

pub use fields::{FieldSelector, FieldTerm};
pub use labels::{LabelSelector, Operator, Requirement};

/// Why a selector is refused; the text is what the client reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);
