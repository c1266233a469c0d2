//! Errors of compilation, and the messages of failed evaluations.

use super::limits::LimitError;
use cel::ExecutionError;
use cel::common::ast::SourceInfo;

/// The longest text that an error carries: some quote the values that they are about.
const SAID: usize = 1024;

/// The longest line that an error shows, as upstream.
const LINE: usize = 16_384;

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

/// `ERROR: <input>:1:5: why`, with the line and a mark below it unless the line is too long.
pub(super) fn located(info: &SourceInfo, id: u64, why: &str) -> String {
    let start = info.offset_for(id).map_or(0, |(start, _)| start as usize).min(info.source.len());
    let before = info.source.get(..start).unwrap_or_default();
    let (line, column) = (before.matches('\n').count(), before.rsplit('\n').next().unwrap_or_default().len());
    let text = info.source.lines().nth(line).unwrap_or_default();
    let said = format!("ERROR: <input>:{}:{}: {why}", line + 1, column + 1);
    match text.len() > LINE {
        true => said,
        false => format!("{said}\n | {text}\n | {}^", ".".repeat(column)),
    }
}
