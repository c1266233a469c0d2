//! CEL for the rules of custom resources, the conditions of webhooks and admission policies: the standard library, the
//! extensions for strings, lists and numbers, and the functions that the API server adds. The length and depth of an expression
//! are limited before it is parsed. Its cost is estimated when it is stored and counted while it is evaluated.
//!
//! Depends on no other crate of the control plane.

#![forbid(unsafe_code)]

// Parsing IP addresses and CIDR ranges.
pub mod addresses;
// Why a text cannot be compiled.
mod error;
// Limits on the length and depth of an expression.
mod limits;
// Cost limits, and time limits for slow expressions.
mod budget;
// The highest possible cost of an expression, estimated from the schema.
pub mod estimate;
// The cost of evaluation.
mod meter;
// Adds cost counting to a parsed expression.
mod rewrite;
// Regular expressions.
pub mod patterns;
// Regular expression syntax that only Go accepts.
mod go_regex;
// Functions that the API server adds: quantities, addresses, sets, lists, patterns.
mod library;
// Checks variables, functions and fields of an expression against the schema.
pub mod names;

pub use budget::{Budget, CONDITIONS, Failure, VALIDATION, evaluate_blocking};
pub use error::{CompileError, StackError};
pub use limits::LimitError;

use cel::common::ast::{IdedExpr, SourceInfo};
use cel::objects::OptionalValue;
use cel::parser::ExpressionReferences;
use cel::{Context, Env, ExecutionError};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    let added = env
        .add_extension(cel::extensions::strings)
        .and_then(|()| env.add_extension(cel::extensions::lists))
        .and_then(|()| env.add_extension(cel::extensions::math))
        .and_then(|()| env.add_extension(cel::extensions::encoders))
        .and_then(|()| env.add_extension(library::extension))
        .and_then(|()| env.add_extension(meter::extension))
        .and_then(|()| env.add_extension(patterns::extension));
    added.expect("no two functions of the library have the same signature");
    Arc::new(env)
});

/// What the interpreter says when the budget is spent, as Go's does.
const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";

/// The longest text that an error carries: some quote the values that they are about.
const SAID: usize = 1024;

/// What the parser needs for the deepest expression.
const PARSER_STACK: usize = 32 << 20;

/// What the interpreter needs for a level, and how deep expressions may be that threads which serve requests evaluate.
const FRAME: usize = if cfg!(debug_assertions) { 96 << 10 } else { 24 << 10 };
const SHALLOW: usize = if cfg!(debug_assertions) { 6 } else { DEEP };

/// Deeper expressions are evaluated on a thread of their own in every build, and pay for its start: some fifty
/// microseconds, as long as so many steps.
const DEEP: usize = 32;
const THREAD: u64 = 1_000;

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
    limits::fits(text)?;
    with_stack(PARSER_STACK, || {
        let parsed = LANGUAGE
            .compile(text)
            .map_err(|errors| CompileError::Syntax(errors.to_string().replace("\n| ", "\n | ")))?;
        let measured = rewrite::measured(parsed.expression());
        Ok(Program { parsed, measured })
    })?
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

/// A value that may be there or not.
pub fn optional(value: Option<cel::Value>) -> cel::Value {
    cel::Value::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

/// What went wrong, as Go's evaluator says it.
pub fn explain(error: &ExecutionError) -> String {
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

/// A JSON value as CEL knows it: whole numbers are ints.
pub fn to_cel(value: &Value) -> cel::Value {
    to_cel_typed(&Value::Null, value)
}

/// A JSON value as CEL knows it by a schema: numbers are what the schema calls them, dates and spans of time are such,
/// and fields whose names are no identifiers have other names.
pub fn to_cel_typed(schema: &Value, value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(is) => cel::Value::Bool(*is),
        Value::Number(number) => match number.as_i64().filter(|_| schema["type"] != "number") {
            Some(whole) => cel::Value::Int(whole),
            None => cel::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => {
            let parsed = match schema["format"].as_str() {
                Some("date-time") => read_by(&TIMESTAMP, text),
                Some("duration") => read_by(&DURATION, text),
                _ => None,
            };
            parsed.unwrap_or_else(|| cel::Value::String(Arc::new(text.clone())))
        }
        Value::Array(items) => cel::Value::List(Arc::new(
            items.iter().map(|item| to_cel_typed(&schema["items"], item)).collect(),
        )),
        Value::Object(fields) => {
            let lift = |(name, value): (&String, &Value)| match schema["properties"].get(name) {
                Some(of) => (names::escaped(name), to_cel_typed(of, value)),
                None => (name.clone(), to_cel_typed(&schema["additionalProperties"], value)),
            };
            cel::Value::from(fields.iter().map(lift).collect::<HashMap<String, cel::Value>>())
        }
    }
}

/// How many values there are in a value: what it costs to lift it.
pub fn values_in(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(values_in).sum::<u64>(),
        Value::Object(fields) => 1 + fields.values().map(values_in).sum::<u64>(),
        Value::String(text) => 1 + text.len() as u64 / 64,
        _ => 1,
    }
}

/// The same of a value that an expression made.
pub fn values_made(value: &cel::Value) -> u64 {
    match value {
        cel::Value::List(items) => 1 + items.iter().map(values_made).sum::<u64>(),
        cel::Value::Map(map) => 1 + map.map.values().map(values_made).sum::<u64>(),
        cel::Value::String(text) => 1 + text.len() as u64 / 64,
        _ => 1,
    }
}

static TIMESTAMP: LazyLock<Option<cel::Program>> = LazyLock::new(|| LANGUAGE.compile("timestamp(t)").ok());
static DURATION: LazyLock<Option<cel::Program>> = LazyLock::new(|| LANGUAGE.compile("duration(t)").ok());

fn read_by(parser: &Option<cel::Program>, text: &str) -> Option<cel::Value> {
    let mut context = context();
    context.add_variable_from_value("t", cel::Value::String(Arc::new(text.to_owned())));
    parser.as_ref()?.execute(&context).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn says(text: &str) -> Result<cel::Value, String> {
        says_for(VALIDATION, text)
    }

    fn says_for(budget: u64, text: &str) -> Result<cel::Value, String> {
        let mut context = context();
        let schema = json!({"properties": {"ratio": {"type": "number"}, "at": {"format": "date-time"},
            "a-b": {"type": "string"}, "list": {"items": {"type": "integer"}}, "none": {}}});
        let object = json!({"ratio": 1, "at": "2024-01-02T03:04:05Z", "a-b": "x", "list": [3, 1, 2], "map": {"k-1": 1}});
        context.add_variable_from_value("self", to_cel_typed(&schema, &object));
        context.add_variable_from_value("old", optional(None));
        let mut budget = Budget::of(budget);
        let program = compile(text).map_err(|error| error.to_string())?;
        program.evaluate(&context, &mut budget).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_language_has_what_rules_use() {
        for text in [
            "self.ratio / 2.0 == 0.5",
            "self.at > timestamp('2024-01-01T00:00:00Z') && self.at.getFullYear() == 2024",
            "self.a__dash__b == 'x' && self.map['k-1'] == 1",
            "!old.hasValue() && old.orValue(3) == 3",
            "self.list.all(x, x > 0) && self.list.exists_one(x, x == 2) && !has(self.none)",
            "self.list.sum() == 6 && self.list.min() == 1 && self.list.max() == 3 && !self.list.isSorted()",
            "self.list.indexOf(2) == 2 && [1, 1].lastIndexOf(1) == 1 && 'abc'.indexOf('c') == 2",
            "self.list.sort().isSorted() && [].sum() == 0",
            "sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])",
            "'abc123'.find('[0-9]+') == '123' && 'a1b2'.findAll('[0-9]') == ['1', '2'] && 'a1b2'.findAll('[0-9]', 1) == ['1']",
            "'A-b'.lowerAscii() == 'a-b' && 'a,b'.split(',').join('-') == 'a-b' && ' a '.trim() == 'a'",
            "quantity('1Gi').isGreaterThan(quantity('500Mi')) && quantity('1024Mi') == quantity('1Gi')",
            "quantity('1').compareTo(quantity('2')) == -1 && isQuantity('1k') && !isQuantity('x')",
            "quantity('2k').asInteger() == 2000 && quantity('1').add(1).sub(quantity('500m')).asApproximateFloat() == 1.5",
            "isIP('10.0.0.1') && !isIP('10.0.0.01') && ip('::1').family() == 6 && ip('127.0.0.1').isLoopback()",
            "isCIDR('10.0.0.0/8') && cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').prefixLength() == 8",
            "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')",
            "isURL('https://a.example:1/x') && url('https://a.example:1/x').getHostname() == 'a.example' && !isURL('a b')",
            "url('https://a.example:1/x').getScheme() == 'https' && url('https://a.example:1/x').getPort() == '1'",
            "self.list.map(x, x * 2) == [6, 2, 4] && {'a': 1}.exists(k, k == 'a')",
        ] {
            assert_eq!(says(text), Ok(cel::Value::Bool(true)), "{text}");
        }
        assert_eq!(says("self.nothing"), Err("no such key: nothing".into()));
        assert_eq!(says("1 / 0"), Err("division by zero".into()));
        assert!(says("self.list.sum() >").unwrap_err().starts_with("ERROR: <input>:1:"));
    }

    #[test]
    fn hostile_expressions_end() {
        let text = "a".repeat(500);
        for hostile in [
            "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))".to_owned(),
            // Errors that operators absorb.
            "lists.range(1000).exists(a, lists.range(1000).exists(b, lists.range(1000).exists(c, c / 0 == 1)))".to_owned(),
            "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + c >= 0))) || true".to_owned(),
            "lists.range(1000).exists_one(a, lists.range(1000).exists_one(b, lists.range(1000).exists_one(c, c < 0)))".to_owned(),
            // Values that grow.
            "lists.range(100000).map(a, lists.range(100000)).size() > 0".to_owned(),
            "lists.range(1000).filter(a, [lists.range(1000), lists.range(1000), lists.range(1000)] != []).size() > 0".to_owned(),
            format!("'{text}'{}.size() > 0", ".replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')".repeat(8)),
            format!("lists.range(10000).map(a, '{text}').join('{text}').split('') == []"),
            "lists.range(100000).map(a, {'a': lists.range(100)}).size() > 0".to_owned(),
            "lists.range(1000).map(a, self.?list.orValue([])).map(b, lists.range(1000)).size() > 0".to_owned(),
            // Functions that compare everything with everything.
            "lists.range(100000).distinct() == []".to_owned(),
            "sets.contains(lists.range(100000), lists.range(100000))".to_owned(),
            "lists.range(1000).all(a, lists.range(1000) == lists.range(1000))".to_owned(),
            "lists.range(1000).all(a, 999 in lists.range(1000))".to_owned(),
            // Patterns that have to be compiled.
            "lists.range(1000).exists(x, 'a'.matches('(a' + string(x) + '){200}'))".to_owned(),
            "lists.range(1000).map(x, 'a'.find('(b' + string(x) + '){200}')).size() == 0".to_owned(),
            "lists.range(1000).sortBy(x, lists.range(1000).sortBy(y, lists.range(1000).size())[0]) == []".to_owned(),
        ] {
            let begun = std::time::Instant::now();
            // A part of the budget, so that the test takes a part of the time.
            assert_eq!(says_for(100_000, &hostile), Err(Failure::Budget.to_string()), "{hostile}");
            assert!(begun.elapsed().as_secs() < 120, "{:?}: {hostile}", begun.elapsed());
        }
        assert_eq!(says("true || lists.range(100000).distinct() == []"), Ok(cel::Value::Bool(true)));
        assert_eq!(says("lists.range(100000).distinct() == []"), Err(EXCEEDED.to_owned()));
    }

    /// What is not too deep to be parsed is not too deep for the stack of a thread that serves requests.
    #[test]
    fn the_deepest_expressions_fit_the_stack() {
        let nested = |open: &str, middle: &str, close: &str, times: usize| {
            format!("{}{middle}{}", open.repeat(times), close.repeat(times))
        };
        let mut evaluated = 0;
        for times in [20, 40, 60, 80, 120, 240] {
            for text in [
                format!("1{} > 0", " + 1".repeat(times)),
                nested("[", "1", "]", times) + " != []",
                nested("(1 + ", "1", ")", times) + " > 0",
                nested("{'a': ", "1", "}", times) + " != {}",
                nested("[1].map(x, ", "1", ")", times) + " != []",
                nested("[1].exists(x, ", "true", ")", times),
                nested("dyn(", "1", ")", times) + " == 1",
                format!("{}true", "false ? false : ".repeat(times)),
            ] {
                evaluated += usize::from(says(&text) == Ok(cel::Value::Bool(true)));
            }
        }
        assert!(evaluated > 20, "{evaluated}");
    }

    /// A rule about every item of a list would start a thread for each of them.
    #[test]
    fn deep_expressions_pay_for_their_thread() {
        let program = compile(&format!("{}true", "false ? false : ".repeat(60))).unwrap();
        let (context, mut budget) = (context(), Budget::of(20 * THREAD));
        let evaluated = (0..100).take_while(|_| program.evaluate(&context, &mut budget).is_ok()).count();
        assert!((1..=20).contains(&evaluated), "{evaluated}");
        assert!(budget.is_spent());
    }

    /// Names that functions are called by are names of values, too.
    #[test]
    fn what_is_measured_says_the_same() {
        for text in [
            "['a'].all(ip, ip.matches('^a$') && ip.startsWith('a')) && ip.isCanonical('10.0.0.1')",
            "['a'].all(math, math.size() == 1) && math.abs(-1) == 1 && math.least(1, 2, 3) == 1",
            "matches('abc', 'b+') && !'abc'.matches('^b')",
            "[3, 1, 2].sortBy(x, -x) == [3, 2, 1] && strings.quote('a') == '\"a\"' && base64.encode(b'a') == 'YQ=='",
            "optional.of(1).hasValue() && optional.none().orValue(2) == 2 && self.?a__dash__b.orValue('') == 'x'",
            "{'a': [1, {'b': 2}]}.a[1].b == 2 && has({'a': 1}.a) && !has(self.map.nothing)",
            "[1, 2, 3].filter(x, x > 1).map(y, y > 2, y * 2) == [6] && [[1], [2]].flatten() == [1, 2]",
            "'%s is %d'.format(['a', 1]) == 'a is 1' && 'abc'.replace('b', 'xx', 1) == 'axxc' && 'a,b'.split(',', 1) == ['a,b']",
            "dyn(1) == 1 && type(self.list) == list && size(self.list) == 3 && 'ü'.size() == 1 && (true ? 1 : 2) == 1",
            "[1, 1].exists_one(x, x == 2) == false && {'a': 1, 'b': 2}.all(k, k < 'c') && 'a' in {'a': 1} && !(4 in self.list)",
        ] {
            assert_eq!(says(text), Ok(cel::Value::Bool(true)), "{text}");
        }
        assert!(says("'a'.matches('[')").unwrap_err().contains("Illegal regex"));
    }
}
