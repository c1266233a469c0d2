//! Escapes: characters such as `\n`, `\x41` and `\101`, and sets such as `\d` and `\p{Greek}`.

use super::SyntaxError;

/// Names of Unicode categories and scripts in Go, in small letters and without separators.
const PROPERTIES: &str = include_str!("properties.txt");

/// What an escape stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// One character, by its code point, which may be a surrogate.
    Character(u32),
    /// The members of a set, as they are written in a class.
    Set(String),
    /// Neither; some of these have a meaning outside of classes.
    Unknown,
}

impl Escape {
    /// Reads the escape that a text begins with; its length, too.
    pub(super) fn read(text: &str) -> Result<(Self, usize), SyntaxError> {
        let Some(escaped) = text[1..].chars().next() else { return Err(SyntaxError::Backslash) };
        let length = 1 + escaped.len_utf8();
        let character = |code: u32| Ok((Self::Character(code), length));
        match escaped {
            'p' | 'P' => property(text),
            '0'..='7' => {
                let digits =
                    text[1..].bytes().take(3).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
                // A digit alone, other than 0, would refer to a group: Go has no such references.
                match u32::from_str_radix(&text[1..=digits], 8) {
                    Ok(code) if digits > 1 || escaped == '0' => Ok((Self::Character(code), 1 + digits)),
                    _ => Ok((Self::Unknown, length)),
                }
            }
            'x' => hexadecimal(text),
            'a' => character(0x07),
            'f' => character(0x0c),
            'n' => character(0x0a),
            'r' => character(0x0d),
            't' => character(0x09),
            'v' => character(0x0b),
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => character(u32::from(other)),
            other => match set(other) {
                Some(members) => Ok((Self::Set(members.to_owned()), length)),
                None => Ok((Self::Unknown, length)),
            },
        }
    }
}

/// The members of a set by its letter.
fn set(letter: char) -> Option<&'static str> {
    Some(match letter {
        'd' => "0-9",
        'D' => "[^0-9]",
        's' => r"\t\n\f\r ",
        'S' => r"[^\t\n\f\r ]",
        'w' => "0-9A-Za-z_",
        'W' => "[^0-9A-Za-z_]",
        _ => return None,
    })
}

/// `\x41` or `\x{41}`.
fn hexadecimal(text: &str) -> Result<(Escape, usize), SyntaxError> {
    let wrong = || SyntaxError::Escape(super::beginning(text, text.len()));
    let (digits, length) = match text[2..].strip_prefix('{') {
        Some(braced) => {
            let (digits, _) = braced.split_once('}').ok_or_else(wrong)?;
            (digits, 4 + digits.len())
        }
        None => (text.get(2..4).ok_or_else(wrong)?, 4),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    // Leading zeros do not count, however many they are.
    let code = u32::from_str_radix(digits.trim_start_matches('0'), 16)
        .or(if digits.bytes().all(|digit| digit == b'0') { Ok(0) } else { Err(()) });
    match code {
        Ok(code) if is_number && code <= u32::from(char::MAX) => Ok((Escape::Character(code), length)),
        _ => Err(wrong()),
    }
}

/// `\pL`, `\p{Greek}` or `\P{^Greek}`.
fn property(text: &str) -> Result<(Escape, usize), SyntaxError> {
    let unknown = |length: usize| SyntaxError::Set(super::beginning(text, length));
    let (name, length) = match text[2..].chars().next() {
        Some('{') => {
            let (name, _) = text[3..].split_once('}').ok_or_else(|| unknown(text.len()))?;
            (name, name.len() + 4)
        }
        Some(letter) => (&text[2..2 + letter.len_utf8()], 2 + letter.len_utf8()),
        None => return Err(unknown(text.len())),
    };
    let positive = name.strip_prefix('^');
    let negated = text.starts_with("\\P") != positive.is_some();
    let name: String =
        positive.unwrap_or(name).chars().filter(|letter| !matches!(letter, '_' | '-' | ' ')).collect();
    let name = name.to_ascii_lowercase();
    if !PROPERTIES.split_whitespace().any(|known| known == name) {
        return Err(unknown(length));
    }
    let letter = if negated { 'P' } else { 'p' };
    let members = match name.as_str() {
        // No text has surrogates.
        "cs" | "surrogate" => if negated { r"\s\S" } else { NOTHING }.to_owned(),
        name => format!("\\{letter}{{{name}}}"),
    };
    Ok((Escape::Set(members), length))
}

/// A class without members.
pub(super) const NOTHING: &str = "[a&&b]";

/// A character that stands for itself, outside of classes and inside.
pub(super) fn literal(code: u32) -> String {
    match char::from_u32(code) {
        Some(letter) if letter.is_ascii_alphanumeric() || !letter.is_ascii() => letter.to_string(),
        Some(_) => format!("\\x{{{code:x}}}"),
        None => NOTHING.to_owned(),
    }
}
