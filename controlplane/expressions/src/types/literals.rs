//! Texts that are written into an expression and that a function reads: one that it can never read is an error before any value is
//! known.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};

use crate::patterns::{self, Illegal};
use crate::{Budget, CompileError, Program, compile, context};
use std::sync::LazyLock;

// Parsed once: an expression may have thousands of such texts.
static DURATION: LazyLock<Result<Program, CompileError>> = LazyLock::new(|| compile("duration(text)"));
static TIMESTAMP: LazyLock<Result<Program, CompileError>> = LazyLock::new(|| compile("timestamp(text)"));
/// What it may cost to read a text.
const COST: u64 = 10_000;

/// The argument of a call that its function cannot read.
pub(super) fn unreadable(call: &CallExpr) -> Option<&IdedExpr> {
    let argument = call.args.first()?;
    let Expr::Literal(LiteralValue::String(text)) = &argument.expr else { return None };
    let is_readable = match (call.func_name.as_str(), call.target.is_some()) {
        ("duration", false) => can_read(&DURATION, text.inner()),
        ("timestamp", false) => can_read(&TIMESTAMP, text.inner()),
        ("matches", true) => is_pattern(text.inner()),
        _ => true,
    };
    (!is_readable).then_some(argument)
}

fn can_read(function: &LazyLock<Result<Program, CompileError>>, text: &str) -> bool {
    // Microseconds in another spelling, which the interpreter does not know.
    if text.contains(['\u{b5}', '\u{3bc}']) {
        return true;
    }
    let Ok(program) = &**function else { return true };
    let mut context = context();
    context.add_variable_from_value("text", text.to_owned());
    program.evaluate(&context, &mut Budget::of(COST)).is_ok()
}

/// A pattern that is only too large for this program is no mistake.
fn is_pattern(text: &str) -> bool {
    !matches!(patterns::bounded(text), Err(Illegal::Rejected { reason: regex::Error::Syntax(_) }))
}
