//! Field selectors: `spec.nodeName=a,status.phase!=Running`, with `\` before `,`, `=` and `\` in values.

use std::fmt;
use std::str::FromStr;

use super::SelectorError;

/// One condition on a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTerm {
    /// Such as `spec.nodeName`.
    pub field: String,
    /// The value it must have, or must not.
    pub value: String,
    /// Whether `!=` was written.
    pub negated: bool,
}

/// All of some conditions; without any it selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// The conditions, sorted by their text.
    pub terms: Vec<FieldTerm>,
}

impl FieldSelector {
    /// Whether it restricts nothing.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether an object with these field values is selected; an unset field is empty.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> &'a str) -> bool {
        self.terms.iter().all(|t| (get(&t.field) == t.value) != t.negated)
    }

    /// The one value that the field must have, if there is one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.field == field && !t.negated).map(|t| t.value.as_str())
    }
}

impl FromStr for FieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            let (field, negated, value) = split_term(part)
                .ok_or_else(|| SelectorError::Term { selector: text.to_owned(), term: part.to_owned() })?;
            terms.push(FieldTerm { field: field.to_owned(), value: unescape(value)?, negated });
        }
        Ok(Self { terms })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let operator = if term.negated { "!=" } else { "=" };
            write!(f, "{comma}{}{operator}{}", term.field, escape(&term.value))?;
        }
        Ok(())
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.char_indices().find(|(i, c)| *c == '=' || term[*i..].starts_with("!=")).map(|(i, _)| i)?;
    let (field, rest) = term.split_at(at);
    match rest.strip_prefix("!=") {
        Some(value) => Some((field, true, value)),
        None => Some((field, false, rest.strip_prefix("==").unwrap_or(&rest[1..]))),
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let (mut out, mut chars) = (String::with_capacity(value.len()), value.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(SelectorError::Escape(format!("\\{c}"))),
                None => return Err(SelectorError::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(SelectorError::Unescaped(c)),
            _ => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terms_are_parsed_and_matched() {
        let selector: FieldSelector = "status.phase!=Running,spec.nodeName=a".parse().unwrap();
        let get = |node: &'static str, phase: &'static str| {
            move |field: &str| if field == "spec.nodeName" { node } else { phase }
        };
        assert!(selector.matches(get("a", "Pending")));
        assert!(!selector.matches(get("a", "Running")) && !selector.matches(get("b", "Pending")));
        assert_eq!(selector.exact("spec.nodeName"), Some("a"));
        assert_eq!(selector.to_string(), "spec.nodeName=a,status.phase!=Running");
        assert!("".parse::<FieldSelector>().unwrap().is_empty());
        assert_eq!("a==b".parse::<FieldSelector>().unwrap().exact("a"), Some("b"));
    }

    #[test]
    fn nonsense_is_named() {
        let why = |text: &str| text.parse::<FieldSelector>().unwrap_err().to_string();
        assert_eq!(why("foo"), "invalid selector: 'foo'; can't understand 'foo'");
        assert_eq!(why("a=b=c"), "invalid field selector: unescaped character in value: 61");
        assert_eq!(why("a=\\x"), "invalid field selector: invalid escape sequence: \\x");
    }

    proptest! {
        #[test]
        fn values_survive_escaping(value in "[a-z,=\\\\!]{0,8}") {
            let one = FieldSelector {
                terms: vec![FieldTerm { field: "metadata.name".into(), value, negated: false }],
            };
            prop_assert_eq!(one.to_string().parse::<FieldSelector>().unwrap(), one);
        }

        #[test]
        fn no_text_panics(text in "[a-z.,=!\\\\ä]{0,16}") {
            let _ = text.parse::<FieldSelector>();
        }
    }
}
