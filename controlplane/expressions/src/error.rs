//! Errors of compilation.

use super::limits::LimitError;

/// Why a text is not an expression that can be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// It is too long or too deep to be parsed.
    #[error(transparent)]
    LimitError(#[from] LimitError),
    /// What the parser reports, line by line.
    #[error("{0}")]
    Syntax(String),
    /// It was not parsed.
    #[error(transparent)]
    Stack(#[from] StackError),
}

/// Why work on a thread with a larger stack has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// The thread does not start.
    #[error("no thread: {0}")]
    Start(std::io::Error),
    /// The work panicked.
    #[error("evaluation failed")]
    Panicked,
}
