use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use crate::clock::Moment;
use crate::ids::{SpanId, TraceId, Uid};
use crate::stage::Stage;

/// A finished span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub stage: Stage,
    /// How it ended, and how its parent is known.
    pub flags: Flags,
    /// HTTP status, exit code, attempt or count, by stage.
    pub code: u16,
    /// Its id.
    pub span: SpanId,
    /// The span that it is part of or that caused it; [`SpanId::NONE`] for a root.
    pub parent: SpanId,
    /// Its trace; [`TraceId::NONE`] if it is that of the parent.
    pub trace: TraceId,
    /// The object that it is about; of a request the audit id.
    pub subject: Uid,
    /// The revision of the object that it is about.
    pub revision: u64,
    /// When it began.
    pub start: Moment,
    /// Nanoseconds.
    pub duration: u64,
}

/// What only requests, writes and batches have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Details {
    /// Ends of consecutive stages: offsets from the start of the record in units of [`Details::UNIT`], 0 if not reached.
    pub marks: [u32; Details::MARKS],
    /// The controller of the object that was written.
    pub owner: Uid,
}

impl Details {
    /// Nanoseconds in a unit of a mark.
    pub const UNIT: u64 = 64;
    /// How many marks there are.
    pub const MARKS: usize = 16;
    /// No marks, no owner.
    pub const NONE: Self = Self { marks: [0; Self::MARKS], owner: Uid::NONE };

    /// Nanoseconds from the start of the record to a mark.
    pub fn mark(&self, mark: usize) -> Option<u64> {
        self.marks.get(mark).filter(|units| **units != 0).map(|units| u64::from(*units) * Self::UNIT)
    }

    /// The value of a mark so many nanoseconds after the start: never 0, at most 274 s.
    pub fn units(nanos: u64) -> u32 {
        u32::try_from(nanos / Self::UNIT).unwrap_or(u32::MAX).max(1)
    }
}

impl Default for Details {
    fn default() -> Self {
        Self::NONE
    }
}

/// How a span ended, and how its parent is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u16);

impl Flags {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// It ended with an error.
    pub const FAILED: Self = Self(1);
    /// It was dropped before it ended.
    pub const CANCELLED: Self = Self(1 << 1);
    /// The process ended before it did.
    pub const UNFINISHED: Self = Self(1 << 2);
    /// The parent is concluded from the owner of the object.
    pub const INFERRED: Self = Self(1 << 3);
    /// The parent is a span of a client.
    pub const REMOTE: Self = Self(1 << 4);
    /// The client records this trace.
    pub const SAMPLED: Self = Self(1 << 5);
    /// The text was longer.
    pub const TRUNCATED: Self = Self(1 << 6);
    /// Nothing was stored, as the client asked for.
    pub const DRY_RUN: Self = Self(1 << 7);
    /// It was due.
    pub const TIMER: Self = Self(1 << 8);
    /// It was tried again.
    pub const RETRIED: Self = Self(1 << 9);

    const NAMES: [&str; 10] = [
        "failed",
        "cancelled",
        "unfinished",
        "inferred",
        "remote",
        "sampled",
        "truncated",
        "dry-run",
        "timer",
        "retried",
    ];

    /// Whether all of the others are set.
    pub fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Sets the others, too.
    pub fn insert(&mut self, others: Self) {
        self.0 |= others.0;
    }

    /// These and the others.
    #[must_use]
    pub fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These but the others.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// The names of those that are set, as in JSON.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 & 1 << bit != 0)
            .map(|(_, name)| name)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, others: Self) -> Self {
        self.with(others)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, others: Self) {
        self.insert(others);
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// A short text without an allocation: at most [`Text::MOST`] bytes, cut at a character.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text {
    len: u8,
    bytes: [u8; Text::MOST],
}

impl Text {
    /// How many bytes it can have.
    pub const MOST: usize = 159;
    /// No text.
    pub const EMPTY: Self = Self { len: 0, bytes: [0; Self::MOST] };

    /// The beginning of a text.
    pub fn of(text: &str) -> Self {
        Self::join(&[text])
    }

    /// The beginning of the texts in a row.
    pub fn join(parts: &[&str]) -> Self {
        let mut text = Self::EMPTY;
        for part in parts {
            if !text.push(part) {
                break;
            }
        }
        text
    }

    /// Appends as much as there is room for, and says whether that was all.
    pub(crate) fn push(&mut self, part: &str) -> bool {
        let len = usize::from(self.len);
        let cut = prefix(part, Self::MOST - len);
        self.bytes[len..len + cut.len()].copy_from_slice(cut.as_bytes());
        self.len = (len + cut.len()) as u8;
        cut.len() == part.len()
    }

    /// Appends as [`Text::push`] does, with spaces instead of control characters and at most so many bytes.
    pub(crate) fn push_line(&mut self, part: &str, most: usize) -> bool {
        let begin = usize::from(self.len);
        let cut = prefix(part, most);
        let is_whole = self.push(cut) && cut.len() == part.len();
        for byte in &mut self.bytes[begin..usize::from(self.len)] {
            *byte = if byte.is_ascii_control() { b' ' } else { *byte };
        }
        is_whole
    }

    /// The text of bytes that may be torn: up to the first that is none.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let valid = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
        let mut text = Self::EMPTY;
        text.len = valid.min(Self::MOST) as u8;
        text.bytes[..usize::from(text.len)].copy_from_slice(&bytes[..usize::from(text.len)]);
        text
    }

    /// Forgets what follows the first bytes, which end at a character.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len as u8);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The longest beginning of a text with at most so many bytes that ends at a character.
pub(crate) fn prefix(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_a_character() {
        let long = "é".repeat(100);
        let text = Text::of(&long);
        assert_eq!(text.as_str(), "é".repeat(79));
        assert_eq!(Text::join(&["a", "", "b"]).as_str(), "ab");
        let mut text = Text::of("x");
        assert!(!text.push(&long));
        assert_eq!(text.as_str().len(), 159);
        assert_eq!(Text::of_bytes(b"ab\xffcd").as_str(), "ab");
        assert_eq!(Text::of_bytes(b"\xff").as_str(), "");
    }

    #[test]
    fn lines_have_no_control_characters() {
        let mut text = Text::EMPTY;
        assert!(text.push_line("a\nb\r\tc", 10));
        assert!(!text.push_line("0123456789", 3));
        assert_eq!(text.as_str(), "a b  c012");
    }

    #[test]
    fn marks_are_units_of_64_nanoseconds() {
        let mut details = Details::NONE;
        details.marks[3] = Details::units(6400);
        details.marks[4] = Details::units(0);
        details.marks[5] = Details::units(u64::MAX);
        assert_eq!(details.mark(2), None);
        assert_eq!(details.mark(3), Some(6400));
        assert_eq!(details.mark(4), Some(64));
        assert_eq!(details.mark(5), Some(u64::from(u32::MAX) * 64));
        assert_eq!(details.mark(16), None);
    }

    #[test]
    fn flags_have_names() {
        let mut flags = Flags::FAILED | Flags::RETRIED;
        assert_eq!(flags.names().collect::<Vec<_>>(), ["failed", "retried"]);
        assert!(flags.contains(Flags::FAILED) && !flags.contains(Flags::FAILED | Flags::REMOTE));
        flags |= Flags::DRY_RUN;
        assert_eq!(format!("{:?}", flags.without(Flags::FAILED)), r#"{"dry-run", "retried"}"#);
    }
}
