//! How long and how deep an expression may be. Parser and interpreter recurse for every level of nesting and for every link
//! of a chain such as `a.b.c` or `1 + 1 + 1`: what is too deep for a thread's stack is found before anything is parsed.

/// Characters of an expression, as upstream.
const LONGEST: usize = 100_000;
/// Levels and links from the outermost operator to the innermost operand.
const DEEPEST: usize = 250;

/// Why an expression is not even parsed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LimitError {
    /// Too many characters.
    #[error("expression code point size exceeds limit: size: {size}, limit {LONGEST}")]
    Long {
        /// How many.
        size: usize,
    },
    /// Too many levels or links.
    #[error("expression recursion limit exceeded: {DEEPEST}")]
    Deep,
}

/// Tells whether an expression may be parsed.
pub fn fits(text: &str) -> Result<(), LimitError> {
    let size = text.chars().count();
    if size > LONGEST {
        return Err(LimitError::Long { size });
    }
    // What is not well formed may be read in more than one way: then everything counts, texts in quotes, too.
    let deepest = depth(text, true).unwrap_or_else(|| depth(text, false).unwrap_or(usize::MAX));
    if deepest > DEEPEST { Err(LimitError::Deep) } else { Ok(()) }
}

/// One pair of brackets.
#[derive(Default)]
struct Level {
    /// The deepest operand between two separators, and the links beside it.
    operand: usize,
    links: usize,
    /// Conditions: what follows one is inside it.
    conditions: usize,
    /// The deepest part so far.
    deepest: usize,
}

impl Level {
    fn part_ends(&mut self) {
        self.deepest = self.deepest.max(self.operand + self.links + self.conditions);
        (self.operand, self.links) = (0, 0);
    }
}

/// At least as deep as the tree that the parser makes of it; nothing when a text in quotes that would be left out is none.
fn depth(text: &str, quotes: bool) -> Option<usize> {
    let mut levels = vec![Level::default()];
    let mut most = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        let level = levels.last_mut()?;
        match byte {
            b'(' | b'[' | b'{' => {
                level.links += 1;
                levels.push(Level::default());
            }
            b')' | b']' | b'}' => {
                level.part_ends();
                let inside = level.deepest + 1;
                if levels.len() > 1 {
                    levels.pop();
                }
                let level = levels.last_mut()?;
                level.operand = level.operand.max(inside);
            }
            b',' => {
                level.part_ends();
                level.conditions = 0;
            }
            // Chains of these become balanced trees.
            b'&' | b'|' | b':' => level.part_ends(),
            b'?' => {
                level.part_ends();
                level.conditions += 1;
            }
            b'/' if quotes && bytes.get(at) == Some(&b'/') => {
                at += bytes[at..]
                    .iter()
                    .position(|byte| matches!(byte, b'\n' | b'\r'))
                    .unwrap_or(bytes.len() - at);
            }
            b'.' | b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' => {
                level.links += 1;
                // `<=` and `!!` are one link.
                while bytes.get(at).is_some_and(|next| matches!(next, b'=' | b'!')) {
                    at += 1;
                }
            }
            // ` in ` is an operator like any other.
            b'i' if bytes.get(at) == Some(&b'n') => level.links += 1,
            b'"' | b'\'' if quotes => at = end_of_text(bytes, at - 1)?,
            _ => {}
        }
        most = most.max(levels.iter().map(|level| level.deepest.max(level.operand + level.links) + 1).sum());
        if most > DEEPEST {
            return Some(most);
        }
    }
    let level = levels.last_mut()?;
    level.part_ends();
    Some(most.max(level.deepest))
}

/// Where a text in single or triple quotes ends, if it is well formed.
fn end_of_text(bytes: &[u8], start: usize) -> Option<usize> {
    let quote = bytes[start];
    let before = |n: usize| start.checked_sub(n).map_or(b' ', |at| bytes[at].to_ascii_lowercase());
    let raw = before(1) == b'r' || (before(1) == b'b' && before(2) == b'r');
    let triple = bytes[start..].starts_with(&[quote; 3]);
    let mut at = start + if triple { 3 } else { 1 };
    loop {
        match *bytes.get(at)? {
            b'\\' if !raw => at += escape(&bytes[at + 1..])? + 1,
            b'\n' | b'\r' if !triple => return None,
            byte if byte == quote && !triple => return Some(at + 1),
            byte if byte == quote && bytes[at..].starts_with(&[quote; 3]) => return Some(at + 3),
            _ => at += 1,
        }
    }
}

/// The length of what follows a backslash, if it means something.
fn escape(rest: &[u8]) -> Option<usize> {
    let digits = |count: usize, of: fn(&u8) -> bool| {
        rest.get(1..=count).is_some_and(|digits| digits.iter().all(of)).then_some(count + 1)
    };
    match rest.first()? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => Some(1),
        b'x' | b'X' => digits(2, u8::is_ascii_hexdigit),
        b'u' => digits(4, u8::is_ascii_hexdigit),
        b'U' => digits(8, u8::is_ascii_hexdigit),
        b'0'..=b'3' => digits(2, |byte| (b'0'..=b'7').contains(byte)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_and_long_expressions_are_not_parsed() {
        let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(1000), close.repeat(1000));
        for text in [
            deep("(", ")"),
            deep("[", "]"),
            deep("{1: ", "}"),
            deep("size(", ")"),
            deep("-(", ")"),
            format!("1{}", " + 1".repeat(1000)),
            format!("a{}", ".b".repeat(1000)),
            format!("a{}", "[0]".repeat(1000)),
            format!("a{}", ".f()".repeat(1000)),
            format!("1{}", " < 1".repeat(1000)),
            format!("1{}", " in []".repeat(1000)),
            format!("{}1", "a ? b : ".repeat(1000)),
            // What only looks like a text.
            format!("r'\\' + 1{} + ''", " + 1".repeat(1000)),
            format!("' \n 1{} '", " + 1".repeat(1000)),
            format!("'\\q' '1{}'", " + 1".repeat(1000)),
            format!("// '''\n 1{} '''", " + 1".repeat(1000)),
            // Chains within chains.
            "(".repeat(20) + "1" + &format!("{})", " + 1".repeat(20)).repeat(20),
        ] {
            assert_eq!(fits(&text), Err(LimitError::Deep), "{}", &text[..40]);
        }
        assert_eq!(fits(&" ".repeat(100_001)), Err(LimitError::Long { size: 100_001 }));
    }

    #[test]
    fn usual_expressions_are() {
        for text in [
            "a && b || c".repeat(1000),
            format!("[{}1]", "1, ".repeat(10_000)),
            format!("'{}'", "((((.+-".repeat(1000)),
            format!("\"{}\" == ''", "\\\"((((".repeat(1000)),
            format!("'''{}''' == ''", "'((((".repeat(1000)),
            "self.a.b.c.all(x, x.d.exists(y, y.e == self.f[0].g ? y.h > 1 + 2 * 3 : !y.i)) && ".repeat(500)
                + "true",
        ] {
            assert_eq!(fits(&text), Ok(()), "{}", &text[..40]);
        }
    }
}
