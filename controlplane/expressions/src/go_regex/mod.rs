//! Translates regular expressions from the syntax of Go to that of the `regex` crate, and refuses those that Go refuses.
//!
//! Expressions and definitions of custom resources are written for Go. It takes a brace that begins no repetition literally, knows
//! quoted text and octal numbers, and its `\b`, `\d`, `\s` and `\w` are ASCII. Its character classes have characters, ranges and sets,
//! and no operators. What the `regex` crate knows besides, such as `(?x)` and `a**`, is an error.

// Escapes: characters and sets.
mod escapes;
// Character classes.
mod classes;

use escapes::{Escape, literal};

/// How often a pattern may be repeated at most, repetitions of repetitions multiplied.
const REPEATED: u64 = 1_000;
/// The instructions of the largest program that Go makes of a pattern.
const LARGEST: u64 = (128 << 20) / 40;
/// Groups within groups.
const DEEPEST: usize = 1_000;

/// Why Go does not take a text as a regular expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// An escape that means nothing.
    #[error("{0} is no escape sequence")]
    Escape(String),
    /// Nothing is escaped.
    #[error("the pattern ends with a backslash")]
    Backslash,
    /// A character class that does not end.
    #[error("a character class has no closing bracket")]
    Bracket,
    /// A set of characters that is not there.
    #[error("{0} is no set of characters")]
    Set(String),
    /// The last character of a range is before the first one.
    #[error("the range {0} is empty")]
    Range(String),
    /// A group that does not end.
    #[error("a group has no closing parenthesis")]
    Unclosed,
    /// The end of a group that does not begin.
    #[error("a closing parenthesis has no group")]
    Unopened,
    /// Flags that are not there, and what looks around.
    #[error("{0} begins no group; its flags are i, m, s and U")]
    Group(String),
    /// A repetition of nothing.
    #[error("{0} has nothing to repeat")]
    Nothing(String),
    /// A repetition of a repetition that is not in a group.
    #[error("{0} repeats a repetition")]
    Twice(String),
    /// Too many repetitions, or more at least than at most.
    #[error("{0} is not from 0 to {REPEATED} repetitions")]
    Count(String),
    /// Too large for Go.
    #[error("the pattern is too large")]
    Large,
    /// Too deep for Go.
    #[error("groups are nested more than {DEEPEST} deep")]
    Deep,
}

/// The pattern as the `regex` crate has to read it.
pub(super) fn translated(pattern: &str) -> Result<String, SyntaxError> {
    let mut parser = Parser {
        last: (0, 0),
        rest: pattern,
        out: String::with_capacity(pattern.len() + 8),
        groups: vec![Group::default()],
    };
    let mut repeated = false;
    while let Some(first) = parser.rest.chars().next() {
        repeated = match first {
            '*' | '+' | '?' => parser.repeat(1, Count::of(first), repeated)?,
            '{' if let Some((length, count)) = count(parser.rest) => {
                parser.repeat(length, count, repeated)?
            }
            other => parser.unrepeated(other)?,
        };
    }
    match parser.groups.len() {
        1 => Ok(parser.out),
        _ => Err(SyntaxError::Unclosed),
    }
}

/// What the size of a pattern depends on.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Instructions.
    size: u64,
    /// How often its innermost part is repeated.
    repeated: u64,
}

/// A group, or the whole pattern.
#[derive(Debug, Default)]
struct Group {
    captures: bool,
    /// Where it begins in the translation.
    begin: usize,
    /// What could be repeated next.
    last: Option<Piece>,
    /// All before it.
    size: u64,
    repeated: u64,
}

impl Group {
    fn end_piece(&mut self) {
        if let Some(last) = self.last.take() {
            self.size = self.size.saturating_add(last.size);
            self.repeated = self.repeated.max(last.repeated);
        }
    }
}

/// How often something is repeated.
#[derive(Debug, Clone, Copy)]
struct Count {
    least: u64,
    /// Nothing if there is no limit.
    most: Option<u64>,
}

impl Count {
    fn of(operator: char) -> Self {
        Self { least: u64::from(operator == '+'), most: (operator == '?').then_some(1) }
    }

    fn is_allowed(self) -> bool {
        self.least <= REPEATED && self.most.is_none_or(|most| most <= REPEATED && self.least <= most)
    }

    fn applied(self, to: Piece) -> Piece {
        let size = match (self.least, self.most) {
            (0, None) => to.size.saturating_add(2),
            (least, None) => to.size.saturating_mul(least).saturating_add(1),
            (least, Some(most)) => to.size.saturating_mul(most).saturating_add(most - least),
        };
        let repeated = match self.most {
            Some(0) => 1,
            most => to.repeated.saturating_mul(most.unwrap_or(self.least).max(1)),
        };
        Piece { size: size.max(1), repeated }
    }
}

struct Parser<'p> {
    rest: &'p str,
    out: String,
    /// Where what could be repeated next begins and ends in `out`; flags may follow it.
    last: (usize, usize),
    /// The groups around, the innermost one last; the first is the pattern.
    groups: Vec<Group>,
}

impl<'p> Parser<'p> {
    /// The next part, which is none that repeats. Always false.
    fn unrepeated(&mut self, first: char) -> Result<bool, SyntaxError> {
        match first {
            '(' if self.rest.starts_with("(?") => self.special_group()?,
            '(' => {
                self.skip(1);
                self.open("(", true)?;
            }
            ')' => self.close()?,
            '|' => {
                self.skip(1);
                self.out.push('|');
                let group = self.group();
                group.end_piece();
                group.size = group.size.saturating_add(1);
            }
            '[' => {
                let (class, length) = classes::translated(self.rest)?;
                self.skip(length);
                self.push(&class);
            }
            '\\' => self.escape()?,
            '^' | '$' | '.' => {
                self.skip(1);
                self.push(first.encode_utf8(&mut [0; 4]));
            }
            other => {
                self.skip(other.len_utf8());
                self.push(&literal(u32::from(other)));
            }
        }
        Ok(false)
    }

    /// Leaves out what has been read.
    fn skip(&mut self, length: usize) -> &'p str {
        let (read, rest) = self.rest.split_at(length);
        self.rest = rest;
        read
    }

    fn group(&mut self) -> &mut Group {
        if self.groups.is_empty() {
            self.groups.push(Group::default());
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    /// Something that can be repeated.
    fn push(&mut self, text: &str) {
        self.last = (self.out.len(), self.out.len() + text.len());
        self.out.push_str(text);
        let group = self.group();
        group.end_piece();
        group.last = Some(Piece { size: 1, repeated: 1 });
    }

    fn escape(&mut self) -> Result<(), SyntaxError> {
        if let Some(quoted) = self.rest.strip_prefix("\\Q") {
            let text = quoted.split("\\E").next().unwrap_or_default();
            let length = 2 + text.len() + 2;
            self.rest = self.rest.get(length..).unwrap_or_default();
            text.chars().for_each(|letter| self.push(&literal(u32::from(letter))));
            return Ok(());
        }
        let (escape, length) = Escape::read(self.rest)?;
        let escaped = match self.skip(length) {
            "\\A" => "\\A".to_owned(),
            "\\z" => "\\z".to_owned(),
            "\\b" => "(?-u:\\b)".to_owned(),
            "\\B" => "(?-u:\\B)".to_owned(),
            other => match escape {
                Escape::Set(set) => format!("[{set}]"),
                Escape::Character(code) => literal(code),
                Escape::Unknown => return Err(SyntaxError::Escape(other.to_owned())),
            },
        };
        self.push(&escaped);
        Ok(())
    }

    fn open(&mut self, text: &str, captures: bool) -> Result<(), SyntaxError> {
        if self.groups.len() > DEEPEST {
            return Err(SyntaxError::Deep);
        }
        self.groups.push(Group { captures, begin: self.out.len(), ..Group::default() });
        self.out.push_str(text);
        Ok(())
    }

    fn close(&mut self) -> Result<(), SyntaxError> {
        if self.groups.len() == 1 {
            return Err(SyntaxError::Unopened);
        }
        self.skip(1);
        self.push(")");
        // What was pushed ended the group; the group is what can be repeated now.
        let Some(mut inside) = self.groups.pop() else { return Err(SyntaxError::Unopened) };
        inside.last = None;
        let size = inside.size.max(1).saturating_add(if inside.captures { 2 } else { 0 });
        self.last = (inside.begin, self.out.len());
        let group = self.group();
        group.end_piece();
        group.last = Some(Piece { size, repeated: inside.repeated.max(1) });
        Ok(())
    }

    /// `(?flags)`, `(?flags:` or `(?P<name>`. Nobody asks for groups by their names.
    fn special_group(&mut self) -> Result<(), SyntaxError> {
        let text = self.rest;
        for start in ["(?P<", "(?<"] {
            let Some(named) = text.strip_prefix(start) else { continue };
            let name = named.split('>').next().filter(|name| name.len() < named.len());
            let is_name = |name: &&str| {
                !name.is_empty() && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
            };
            let Some(name) = name.filter(is_name) else {
                return Err(SyntaxError::Group(beginning(
                    text,
                    named.find('>').map_or(start.len(), |end| start.len() + end + 1),
                )));
            };
            self.skip(start.len() + name.len() + 1);
            return self.open("(", true);
        }
        let (mut on, mut off) = (String::new(), String::new());
        // Whether a minus has been read, and a flag behind it.
        let (mut negative, mut any) = (false, false);
        for (at, letter) in text.char_indices().skip(2) {
            match letter {
                'i' | 'm' | 's' | 'U' => {
                    let flags = if negative { &mut off } else { &mut on };
                    if !flags.contains(letter) {
                        flags.push(letter);
                    }
                    any = true;
                }
                '-' if !negative => (negative, any) = (true, false),
                ':' | ')' if !negative || any => {
                    on.retain(|letter| !off.contains(letter));
                    let minus = if off.is_empty() { "" } else { "-" };
                    let flags = format!("{on}{minus}{off}");
                    self.skip(at + 1);
                    if letter == ':' {
                        return self.open(&format!("(?{flags}:"), false);
                    }
                    if !flags.is_empty() {
                        self.out.extend(["(?", &flags, ")"]);
                    }
                    return Ok(());
                }
                _ => return Err(SyntaxError::Group(beginning(text, at + letter.len_utf8()))),
            }
        }
        Err(SyntaxError::Group(beginning(text, text.len())))
    }

    /// A repetition whose text has this length. Always true.
    fn repeat(&mut self, length: usize, count: Count, repeated: bool) -> Result<bool, SyntaxError> {
        let lazy = usize::from(self.rest[length..].starts_with('?'));
        let operator = self.skip(length + lazy);
        if !count.is_allowed() {
            return Err(SyntaxError::Count(operator.to_owned()));
        }
        if repeated {
            return Err(SyntaxError::Twice(operator.to_owned()));
        }
        let Some(last) = self.group().last else {
            return Err(SyntaxError::Nothing(operator.to_owned()));
        };
        let piece = count.applied(last);
        if piece.size > LARGEST {
            return Err(SyntaxError::Large);
        }
        let is_counted = count.least >= 2 || count.most.is_some_and(|most| most >= 2);
        if is_counted && piece.repeated > REPEATED {
            return Err(SyntaxError::Count(operator.to_owned()));
        }
        let (begin, end) = self.last;
        if end == self.out.len() {
            self.out.push_str(operator);
        } else {
            // Flags are between the operator and what it repeats, which may be repeated already.
            self.out.insert_str(end, &format!("){operator}"));
            self.out.insert_str(begin, "(?:");
        }
        self.last = (begin, self.out.len());
        self.group().last = Some(piece);
        Ok(true)
    }
}

/// At most so many bytes of a text, for a message.
fn beginning(text: &str, length: usize) -> String {
    const SHOWN: usize = 40;
    let mut end = length.min(SHOWN).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// The length of `{2}`, `{2,}` or `{2,3}`, and what it says. Everything else in braces is text.
fn count(text: &str) -> Option<(usize, Count)> {
    let (inside, _) = text[1..].split_once('}')?;
    let number = |digits: &str| {
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.is_empty();
        // A number that is too large for its type is too large for a repetition.
        (is_number && (digits.len() == 1 || !digits.starts_with('0')))
            .then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let count = match inside.split_once(',') {
        None => {
            let exactly = number(inside)?;
            Count { least: exactly, most: Some(exactly) }
        }
        Some((least, "")) => Count { least: number(least)?, most: None },
        Some((least, most)) => Count { least: number(least)?, most: Some(number(most)?) },
    };
    Some((inside.len() + 2, count))
}

#[cfg(test)]
mod tests;
