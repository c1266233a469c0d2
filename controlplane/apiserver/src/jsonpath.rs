//! The JSONPath of printer columns: fields, quoted fields, indexes, slices, wildcards, descent and simple filters.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    Descend,
    Filter { path: Path, op: Op, value: Value },
    Exists(Path),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Why a path cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PathError {
    /// Something unexpected at a byte.
    #[error("invalid JSONPath at {0}")]
    At(usize),
    /// A bracket or quote is not closed.
    #[error("unterminated JSONPath")]
    Unterminated,
}

impl Path {
    /// Reads a path such as `.spec.replicas` or `.status.conditions[?(@.type=="Ready")].status`; `$`, `@` and
    /// surrounding braces may be there.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let text = text.strip_prefix(['$', '@']).unwrap_or(text);
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let at = text.len() - rest.len();
            if let Some(after) = rest.strip_prefix("..") {
                steps.push(Step::Descend);
                rest = after;
                if !rest.starts_with('[') {
                    rest = name(rest, at + 2, &mut steps)?;
                }
            } else if let Some(after) = rest.strip_prefix('.') {
                rest = if after.starts_with('[') { after } else { name(after, at + 1, &mut steps)? };
            } else if rest.starts_with('[') {
                let close = closing(rest).ok_or(PathError::Unterminated)?;
                steps.push(bracket(&rest[1..close], at + 1)?);
                rest = &rest[close + 1..];
            } else if at == 0 {
                rest = name(rest, at, &mut steps)?;
            } else {
                return Err(PathError::At(at));
            }
        }
        Ok(Self { steps })
    }

    /// Every value the path leads to, in order.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.steps {
            found = found.into_iter().flat_map(|v| step.apply(v)).collect();
        }
        found
    }
}

/// A field name or `*`; a backslash takes the next character as it is.
fn name<'t>(text: &'t str, at: usize, steps: &mut Vec<Step>) -> Result<&'t str, PathError> {
    if let Some(rest) = text.strip_prefix('*') {
        steps.push(Step::All);
        return Ok(rest);
    }
    let mut field = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => field.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => {
                end = i;
                break;
            }
            c => field.push(c),
        }
    }
    if field.is_empty() {
        // A lone dot is the object itself.
        return if end == text.len() { Ok("") } else { Err(PathError::At(at)) };
    }
    steps.push(Step::Field(field));
    Ok(&text[end..])
}

/// The bracket that closes the first one, outside of quotes.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str, at: usize) -> Result<Step, PathError> {
    let inner = inner.trim();
    if inner == "*" {
        return Ok(Step::All);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        return condition(filter, at);
    }
    if let Some(field) = quoted(inner) {
        return Ok(Step::Field(field));
    }
    let number = |text: &str| -> Result<Option<i64>, PathError> {
        let text = text.trim();
        if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| PathError::At(at)) }
    };
    if let Some((from, to)) = inner.split_once(':') {
        return Ok(Step::Slice(number(from)?, number(to)?));
    }
    number(inner)?.map(Step::Index).ok_or(PathError::At(at))
}

fn quoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    Some(inner.replace("\\.", "."))
}

fn condition(filter: &str, at: usize) -> Result<Step, PathError> {
    for (sign, op) in
        [("==", Op::Eq), ("!=", Op::Ne), ("<=", Op::Le), (">=", Op::Ge), ("<", Op::Lt), (">", Op::Gt)]
    {
        if let Some((left, right)) = filter.split_once(sign) {
            let right = right.trim();
            let value = match quoted(right) {
                Some(text) => Value::String(text),
                None => serde_json::from_str(right).map_err(|_| PathError::At(at))?,
            };
            return Ok(Step::Filter { path: Path::parse(left)?, op, value });
        }
    }
    Ok(Step::Exists(Path::parse(filter)?))
}

impl Step {
    fn apply<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::Index(i), Value::Array(items)) => {
                let i = if *i < 0 { i + items.len() as i64 } else { *i };
                usize::try_from(i).ok().and_then(|i| items.get(i)).into_iter().collect()
            }
            (Self::Slice(from, to), Value::Array(items)) => {
                let len = items.len() as i64;
                let clamp = |i: i64| if i < 0 { (i + len).max(0) } else { i.min(len) } as usize;
                let (from, to) = (clamp(from.unwrap_or(0)), clamp(to.unwrap_or(len)));
                items.get(from..to).into_iter().flatten().collect()
            }
            (Self::All, Value::Array(items)) => items.iter().collect(),
            (Self::All, Value::Object(map)) => map.values().collect(),
            (Self::Descend, _) => descend(value),
            (Self::Filter { path, op, value: wanted }, Value::Array(items)) => {
                items.iter().filter(|i| path.find(i).first().is_some_and(|v| op.holds(v, wanted))).collect()
            }
            (Self::Exists(path), Value::Array(items)) => {
                items.iter().filter(|i| !path.find(i).is_empty()).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn descend(value: &Value) -> Vec<&Value> {
    let mut found = vec![value];
    match value {
        Value::Array(items) => found.extend(items.iter().flat_map(descend)),
        Value::Object(map) => found.extend(map.values().flat_map(descend)),
        _ => {}
    }
    found
}

impl Op {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            _ => (left == right).then_some(std::cmp::Ordering::Equal),
        };
        match self {
            Self::Eq => order == Some(std::cmp::Ordering::Equal),
            Self::Ne => order != Some(std::cmp::Ordering::Equal),
            Self::Lt => order.is_some_and(std::cmp::Ordering::is_lt),
            Self::Le => order.is_some_and(std::cmp::Ordering::is_le),
            Self::Gt => order.is_some_and(std::cmp::Ordering::is_gt),
            Self::Ge => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn paths_lead_where_printer_columns_expect() {
        let object = json!({
            "metadata": {"annotations": {"a.b/c": "x"}},
            "spec": {"list": [{"n": 1, "t": "a"}, {"n": 2, "t": "b"}, {"n": 3}]},
        });
        let table = [
            (".spec.list[0].n", vec![json!(1)]),
            ("{.spec.list[-1].n}", vec![json!(3)]),
            (".spec.list[0:2].n", vec![json!(1), json!(2)]),
            (".spec.list[*].t", vec![json!("a"), json!("b")]),
            (".spec.list[?(@.t==\"b\")].n", vec![json!(2)]),
            (".spec.list[?(@.n>=2)].n", vec![json!(2), json!(3)]),
            (".spec.list[?(@.t)].n", vec![json!(1), json!(2)]),
            (".metadata.annotations['a.b/c']", vec![json!("x")]),
            (".metadata.annotations.a\\.b/c", vec![json!("x")]),
            ("$..n", vec![json!(1), json!(2), json!(3)]),
            (".none.at.all", vec![]),
            (".spec.list.n", vec![]),
        ];
        for (path, expected) in table {
            let found: Vec<Value> = Path::parse(path).unwrap().find(&object).into_iter().cloned().collect();
            assert_eq!(found, expected, "{path}");
        }
        for bad in [".a[", ".a[x]", ".a[?(@.b==c)]", ".a['b"] {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_path_panics(text in "[.$@{}a-c\\[\\]'\"*?()0-9:=<\\\\é-]{0,20}") {
            if let Ok(path) = Path::parse(&text) {
                path.find(&json!({"a": [{"b": 1}], "c": "é"}));
            }
        }
    }
}
