//! Label selectors: `app=web,tier in (a,b),!legacy`, and the `LabelSelector` object of workloads.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use super::SelectorError;
use crate::names;
use crate::status::FieldError;

/// How a requirement compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `key in (…)`.
    In,
    /// `key notin (…)`; true without the label.
    NotIn,
    /// `key=value`.
    Equals,
    /// `key==value`.
    DoubleEquals,
    /// `key!=value`; true without the label.
    NotEquals,
    /// `key`.
    Exists,
    /// `!key`.
    DoesNotExist,
    /// `key>number`.
    GreaterThan,
    /// `key<number`.
    LessThan,
}

/// One condition on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// How it compares.
    pub operator: Operator,
    /// With what.
    pub values: Vec<String>,
}

/// A selector of labels.
///
/// ```
/// use coracle_proto::selector::{LabelSelector, SelectorError};
/// let selector: LabelSelector = "app=web,tier in (front,back)".parse()?;
/// assert!(selector.matches_value(&serde_json::json!({"app": "web", "tier": "back"})));
/// assert!(!selector.matches_value(&serde_json::json!({"app": "web"})));
/// # Ok::<(), SelectorError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelSelector {
    /// Selects what meets all requirements; without any, everything.
    All(Vec<Requirement>),
    /// Selects nothing: the selector of a workload without one.
    Nothing,
}

impl Default for LabelSelector {
    fn default() -> Self {
        Self::All(Vec::new())
    }
}

impl LabelSelector {
    /// Whether it restricts nothing.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::All(all) if all.is_empty())
    }

    /// Whether labels are selected.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::All(all) => all.iter().all(|r| r.matches(get(&r.key))),
            Self::Nothing => false,
        }
    }

    /// Whether `metadata.labels`, or any other object of strings, is selected.
    pub fn matches_value(&self, labels: &Value) -> bool {
        self.matches(|key| labels.get(key).and_then(Value::as_str))
    }

    /// From a map of labels that must all be equal, such as the selector of a Service. Nothing is checked.
    pub fn from_map(labels: &Value) -> Self {
        let mut all: Vec<Requirement> = labels
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| Requirement {
                key: key.clone(),
                operator: Operator::Equals,
                values: vec![value.as_str().unwrap_or_default().to_owned()],
            })
            .collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        Self::All(all)
    }

    /// From a `LabelSelector` object; `null` selects nothing, an empty one everything.
    pub fn from_object(selector: &Value) -> Result<Self, SelectorError> {
        if selector.is_null() {
            return Ok(Self::Nothing);
        }
        let mut all = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            all.push(Requirement::new(key.clone(), Operator::Equals, vec![value])?);
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError::Operator(other.to_owned())),
            };
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            all.push(Requirement::new(key, operator, values)?);
        }
        all.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self::All(all))
    }
}

impl Requirement {
    /// A checked requirement.
    pub fn new(key: String, operator: Operator, values: Vec<String>) -> Result<Self, SelectorError> {
        let mut errors = Vec::new();
        let bad_key = names::qualified_name(&key);
        if !bad_key.is_empty() {
            errors.push(invalid("key".to_owned(), &key, &bad_key.join("; ")));
        }
        let list = Value::from(values.clone());
        let mut refuse = |why: &str| errors.push(FieldError::invalid("values", &list, why));
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                refuse("for 'in', 'notin' operators, values set can't be empty");
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                refuse("exact-match compatibility requires one single value");
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                refuse("values set must be empty for exists and does not exist");
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    refuse("for 'Gt', 'Lt' operators, exactly one value is required");
                }
                for (i, value) in values.iter().enumerate().filter(|(_, v)| v.parse::<i64>().is_err()) {
                    let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.push(invalid(format!("values[{i}]"), value, why));
                }
            }
            _ => {}
        }
        for (i, value) in values.iter().enumerate() {
            let bad = names::label_value(value);
            if !bad.is_empty() {
                errors.push(invalid(format!("values[{i}][{key}]"), value, &bad.join("; ")));
            }
        }
        if errors.is_empty() {
            Ok(Self { key, operator, values })
        } else {
            Err(SelectorError::Invalid(errors))
        }
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let listed = |label: &str| self.values.iter().any(|v| v == label);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => label.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !label.is_some_and(listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => self.number(label).is_some_and(|(a, b)| a > b),
            Operator::LessThan => self.number(label).is_some_and(|(a, b)| a < b),
        }
    }

    fn number(&self, label: Option<&str>) -> Option<(i64, i64)> {
        Some((label?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

/// The value is printed as Go quotes it, which is not how JSON does.
fn invalid(field: String, value: &str, why: &str) -> FieldError {
    FieldError::new("FieldValueInvalid", field, format!("Invalid value: {value:?}: {why}"))
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let mut values = self.values.clone();
        values.sort_unstable();
        let values = values.join(",");
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::All(all) = self else { return Ok(()) };
        for (i, requirement) in all.iter().enumerate() {
            write!(f, "{}{requirement}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for LabelSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut all = Parser { tokens: scan(text), at: 0 }.selector()?;
        all.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self::All(all))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'a str),
    Bad(&'a str),
    End,
}

fn special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn scan(text: &str) -> Vec<Token<'_>> {
    let space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(space);
    while let Some(first) = rest.chars().next() {
        let (token, length) = if special(first) {
            let run = rest.find(|c| !special(c)).unwrap_or(rest.len());
            let known = ["!=", "==", "=", "!", "(", ")", ",", ">", "<"];
            match known.iter().find(|s| rest.starts_with(**s)) {
                Some(s) => (Token::Symbol(&rest[..s.len()]), s.len()),
                None => (Token::Bad(&rest[..run]), run),
            }
        } else {
            let end = rest.find(|c| special(c) || space(c)).unwrap_or(rest.len());
            (Token::Word(&rest[..end]), end)
        };
        tokens.push(token);
        rest = rest[length..].trim_start_matches(space);
    }
    tokens.push(Token::End);
    tokens
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Word(text) | Self::Symbol(text) | Self::Bad(text) => text,
            Self::End => "",
        }
    }

    fn is(self, symbol: &str) -> bool {
        self == Token::Symbol(symbol)
    }

    /// The error of a token in the place of something else.
    fn instead_of(self, expected: &'static str) -> SelectorError {
        SelectorError::Unexpected { found: self.text().to_owned(), expected }
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut all = Vec::new();
        loop {
            match self.peek() {
                Token::End => return Ok(all),
                token if matches!(token, Token::Word(_)) || token.is("!") => {
                    let one = self.requirement();
                    all.push(one.map_err(|error| SelectorError::Requirement(Box::new(error)))?);
                    match self.next() {
                        Token::End => return Ok(all),
                        token if token.is(",") => {
                            let next = self.peek();
                            if !matches!(next, Token::Word(_)) && !next.is("!") {
                                return Err(next.instead_of("identifier after ','"));
                            }
                        }
                        token => return Err(token.instead_of("',' or 'end of string'")),
                    }
                }
                token => return Err(token.instead_of("!, identifier, or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let negated = self.peek().is("!");
        if negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key,
            token => return Err(token.instead_of("identifier")),
        };
        let bad = names::qualified_name(key);
        if !bad.is_empty() {
            return Err(SelectorError::Invalid(vec![invalid("<nil>".to_owned(), key, &bad.join("; "))]));
        }
        let (operator, values) = match self.peek() {
            _ if negated => (Operator::DoesNotExist, Vec::new()),
            Token::End => (Operator::Exists, Vec::new()),
            token if token.is(",") => (Operator::Exists, Vec::new()),
            _ => self.comparison()?,
        };
        Requirement::new(key.to_owned(), operator, values)
    }

    fn comparison(&mut self) -> Result<(Operator, Vec<String>), SelectorError> {
        let operator = match self.next() {
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            Token::Symbol("=") => Operator::Equals,
            Token::Symbol("==") => Operator::DoubleEquals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            token => return Err(token.instead_of("in, notin, =, ==, !=, gt, lt")),
        };
        let mut values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        values.sort_unstable();
        values.dedup();
        Ok((operator, values))
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            Token::End => Ok(String::new()),
            token if token.is(",") => Ok(String::new()),
            _ => match self.next() {
                Token::Word(value) => Ok(value.to_owned()),
                token => Err(token.instead_of("identifier")),
            },
        }
    }

    /// `(a,b,,)`: a missing value is the empty one.
    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let open = self.next();
        if !open.is("(") {
            return Err(SelectorError::NoValues(open.text().to_owned()));
        }
        let mut values = Vec::new();
        let first = self.peek();
        if !matches!(first, Token::Word(_)) && !first.is(",") && !first.is(")") {
            return Err(first.instead_of("',', ')' or identifier"));
        }
        loop {
            match self.peek() {
                Token::Word(value) => {
                    self.next();
                    values.push(value.to_owned());
                }
                _ => values.push(String::new()),
            }
            match self.next() {
                token if token.is(",") => {}
                token if token.is(")") => return Ok(values),
                token => return Err(token.instead_of("',' or ')'")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parse(text: &str) -> LabelSelector {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn selectors_match_labels() {
        let labels = json!({"app": "web", "tier": "front", "n": "5", "empty": ""});
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier!=back", true),
            ("app!=web", false),
            ("missing!=x", true),
            ("tier in (front, back)", true),
            ("tier notin (front)", false),
            ("missing notin (front)", true),
            ("app", true),
            ("!app", false),
            ("! missing", true),
            ("n>4", true),
            ("n < 5", false),
            ("empty=", true),
            ("empty in ()", true),
            ("in in (in)", false),
            ("x in (foo,,baz),app,z notin ()", false),
        ] {
            assert_eq!(parse(selector).matches_value(&labels), expected, "{selector}");
        }
    }

    #[test]
    fn printing_is_canonical() {
        for (text, canonical) in [
            ("b = 1 , a", "a,b=1"),
            ("x in (c,a,b)", "x in (a,b,c)"),
            ("x notin ()", "x notin ()"),
            ("! x", "!x"),
            ("a=", "a="),
        ] {
            assert_eq!(parse(text).to_string(), canonical);
        }
    }

    #[test]
    fn errors_read_like_upstream() {
        let why = |text: &str| text.parse::<LabelSelector>().unwrap_err().to_string();
        assert_eq!(why("a,"), "found '', expected: identifier after ','");
        assert_eq!(why("=x"), "found '=', expected: !, identifier, or 'end of string'");
        assert_eq!(
            why("a b"),
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
        );
        assert_eq!(why("a in b"), "unable to parse requirement: found 'b' expected: '('");
        assert_eq!(why("a in (b"), "unable to parse requirement: found '', expected: ',' or ')'");
        assert_eq!(why("a=b c"), "found 'c', expected: ',' or 'end of string'");
        assert!(
            why("-a")
                .starts_with("unable to parse requirement: <nil>: Invalid value: \"-a\": name part must")
        );
        assert!(
            why("a=-b")
                .starts_with("unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid")
        );
        assert_eq!(
            why("a>b"),
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be \
             an integer"
        );
    }

    #[test]
    fn objects_become_selectors() {
        let object = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]}, {"key": "old", "operator": "DoesNotExist"}]});
        let selector = LabelSelector::from_object(&object).unwrap();
        assert_eq!(selector.to_string(), "app=web,!old,tier in (a,b)");
        assert!(!LabelSelector::from_object(&Value::Null).unwrap().matches_value(&json!({})));
        assert!(LabelSelector::from_object(&json!({})).unwrap().matches_value(&json!({})));
        let bad = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
        assert_eq!(
            LabelSelector::from_object(&bad).unwrap_err().to_string(),
            "\"Near\" is not a valid label selector operator"
        );
    }

    proptest! {
        #[test]
        fn printed_selectors_parse_to_themselves(keys in prop::collection::vec("[a-z]{1,4}", 1..4), value in "[a-z0-9]{0,4}",
                                                 which in 0usize..7) {
            let make = |key: &str| match which {
                0 => format!("{key}={value}"), 1 => format!("{key}!={value}"), 2 => key.to_owned(), 3 => format!("!{key}"),
                4 => format!("{key} in ({value},b)"), 5 => format!("{key} notin ({value})"), _ => format!("{key}>7"),
            };
            let text: Vec<String> = keys.iter().map(|k| make(k)).collect();
            let selector = parse(&text.join(","));
            prop_assert_eq!(parse(&selector.to_string()), selector);
        }

        #[test]
        fn no_text_panics(text in "[a-c=!(),<> \tä]{0,20}") {
            let _ = text.parse::<LabelSelector>();
        }

        #[test]
        fn in_and_notin_are_opposites(value in "[a-c]", label in prop::option::of("[a-c]")) {
            let labels = label.map_or(json!({}), |l| json!({"k": l}));
            let inside = parse(&format!("k in ({value})")).matches_value(&labels);
            let outside = parse(&format!("k notin ({value})")).matches_value(&labels);
            prop_assert!(inside != outside);
        }
    }
}
