//! CEL, as rules of custom resources, conditions of webhooks and admission policies speak it: the standard library, the
//! extensions for strings, lists and numbers, and what the API server adds.

// Functions that only the API server has: quantities, addresses, sets, lists, patterns.
mod library;
// What an expression refers to, against the schema of the value that it is about.
pub mod names;

use cel::objects::OptionalValue;
use cel::{Context, Env, ExecutionError, Program};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    let added = env
        .add_extension(cel::extensions::strings)
        .and_then(|()| env.add_extension(cel::extensions::lists))
        .and_then(|()| env.add_extension(cel::extensions::math))
        .and_then(|()| env.add_extension(cel::extensions::encoders))
        .and_then(|()| env.add_extension(library::extension));
    added.expect("no two functions of the library have the same signature");
    Arc::new(env)
});

/// An expression that can be evaluated, or what is wrong with it, line by line.
pub fn compile(text: &str) -> Result<Program, String> {
    LANGUAGE.compile(text).map_err(|errors| errors.to_string().replace("\n| ", "\n | "))
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
        other => other.to_string(),
    }
}

/// A JSON value as CEL knows it: whole numbers are ints.
pub fn lifted(value: &Value) -> cel::Value {
    lifted_as(&Value::Null, value)
}

/// A JSON value as CEL knows it by a schema: numbers are what the schema calls them, dates and spans of time are such,
/// and fields whose names are no identifiers have other names.
pub fn lifted_as(schema: &Value, value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(is) => cel::Value::Bool(*is),
        Value::Number(number) => match number.as_i64().filter(|_| schema["type"] != "number") {
            Some(whole) => cel::Value::Int(whole),
            None => cel::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => {
            let parser = match schema["format"].as_str() {
                Some("date-time") => "timestamp(t)",
                Some("duration") => "duration(t)",
                _ => return cel::Value::String(Arc::new(text.clone())),
            };
            read_by(parser, text).unwrap_or_else(|| cel::Value::String(Arc::new(text.clone())))
        }
        Value::Array(items) => {
            cel::Value::List(Arc::new(items.iter().map(|item| lifted_as(&schema["items"], item)).collect()))
        }
        Value::Object(fields) => {
            let lift = |(name, value): (&String, &Value)| match schema["properties"].get(name) {
                Some(of) => (names::escaped(name), lifted_as(of, value)),
                None => (name.clone(), lifted_as(&schema["additionalProperties"], value)),
            };
            cel::Value::from(fields.iter().map(lift).collect::<HashMap<String, cel::Value>>())
        }
    }
}

fn read_by(parser: &str, text: &str) -> Option<cel::Value> {
    let mut context = context();
    context.add_variable_from_value("t", cel::Value::String(Arc::new(text.to_owned())));
    compile(parser).ok()?.execute(&context).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn says(text: &str) -> Result<cel::Value, String> {
        let mut context = context();
        let schema = json!({"properties": {"ratio": {"type": "number"}, "at": {"format": "date-time"},
            "a-b": {"type": "string"}, "list": {"items": {"type": "integer"}}, "none": {}}});
        let object = json!({"ratio": 1, "at": "2024-01-02T03:04:05Z", "a-b": "x", "list": [3, 1, 2], "map": {"k-1": 1}});
        context.add_variable_from_value("self", lifted_as(&schema, &object));
        context.add_variable_from_value("old", optional(None));
        compile(text)?.execute(&context).map_err(|error| explain(&error))
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
}
