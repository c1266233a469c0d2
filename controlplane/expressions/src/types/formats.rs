//! `'%d of %s'.format([1, 'a'])`: clauses, and the types that fit them.

use super::Type;
use cel::common::ast::{EntryExpr, Expr, IdedExpr};

/// What is wrong with a format.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormatError {
    #[error("the format ends with %")]
    End,
    #[error("the format has a precision without an end")]
    Precision,
    #[error("%{0} is not in formats; use %s, %d, %f, %e, %b, %o, %x or %X")]
    Clause(char),
    #[error("the format has more clauses than the {0} arguments")]
    Few(usize),
    #[error("the format has {clauses} clauses for {arguments} arguments")]
    Many { clauses: usize, arguments: usize },
    #[error("%{clause} cannot show a value of type {found}")]
    Type { clause: char, found: String },
}

/// Checks a format and its arguments; an error may be about one of them.
pub(super) fn check(
    format: &str,
    arguments: &[IdedExpr],
    type_of: &dyn Fn(u64) -> Type,
) -> Result<(), (Option<u64>, FormatError)> {
    let mut clauses = 0;
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('%') {
        if let Some(after) = after.strip_prefix('%') {
            rest = after;
            continue;
        }
        let (clause, after) = clause(after).map_err(|why| (None, why))?;
        let argument = arguments.get(clauses).ok_or((None, FormatError::Few(arguments.len())))?;
        if let Some((id, found)) = unfit(clause, argument, type_of) {
            return Err((Some(id), FormatError::Type { clause, found: found.to_string() }));
        }
        clauses += 1;
        rest = after;
    }
    match arguments.len() {
        more if more > clauses => Err((None, FormatError::Many { clauses, arguments: more })),
        _ => Ok(()),
    }
}

/// The letter of the clause that a text begins with, and what follows it.
fn clause(text: &str) -> Result<(char, &str), FormatError> {
    let text = match text.strip_prefix('.') {
        Some(precision) => {
            let after = precision.trim_start_matches(|letter: char| letter.is_ascii_digit());
            let digits = &precision[..precision.len() - after.len()];
            if after.is_empty() || digits.parse::<i64>().is_err() {
                return Err(FormatError::Precision);
            }
            after
        }
        None => text,
    };
    let mut letters = text.chars();
    match letters.next() {
        Some(letter @ ('s' | 'd' | 'f' | 'e' | 'b' | 'o' | 'x' | 'X')) => Ok((letter, letters.as_str())),
        Some(other) => Err(FormatError::Clause(other)),
        None => Err(FormatError::End),
    }
}

/// The part of an argument that a clause cannot show, and its type.
fn unfit(clause: char, argument: &IdedExpr, type_of: &dyn Fn(u64) -> Type) -> Option<(u64, Type)> {
    let of = type_of(argument.id);
    let is_fit = match clause {
        _ if of == Type::Dyn => true,
        's' => !matches!(of, Type::Any | Type::Object(_) | Type::Opaque(_) | Type::Optional(_)),
        'd' | 'o' => matches!(of, Type::Int | Type::Uint),
        // Not a number and the infinities are texts.
        'f' | 'e' => matches!(of, Type::Double | Type::String),
        'b' => matches!(of, Type::Int | Type::Uint | Type::Bool),
        _ => matches!(of, Type::Int | Type::Uint | Type::String | Type::Bytes),
    };
    if !is_fit {
        return Some((argument.id, of));
    }
    let mut inside: Vec<&IdedExpr> = Vec::new();
    match &argument.expr {
        _ if clause != 's' => {}
        Expr::List(list) => inside.extend(&list.elements),
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    inside.extend([&entry.key, &entry.value]);
                }
            }
        }
        _ => {}
    }
    inside.into_iter().find_map(|part| unfit(clause, part, type_of))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::compile;
    use crate::types::{Type, check};

    #[test]
    fn formats_fit_their_arguments() {
        let variables =
            [("a", Type::Dyn), ("o", Type::object("Thing", [])), ("t", Type::Timestamp), ("n", Type::Int)];
        let said = |text: &str| check(&compile(text).unwrap(), &variables).err().map(|why| why.to_string());
        for good in [
            "'%s %d %.2f %e %b %o %x %X %% é'.format(['a', 1, 1.5, 'NaN', true, 2u, b'a', n])",
            "'%s %d %f'.format([[1, 'a', {'k': t}], a, a.b])",
            "'%s'.format([type(n)]) + '%s'.format([null]) + '%'.format(a)",
            "a.format([o]) + '%%'.format([])",
        ] {
            assert_eq!(said(good), None, "{good}");
        }
        for (bad, column, why) in [
            ("'%d'.format(['a'])", 14, "%d cannot show a value of type string"),
            ("'%s'.format([[1, o]])", 18, "%s cannot show a value of type Thing"),
            ("'%s'.format([{'a': o}])", 20, "%s cannot show a value of type Thing"),
            ("'%b'.format([1.5])", 14, "%b cannot show a value of type double"),
            ("'%z'.format([1])", 12, "%z is not in formats"),
            ("'%'.format([1])", 11, "the format ends with %"),
            ("'%.3'.format([1.5])", 13, "a precision without an end"),
            ("'%.f'.format([1.5])", 13, "a precision without an end"),
            ("'%s %s'.format([1])", 15, "more clauses than the 1 arguments"),
            ("'%s'.format([1, 2])", 12, "1 clauses for 2 arguments"),
        ] {
            let said = said(bad).unwrap_or_default();
            assert!(
                said.starts_with(&format!("ERROR: <input>:1:{column}: ")) && said.contains(why),
                "{bad}: {said}"
            );
        }
    }
}
