//! Label and field selectors.

// By labels.
mod labels;
// By the fields a kind offers.
mod fields;

pub use fields::{FieldSelector, FieldTerm};
pub use labels::{LabelSelector, Operator, Requirement};

use crate::status::{FieldError, aggregate};

/// Why a selector is refused; the text is what the client reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A token of a label selector that cannot stand where it is.
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        /// The token; empty at the end of the text.
        found: String,
        /// What can stand there.
        expected: &'static str,
    },
    /// No list of values after `in` or `notin`.
    #[error("found '{0}' expected: '('")]
    NoValues(String),
    /// A requirement of a label selector that is not one.
    #[error("unable to parse requirement: {0}")]
    Requirement(Box<SelectorError>),
    /// A requirement with a key or values that are not allowed.
    #[error("{}", aggregate(.0))]
    Invalid(Vec<FieldError>),
    /// An operator that a `LabelSelector` object does not have.
    #[error("\"{0}\" is not a valid label selector operator")]
    Operator(String),
    /// A term of a field selector without `=` or `!=`.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The whole selector.
        selector: String,
        /// The term.
        term: String,
    },
    /// A backslash before a character that needs none.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A `,` or `=` without a backslash in a value.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
}
