//! Character classes: characters, ranges and sets, and no operators.

use super::SyntaxError;
use super::escapes::{Escape, NOTHING, literal};

/// Names of sets such as `[:alpha:]`.
const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Code points that no text has.
const SURROGATES: std::ops::RangeInclusive<u32> = 0xd800..=0xdfff;

/// Translates the class that a text begins with; its length, too.
pub(super) fn translated(text: &str) -> Result<(String, usize), SyntaxError> {
    let negated = text[1..].starts_with('^');
    let mut out = if negated { "[^".to_owned() } else { "[".to_owned() };
    let begin = 1 + usize::from(negated);
    let mut at = begin;
    loop {
        let rest = &text[at..];
        // The first bracket does not end the class.
        if rest.starts_with(']') && at > begin {
            // A class needs members for the `regex` crate, also one of surrogates only.
            out.push_str(if out.ends_with(['[', '^']) { NOTHING } else { "" });
            out.push(']');
            return Ok((out, at + 1));
        }
        at += match named(rest)? {
            Some(set) => {
                out.push_str(set);
                set.len()
            }
            None => member(rest, &mut out)?,
        };
    }
}

/// A set such as `[:alpha:]` or `[:^alpha:]`.
fn named(text: &str) -> Result<Option<&str>, SyntaxError> {
    let Some((name, _)) = text.strip_prefix("[:").and_then(|inside| inside.split_once(":]")) else {
        return Ok(None);
    };
    let set = &text[..name.len() + 4];
    match NAMED.contains(&name.strip_prefix('^').unwrap_or(name)) {
        true => Ok(Some(set)),
        false => Err(SyntaxError::Set(super::beginning(set, set.len()))),
    }
}

/// A set, a range or a character; its length.
fn member(text: &str, out: &mut String) -> Result<usize, SyntaxError> {
    let (first, length) = match single(text)? {
        (Escape::Set(members), length) => {
            out.push_str(&members);
            return Ok(length);
        }
        (first, length) => (code(first, &text[..length])?, length),
    };
    // A hyphen makes a range unless it is the last character.
    let mut after = text[length..].chars();
    if after.next() != Some('-') || after.next().is_none_or(|next| next == ']') {
        out.push_str(&literal(first));
        return Ok(length);
    }
    let end = &text[length + 1..];
    let (last, end_length) = single(end)?;
    let last = code(last, &end[..end_length])?;
    let whole = length + 1 + end_length;
    if last < first {
        return Err(SyntaxError::Range(text[..whole].to_owned()));
    }
    let first = if SURROGATES.contains(&first) { SURROGATES.end() + 1 } else { first };
    let last = if SURROGATES.contains(&last) { SURROGATES.start() - 1 } else { last };
    if first <= last {
        out.push_str(&format!("\\x{{{first:x}}}-\\x{{{last:x}}}"));
    }
    Ok(whole)
}

/// One character or set; its length, too.
fn single(text: &str) -> Result<(Escape, usize), SyntaxError> {
    match text.chars().next() {
        Some('\\') => Escape::read(text),
        Some(other) => Ok((Escape::Character(u32::from(other)), other.len_utf8())),
        None => Err(SyntaxError::Bracket),
    }
}

/// What must be one character.
fn code(read: Escape, text: &str) -> Result<u32, SyntaxError> {
    match read {
        Escape::Character(code) => Ok(code),
        _ => Err(SyntaxError::Escape(text.to_owned())),
    }
}
