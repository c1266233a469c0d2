//! Regular expressions. The interpreter compiles a pattern each time that it is used; compiling one of some characters may
//! take as long as a million steps of evaluation. Here they are compiled once, within bounds, and charged for.

use super::go_regex::{self, SyntaxError};
use super::meter::{self, EXCEEDED, MATCHES};
use cel::common::ast::CallExpr;
use cel::common::types::{CelBool, CelString, STRING_TYPE};
use cel::common::value::CowVal;
use cel::{DeclarationError, Env, ExecutionError};
use regex::{Regex, RegexBuilder};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A compiled pattern may take so many bytes, and as many again while it is used.
pub const LARGEST: usize = 4 << 20;
/// Sizes that a pattern is compiled for, one after the other: the first that is enough is what it counts for.
const SIZES: [usize; 3] = [64 << 10, 512 << 10, LARGEST];
/// Characters of a pattern.
const LONGEST: usize = 16 * 1024;
/// The size of all patterns that are kept compiled.
const KEPT: usize = 128 << 20;
/// What it costs to compile one.
const COST: u64 = 10_000;

/// A pattern that is ready for use.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The pattern.
    pub regex: Arc<Regex>,
    /// The memory that it takes at most.
    pub size: usize,
}

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Illegal {
    /// Its text is too long to be compiled.
    #[error("longer than {limit} bytes")]
    TooLong {
        /// The longest that is accepted.
        limit: usize,
    },
    /// It is no regular expression.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// It is a regular expression that is too large for this program.
    #[error("takes more than {limit} bytes when it is compiled")]
    TooLarge {
        /// The largest that is accepted.
        limit: usize,
    },
    /// It is a regular expression whose groups are nested too deep for this program.
    #[error("its groups are nested too deep")]
    TooDeep,
}

/// Why an expression cannot use a pattern.
#[derive(Debug, thiserror::Error)]
pub(super) enum PatternError {
    /// Compiling it costs more than is left.
    #[error("{EXCEEDED}")]
    Cost,
    #[error("Illegal regex: {0}")]
    Illegal(Illegal),
}

/// Patterns that were compiled, and those that cannot be: finding that out takes as long.
#[derive(Default)]
struct Known {
    outcomes: HashMap<String, Result<Compiled, Illegal>>,
    size: usize,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn known(pattern: &str) -> Option<Result<Compiled, Illegal>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).outcomes.get(pattern).cloned()
}

/// The pattern, compiled, for expressions, which pay for it.
pub(super) fn compiled(pattern: &str) -> Result<Arc<Regex>, PatternError> {
    if known(pattern).is_none() {
        meter::charge(COST).map_err(|_| PatternError::Cost)?;
    }
    bounded(pattern).map(|compiled| compiled.regex).map_err(PatternError::Illegal)
}

/// The pattern, compiled within bounds of length and memory, from the cache if it is there.
pub fn bounded(pattern: &str) -> Result<Compiled, Illegal> {
    if pattern.len() > LONGEST {
        return Err(Illegal::TooLong { limit: LONGEST });
    }
    if let Some(outcome) = known(pattern) {
        return outcome;
    }
    let outcome = build(pattern);
    let size = outcome.as_ref().map_or(SIZES[0], |compiled| compiled.size);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.size + size > KEPT {
        *known = Known::default();
    }
    // Another thread may have compiled the same pattern meanwhile.
    if known.outcomes.insert(pattern.to_owned(), outcome.clone()).is_none() {
        known.size += size;
    }
    outcome
}

/// Whether a text is no regular expression; one that is only too large for this program is. It is not compiled for this: an
/// expression may have thousands of patterns.
pub(super) fn is_mistake(pattern: &str) -> bool {
    pattern.len() <= LONGEST && go_regex::translated(pattern).is_err()
}

/// Compiles a pattern as Go understands it.
fn build(pattern: &str) -> Result<Compiled, Illegal> {
    let translated = go_regex::translated(pattern)?;
    for size in SIZES {
        match RegexBuilder::new(&translated).size_limit(size).dfa_size_limit(LARGEST).build() {
            Ok(regex) => return Ok(Compiled { regex: Arc::new(regex), size }),
            Err(regex::Error::CompiledTooBig(_)) => {}
            // What is translated has no other mistakes.
            Err(_) => return Err(Illegal::TooDeep),
        }
    }
    Err(Illegal::TooLarge { limit: LARGEST })
}

/// A call of our `matches` in place of one of the interpreter's, `text.matches(pattern)` or `matches(text, pattern)`.
pub(super) fn replace_matches_call(call: CallExpr) -> CallExpr {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn patterns_are_compiled_once_and_within_bounds() {
        let (first, second) = (bounded("^once[a-z]+$").unwrap(), bounded("^once[a-z]+$").unwrap());
        assert!(Arc::ptr_eq(&first.regex, &second.regex));
        assert_eq!(first.size, SIZES[0]);
        assert!(bounded("^[a-z]{1,1000}$").unwrap().size <= LARGEST);
        for (pattern, why) in [
            ("(".to_owned(), "a group has no closing parenthesis"),
            ("[a-z]{1000}\\p{L}{1000}".to_owned(), "takes more than 4194304 bytes"),
            ("(".repeat(500) + &")".repeat(500), "nested too deep"),
            ("a".repeat(LONGEST + 1), "longer than 16384 bytes"),
        ] {
            assert_eq!(is_mistake(&pattern), pattern == "(");
            for _ in 0..2 {
                let said = bounded(&pattern).unwrap_err().to_string();
                assert!(said.contains(why), "{said}");
            }
        }
    }
}
