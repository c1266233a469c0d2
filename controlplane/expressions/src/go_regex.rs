//! Translates regular expressions from the syntax of Go to that of the `regex` crate.
//!
//! Definitions of custom resources are written for Go. It takes a brace that begins no repetition, a bracket inside a
//! character class, and a hyphen after a set such as `\w` in a class literally, and its `\d`, `\s` and `\w` are ASCII.

/// The pattern with those characters escaped and those sets spelled out.
pub(super) fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(first) = rest.chars().next() {
        let mut length = first.len_utf8();
        match first {
            '\\' => {
                length = escape(rest);
                match set(&rest[1..length]) {
                    Some((members, negated)) => {
                        match (in_class, negated) {
                            (true, false) => out.push_str(members),
                            (false, false) => out.extend(["[", members, "]"]),
                            (_, true) => out.extend(["[^", members, "]"]),
                        }
                        if in_class && rest[length..].starts_with('-') {
                            length += 1;
                            out.push_str("\\-");
                        }
                    }
                    None => out.push_str(&rest[..length]),
                }
            }
            '[' if !in_class => {
                in_class = true;
                length += usize::from(rest[1..].starts_with('^'));
                out.push_str(&rest[..length]);
                // The first bracket does not end the class.
                if rest[length..].starts_with(']') {
                    length += 1;
                    out.push_str("\\]");
                }
            }
            '[' => match rest.find(":]").filter(|_| rest.starts_with("[:")) {
                Some(end) => {
                    length = end + 2;
                    out.push_str(&rest[..length]);
                }
                None => out.push_str("\\["),
            },
            '{' if !in_class && !repeats(&rest[1..]) => out.push_str("\\{"),
            other => {
                in_class &= other != ']';
                out.push(other);
            }
        }
        rest = &rest[length..];
    }
    out
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
    let length = 1 + escaped.len_utf8();
    let braced = matches!(escaped, 'p' | 'P' | 'x') && text[length..].starts_with('{');
    text.find('}').filter(|_| braced).map_or(length, |end| end + 1)
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
        ] {
            let compiled = patterns::bounded(pattern).unwrap();
            assert!(compiled.regex.is_match(fits) && !compiled.regex.is_match(fails), "{pattern}");
        }
        for pattern in ["(", "[", "a**{", "\\", "\\p{", "[[:alpha:"] {
            super::translated(pattern);
        }
        assert!(patterns::bounded("(?!a)[[]").is_err());
    }
}
