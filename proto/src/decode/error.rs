//! Decoding errors, with the messages of upstream.

use crate::limits::RESERVED;
use crate::quantity::QuantityError;
use crate::time::DurationError;

/// Why a body is not an object of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Not YAML, or more of it than a server should expand.
    #[error("yaml: {0}")]
    Yaml(YamlError),
    /// A value of the wrong type.
    #[error("json: cannot unmarshal {found} into Go {place} of type {expected}")]
    Type {
        /// What was there: `string`, `number 1.5` …
        found: String,
        /// `struct field PodSpec.spec.hostNetwork` or `value`.
        place: String,
        /// The Go type.
        expected: String,
    },
    /// A string that is not base64, and the offset of the first byte that is wrong.
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
    /// A string that is not a quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// A string that is not a time.
    #[error("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\"")]
    Time {
        /// The string.
        text: String,
        /// The form that Go expects.
        layout: &'static str,
    },
    /// A string that is not a duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
}

impl From<YamlError> for DecodeError {
    fn from(error: YamlError) -> Self {
        Self::Yaml(error)
    }
}

/// Why a text is not JSON, in the words of Go's scanner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text ends inside a value.
    #[error("unexpected end of JSON input")]
    End,
    /// More levels of nesting than a body may have.
    #[error("exceeded max depth")]
    Depth,
    /// A character that cannot stand where it is.
    #[error("invalid character {} {place}", quoted(*.found))]
    Character {
        /// The character's first byte.
        found: u8,
        /// Where it stands, such as `after object key`.
        place: &'static str,
    },
    /// A word that begins like `null`, `true` or `false` and goes on differently.
    #[error("invalid character {} in literal {word} (expecting '{expected}')", quoted(*.found))]
    Literal {
        /// The first byte that differs.
        found: u8,
        /// The word that it was going to be.
        word: &'static str,
        /// The character that should stand there.
        expected: char,
    },
    /// Anything else, in the words of the parser: too many values, a reserved field name, a number out of range.
    #[error("{0}")]
    Other(String),
}

fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b => format!("'{}'", char::from(b).escape_default()),
    }
}

/// Where a character is wrong, by the beginning of the parser's message: it offers nothing else to tell errors apart.
const PLACES: [(&str, &str); 10] = [
    ("expected value", "looking for beginning of value"),
    ("key must be a string", "looking for beginning of object key string"),
    ("expected `,` or `}`", "after object key:value pair"),
    ("expected `,` or `]`", "after array element"),
    ("expected `:`", "after object key"),
    ("trailing comma", "looking for beginning of value"),
    ("trailing characters", "after top-level value"),
    ("control character", "in string literal"),
    ("invalid escape", "in string escape code"),
    ("invalid number", "in numeric literal"),
];

impl JsonError {
    /// What the parser says about a body.
    pub(super) fn of(body: &[u8], error: &serde_json::Error) -> Self {
        if error.is_eof() {
            return Self::End;
        }
        let text = error.to_string();
        if text.starts_with("recursion limit") {
            return Self::Depth;
        }
        let lines = body.split(|b| *b == b'\n').take(error.line().saturating_sub(1));
        let start = lines.map(|line| line.len() + 1).sum::<usize>();
        let at = (start + error.column().saturating_sub(1)).min(body.len().saturating_sub(1));
        let found = body.get(at).copied().unwrap_or(b' ');
        if text.starts_with("expected ident") {
            return Self::literal(body, at, found);
        }
        match PLACES.iter().find(|(ours, _)| text.starts_with(ours)) {
            Some(&(_, place)) => Self::Character { found, place },
            None => Self::Other(text),
        }
    }

    fn literal(body: &[u8], at: usize, found: u8) -> Self {
        let start = body[..at].iter().rposition(|b| !b.is_ascii_lowercase()).map_or(0, |i| i + 1);
        let word = match body.get(start) {
            Some(b'n') => "null",
            Some(b't') => "true",
            _ => "false",
        };
        let expected = word.as_bytes().get(at - start).copied().map_or(' ', char::from);
        Self::Literal { found, word, expected }
    }
}

/// Why a text is not YAML that the server reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// Not UTF-8, or with control characters.
    #[error("control characters are not allowed")]
    ControlCharacters,
    /// The text with its aliases expanded is too large.
    #[error("document contains excessive aliasing")]
    ExcessiveAliasing,
    /// More levels of nesting than a body may have.
    #[error("exceeded max depth")]
    Depth,
    /// The scanner does not understand it.
    #[error("line {line}: {message}")]
    Syntax {
        /// Where.
        line: usize,
        /// The scanner's message.
        message: String,
    },
    /// A sequence, mapping or document that ends where it cannot.
    #[error("line {line}: unexpected end")]
    UnexpectedEnd {
        /// Where.
        line: usize,
    },
    /// An alias without an anchor.
    #[error("line {line}: unknown anchor referenced")]
    UnknownAnchor {
        /// Where.
        line: usize,
    },
    /// The value of `<<` is neither a mapping nor a sequence of them.
    #[error("map merge requires map or sequence of maps as the value")]
    Merge,
    /// A field name that the server keeps for itself.
    #[error("line {line}: the field name {RESERVED:?} is reserved")]
    Reserved {
        /// Where.
        line: usize,
    },
    /// A key that is a sequence or mapping.
    #[error("line {line}: invalid map key: {found}")]
    Key {
        /// Where.
        line: usize,
        /// What it is: `array` or `object`.
        found: &'static str,
    },
}
