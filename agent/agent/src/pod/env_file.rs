//! Files of environment variables (`fileKeyRef`), in the subset of the shell's syntax that kubelets take. Pure.
//!
//! `NAME='value'`, one after the other. What is between the quotes is taken as it is, over several lines too; behind it
//! there may be a comment.

/// Why a file is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvFileError {
    /// A line without `=`.
    #[error("line {0}: missing '='")]
    NoEquals(usize),
    /// A line that begins with `=`.
    #[error("line {0}: empty variable name")]
    NoName(usize),
    /// `NAME ='value'`.
    #[error("line {0}: whitespace before '=' is not allowed")]
    Space(usize),
    /// `NAME=value`.
    #[error("line {0}: value must be enclosed in single quotes")]
    NoQuote(usize),
    /// `NAME='value'x`.
    #[error("line {0}: unexpected content after closing quote")]
    Rest(usize),
    /// A value that does not end.
    #[error("starting at line {0}: unclosed single quote")]
    Unclosed(usize),
}

/// The value of a key; `None` if the file does not have it, or has it empty. What follows the key is not read.
pub fn value(text: &str, key: &str) -> Result<Option<String>, EnvFileError> {
    const BLANK: [char; 2] = [' ', '\t'];
    let some = |value: String| Some(value).filter(|value| !value.is_empty());
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let line = line.trim_start_matches(BLANK);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, rest) = line.split_once('=').ok_or(EnvFileError::NoEquals(number))?;
        if name.trim_end_matches(BLANK).is_empty() {
            return Err(EnvFileError::NoName(number));
        }
        if name.ends_with(BLANK) {
            return Err(EnvFileError::Space(number));
        }
        // As in the shell, `NAME= 'value'` sets it to nothing.
        if rest.starts_with(BLANK) {
            if name == key {
                return Ok(None);
            }
            continue;
        }
        let mut rest = rest.strip_prefix('\'').ok_or(EnvFileError::NoQuote(number))?;
        let (mut value, mut last) = (String::new(), number);
        let behind = loop {
            if let Some((end, behind)) = rest.split_once('\'') {
                value.push_str(end);
                break behind.trim_start_matches(BLANK);
            }
            value.push_str(rest);
            value.push('\n');
            (rest, last) = lines.next().ok_or(EnvFileError::Unclosed(number))?;
        };
        if !behind.is_empty() && !behind.starts_with('#') {
            return Err(EnvFileError::Rest(last));
        }
        if name == key {
            return Ok(some(value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_files_are_read_as_kubelets_read_them() {
        let of = |text: &str| value(text, "KEY").map(|value| value.unwrap_or_default());
        for (text, want) in [
            ("KEY='a b'", Ok("a b")),
            ("# c\n\n  OTHER='x' # y\n\tKEY='$a \\n\"'#c\n", Ok("$a \\n\"")),
            ("KEY='one\ntwo\n'\n", Ok("one\ntwo\n")),
            ("KEY='1'\nKEY='2'", Ok("1")),
            ("KEY= 'x'", Ok("")),
            ("KEY=''", Ok("")),
            ("OTHER='x'", Ok("")),
            ("", Ok("")),
            ("KEY='a'\nnonsense", Ok("a")),
            ("nonsense", Err(EnvFileError::NoEquals(1))),
            ("\n='x'", Err(EnvFileError::NoName(2))),
            ("KEY ='x'", Err(EnvFileError::Space(1))),
            ("KEY=x", Err(EnvFileError::NoQuote(1))),
            ("OTHER='a\nb'c", Err(EnvFileError::Rest(2))),
            ("A='x'\nKEY='x\ny", Err(EnvFileError::Unclosed(2))),
        ] {
            assert_eq!(of(text), want.map(str::to_owned), "{text:?}");
        }
    }
}
