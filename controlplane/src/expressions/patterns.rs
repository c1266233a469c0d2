//! Regular expressions. The interpreter compiles a pattern each time that it is used; compiling one of some characters may
//! take as long as a million steps of evaluation. Here they are compiled once, within bounds, and charged for.

use super::meter;
use cel::common::ast::CallExpr;
use cel::common::types::{CelBool, CelString, STRING_TYPE};
use cel::common::value::CowVal;
use cel::{DeclarationError, Env, ExecutionError};
use regex::{Regex, RegexBuilder};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Our own `matches`; no expression that somebody writes can name it.
pub(super) const MATCHES: &str = "@matches";

/// A compiled pattern may take so many bytes, and as many again while it is used.
const LARGEST: usize = 4 << 20;
/// Characters of a pattern.
const LONGEST: usize = 16 * 1024;
/// Patterns that are kept compiled.
const KEPT: usize = 128;
/// What it costs to compile one.
const COST: u64 = 10_000;

static COMPILED: LazyLock<Mutex<HashMap<String, Arc<Regex>>>> = LazyLock::new(Mutex::default);

/// The pattern, compiled.
pub(super) fn compiled(pattern: &str) -> Result<Arc<Regex>, String> {
    let known = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known().get(pattern) {
        return Ok(found.clone());
    }
    meter::charge(COST).map_err(|error| super::explain(&error))?;
    if pattern.len() > LONGEST {
        return Err(format!("Illegal regex: longer than {LONGEST} bytes"));
    }
    let made = RegexBuilder::new(pattern).size_limit(LARGEST).dfa_size_limit(LARGEST).build();
    let made = Arc::new(made.map_err(|error| format!("Illegal regex: {error}"))?);
    let mut known = known();
    if known.len() >= KEPT {
        known.clear();
    }
    known.insert(pattern.to_owned(), made.clone());
    Ok(made)
}

/// A call of our `matches` in place of one of the interpreter's, `text.matches(pattern)` or `matches(text, pattern)`.
pub(super) fn instead_of_matches(call: CallExpr) -> CallExpr {
    let operands = call.args.len() + usize::from(call.target.is_some());
    if call.func_name != "matches" || operands != 2 {
        return call;
    }
    let args = call.target.map(|target| *target).into_iter().chain(call.args).collect();
    CallExpr { func_name: MATCHES.to_owned(), target: None, args }
}

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(MATCHES, "matches", vec![STRING_TYPE, STRING_TYPE], |args| {
        let text = |at: usize| args.get(at).and_then(|arg| arg.downcast_ref::<CelString>());
        let (Some(text), Some(pattern)) = (text(0), text(1)) else {
            return Err(ExecutionError::missing_argument_or_target());
        };
        let pattern =
            compiled(pattern.inner()).map_err(|why| ExecutionError::function_error("matches", why))?;
        Ok(CowVal::owned(CelBool::from(pattern.is_match(text.inner()))))
    })
}
