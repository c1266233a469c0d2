//! Errors of compilation, and the messages of failed evaluations.

use super::limits::LimitError;
use cel::ExecutionError;

/// The longest text that an error carries: some quote the values that they are about.
const SAID: usize = 1024;

/// Why a text is not an expression that can be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// It is too long or too deep to be parsed.
    #[error(transparent)]
    LimitError(#[from] LimitError),
    /// What the parser reports, line by line.
    #[error("{0}")]
    Syntax(String),
    /// It constructs what is not there, or evaluates to something else than it must.
    #[error("{0}")]
    Type(String),
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

/// What went wrong, as Go's evaluator says it.
pub(super) fn explain(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".into(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".into(),
        ExecutionError::Overflow(..) => "integer overflow".into(),
        ExecutionError::IndexOutOfBounds(cel::Value::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => {
            let said = other.to_string();
            said.chars().take(SAID).collect()
        }
    }
}
