//! Translates regular expressions from the syntax of Go to that of the `regex` crate.
//!
//! Definitions of custom resources are written for Go. It takes a brace that begins no repetition literally, knows quoted text and
//! octal numbers, and its `\d`, `\s` and `\w` are ASCII. Its character classes have characters, ranges and sets, and no operators.

/// The pattern as the `regex` crate has to read it.
pub(super) fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\\' if rest.starts_with("\\Q") => {
                let quoted = rest[2..].split("\\E").next().unwrap_or_default();
                out.push_str(&regex::escape(quoted));
                (2 + quoted.len() + 2).min(rest.len())
            }
            '\\' => {
                let length = escape(rest);
                match set(&rest[1..length]) {
                    Some((members, false)) => out.extend(["[", members, "]"]),
                    Some((members, true)) => out.extend(["[^", members, "]"]),
                    None => push_escape(&rest[..length], &mut out),
                }
                length
            }
            '[' => class(rest, &mut out),
            '{' if !repeats(&rest[1..]) => {
                out.push_str("\\{");
                1
            }
            other => {
                out.push(other);
                other.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    out
}

/// Translates the character class that the text begins with; its length.
fn class(text: &str, out: &mut String) -> usize {
    let mut at = 1 + usize::from(text[1..].starts_with('^'));
    out.push_str(&text[..at]);
    let begin = at;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        // The first bracket does not end the class.
        if first == ']' && at > begin {
            out.push(']');
            return at + 1;
        }
        if rest.starts_with("[:")
            && let Some(end) = rest.find(":]")
        {
            out.push_str(&rest[..end + 2]);
            at += end + 2;
            continue;
        }
        if let Some(length) = class_set(rest, out) {
            at += length;
            continue;
        }
        at += single(rest, out);
        // A hyphen makes a range unless it is the last character.
        let mut after = text[at..].chars();
        if after.next() == Some('-') && after.next().is_some_and(|next| next != ']') {
            out.push('-');
            at += 1;
            at += single(&text[at..], out);
        }
    }
    at
}

/// A set in a class, such as `\w` or `\p{Greek}`; its length.
fn class_set(text: &str, out: &mut String) -> Option<usize> {
    let letters = text.strip_prefix('\\')?;
    let length = escape(text);
    match set(&text[1..length]) {
        Some((members, false)) => out.push_str(members),
        Some((members, true)) => out.extend(["[^", members, "]"]),
        None if letters.starts_with(['p', 'P']) => out.push_str(&text[..length]),
        None => return None,
    }
    Some(length)
}

/// One character of a class, which means itself; its length.
fn single(text: &str, out: &mut String) -> usize {
    let Some(first) = text.chars().next() else { return 0 };
    match first {
        '\\' => {
            let length = escape(text);
            push_escape(&text[..length], out);
            length
        }
        '[' | ']' | '&' | '~' | '-' | '^' => {
            out.extend(['\\', first]);
            1
        }
        other => {
            out.push(other);
            other.len_utf8()
        }
    }
}

/// An escape that is no set.
fn push_escape(text: &str, out: &mut String) {
    match octal(text) {
        Some(_) => {
            let number = u32::from_str_radix(&text[1..], 8).unwrap_or_default();
            out.extend(["\\x{", &format!("{number:x}"), "}"]);
        }
        None => out.push_str(text),
    }
}

/// The length of an escape such as `\101`. A digit alone, other than 0, would refer to a group: Go has no such references.
fn octal(text: &str) -> Option<usize> {
    let digits = text[1..].bytes().take(3).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
    (digits > 1 || (digits == 1 && text[1..].starts_with('0'))).then_some(1 + digits)
}

/// The members of a set by its letter, and whether the set is all others.
fn set(letter: &str) -> Option<(&'static str, bool)> {
    Some(match letter {
        "d" => ("0-9", false),
        "D" => ("0-9", true),
        "s" => (r"\t\n\f\r ", false),
        "S" => (r"\t\n\f\r ", true),
        "w" => ("0-9A-Za-z_", false),
        "W" => ("0-9A-Za-z_", true),
        _ => return None,
    })
}

/// The length of an escape with what belongs to it, as in `\p{Greek}`.
fn escape(text: &str) -> usize {
    let Some(escaped) = text[1..].chars().next() else { return 1 };
    if let Some(length) = octal(text) {
        return length;
    }
    let length = 1 + escaped.len_utf8();
    let braced = matches!(escaped, 'p' | 'P' | 'x') && text[length..].starts_with('{');
    let end = if braced { text.find('}') } else { None };
    end.map_or(length, |end| end + 1)
}

/// Whether what follows a brace makes it a repetition.
fn repeats(text: &str) -> bool {
    let Some((inside, _)) = text.split_once('}') else { return false };
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && digits(least) && digits(most)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::patterns;

    #[test]
    fn what_go_accepts_is_accepted() {
        for (pattern, fits, fails) in [
            (r"^{.*}$", "{a}", "a"),
            (r"^a{1,2}{$", "aa{", "a"),
            (r"^[\w-.]+$", "a-.", "a,"),
            (r"^[^[]+$", "a]", "["),
            (r"^[[:alpha:][]+\p{Greek}$", "a[α", "1α"),
            (r"^[][]+$", "[]", "a"),
            (r"^\w{1,63}$", "aZ_9", "é"),
            (r"^[\d\\]+$", r"1\", "٣"),
            (r"^\S[\W]$", "é.", "éa"),
            (r"^[\W-]$", "-", "a"),
            (r"^\Qa.b\E+$", "a.bb", "axb"),
            (r"^\Q[x", "[x", "x"),
            (r"^\141\x41\07?$", "aA", "a"),
            (r"^[\141-\143\0]$", "b", "d"),
            (r"^[a-z&&b]$", "c", "A"),
            (r"^[&&]$", "&", "a"),
            (r"^[a-z--b]$", "A", "~"),
            (r"^[\w--/]+$", "a./", "+"),
            (r"^[a~~b]$", "~", "c"),
            (r"^[-a]$", "-", "b"),
            (r"^[a-]$", "-", "b"),
            (r"^[^-a]$", "b", "-"),
            (r"^[a^]$", "^", "b"),
        ] {
            let compiled = patterns::bounded(pattern).unwrap();
            assert!(compiled.regex.is_match(fits) && !compiled.regex.is_match(fails), "{pattern}");
        }
        for pattern in
            ["(", "[", "a**{", "\\", "\\p{", "[[:alpha:", "[a-", "[\\", "[^", "\\Q", "\\é", "[é-ü]", "[a-\\"]
        {
            super::translated(pattern);
        }
        for pattern in ["(?!a)[[]", r"a\1", r"[\1]", "[b-a]", r"[a-\d]"] {
            assert!(patterns::bounded(pattern).is_err(), "{pattern}");
        }
    }
}
