//! Compiles expressions, with a cache, and evaluates them. Parser and interpreter recurse: what is too deep for the stack of
//! a thread that serves requests is parsed and evaluated on a thread with a larger one.

use super::error::{CompileError, StackError};
use super::objects::{self, PatchForm};
use super::{
    Budget, Failure, authorizer, bindings, formats, go_time, library, limits, meter, patterns, rewrite,
    two_variables, versions,
};
use cel::common::ast::{IdedExpr, SourceInfo};
use cel::parser::ExpressionReferences;
use cel::{Context, Env, ExecutionError};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// The standard library and its extensions.
pub(super) static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(language()));

/// The same for selectors of devices, in which values can have names.
static SELECTORS: LazyLock<Env> = LazyLock::new(|| {
    let mut env = language();
    bindings::extension(&mut env).expect("no other macro has the name");
    env
});

fn language() -> Env {
    let mut env = Env::stdlib();
    let added = env
        .add_extension(cel::extensions::strings)
        .and_then(|()| env.add_extension(cel::extensions::lists))
        .and_then(|()| env.add_extension(cel::extensions::math))
        .and_then(|()| env.add_extension(cel::extensions::encoders))
        .and_then(|()| env.add_extension(library::extension))
        .and_then(|()| env.add_extension(formats::extension))
        .and_then(|()| env.add_extension(versions::extension))
        .and_then(|()| env.add_extension(two_variables::extension))
        .and_then(|()| env.add_extension(authorizer::extension))
        .and_then(|()| env.add_extension(meter::extension))
        .and_then(|()| env.add_extension(objects::extension))
        .and_then(|()| env.add_extension(patterns::extension))
        .and_then(|()| env.add_extension(go_time::extension));
    added.expect("no two functions of the library have the same signature");
    env
}

/// What the parser needs for the deepest expression.
const PARSER_STACK: usize = 32 << 20;

/// What the interpreter needs for a level, and how deep expressions may be that threads which serve requests evaluate.
const FRAME: usize = if cfg!(debug_assertions) { 96 << 10 } else { 24 << 10 };
const SHALLOW: usize = if cfg!(debug_assertions) { 6 } else { DEEP };

/// Deeper expressions are evaluated on a thread of their own in every build, and pay for its start: some fifty
/// microseconds, as long as so many steps.
const DEEP: usize = 32;
pub(super) const THREAD: u64 = 1_000;

/// Size of the cache of compiled expressions.
const KNOWN_PROGRAMS: usize = 256;

/// An expression that can be evaluated. Evaluation is only possible with a budget.
///
/// ```
/// use coracle_expressions::{Budget, compile, context};
/// let program = compile("'web'.startsWith('w') && 1 + 1 == 2")?;
/// let value = program.evaluate(&context(), &mut Budget::of(1_000));
/// assert!(matches!(value, Ok(cel::Value::Bool(true))));
/// # Ok::<(), coracle_expressions::CompileError>(())
/// ```
pub struct Program {
    parsed: cel::Program,
    measured: rewrite::Measured,
}

impl Program {
    /// The variables and functions that it names.
    pub fn references(&self) -> ExpressionReferences<'_> {
        self.parsed.references()
    }

    /// The expression as it was written.
    pub fn expression(&self) -> &IdedExpr {
        self.parsed.expression()
    }

    /// Where its parts were written.
    pub fn source_info(&self) -> &SourceInfo {
        self.parsed.source_info()
    }

    /// Its value, paid from the budget.
    pub fn evaluate(&self, context: &Context<'_, '_>, budget: &mut Budget) -> Result<cel::Value, Failure> {
        let measured = &self.measured;
        let start = if measured.depth > DEEP { THREAD } else { 0 };
        budget.spend(|limit| {
            let evaluate = || {
                meter::within(limit, measured.calls, || {
                    meter::charge(start + measured.base)?;
                    cel::Value::resolve(&measured.expression, context)
                })
            };
            if measured.depth <= SHALLOW {
                return evaluate();
            }
            with_stack(measured.depth * FRAME, evaluate).unwrap_or_else(|why| {
                let outcome = Err(ExecutionError::function_error("evaluate", why));
                meter::Metered { outcome, exceeded: false, spent: start.min(limit) }
            })
        })
    }
}

/// An expression that can be evaluated, or what is wrong with it, line by line.
pub fn compile(text: &str) -> Result<Program, CompileError> {
    compile_as(&LANGUAGE, text, None)
}

/// The same of a selector of devices.
pub fn compile_selector(text: &str) -> Result<Program, CompileError> {
    compile_as(&SELECTORS, text, None)
}

/// The same of a mutation, which may construct objects and has to evaluate to a patch.
pub fn compile_patch(text: &str, form: PatchForm) -> Result<Program, CompileError> {
    compile_as(&LANGUAGE, text, Some(form))
}

fn compile_as(language: &Env, text: &str, form: Option<PatchForm>) -> Result<Program, CompileError> {
    limits::fits(text)?;
    with_stack(PARSER_STACK, || {
        let parsed = language
            .compile(text)
            .map_err(|errors| CompileError::Syntax(errors.to_string().replace("\n| ", "\n | ")))?;
        let measured = rewrite::measured(parsed.expression(), form.is_some());
        let program = Program { parsed, measured };
        if let Some(form) = form {
            objects::check(program.expression(), program.source_info(), form)?;
        }
        Ok(program)
    })?
}

/// Does work on a thread with as much stack as the parser has: as deep as an expression can be, it can be read.
pub(super) fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, StackError> {
    with_stack(PARSER_STACK, work)
}

/// Does work on a thread of its own that has so much stack. What of it is not used takes no memory.
fn with_stack<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> Result<T, StackError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("cel".into()).stack_size(bytes.max(PARSER_STACK));
        let thread = thread.spawn_scoped(scope, work).map_err(StackError::Start)?;
        thread.join().map_err(|_| StackError::Panicked)
    })
}

/// Compiles an expression, with a cache by its text.
pub fn compiled(text: &str) -> Result<Arc<Program>, CompileError> {
    static KNOWN: LazyLock<Mutex<HashMap<String, Arc<Program>>>> = LazyLock::new(Mutex::default);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known().get(text) {
        return Ok(found.clone());
    }
    let program = Arc::new(compile(text)?);
    let mut known = known();
    if known.len() >= KNOWN_PROGRAMS {
        known.clear();
    }
    known.insert(text.to_owned(), program.clone());
    Ok(program)
}

/// Where an expression is evaluated; it knows the functions and no variables.
pub fn context<'v>() -> Context<'static, 'v> {
    Context::with_env(LANGUAGE.clone())
}
