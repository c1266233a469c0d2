//! What the terminal can show: width, characters, colours. And texts that fit into it.

use std::io::IsTerminal as _;
use std::os::fd::AsFd;

/// Without a terminal.
const WIDTH: usize = 80;
/// Narrower terminals are treated as if they had this width.
const NARROWEST: usize = 40;

/// The characters of the waterfall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) branch: &'static str,
    pub(super) last_branch: &'static str,
    pub(super) line: &'static str,
    pub(super) bar: char,
    /// A bar that is shorter than half a character.
    pub(super) short_bar: char,
    /// A bar for several spans.
    pub(super) several: char,
    /// A bar whose cause is assumed.
    pub(super) inferred: char,
    /// The end of something that lasts, and of text that was cut.
    pub(super) more: char,
    pub(super) edge: char,
    pub(super) separator: &'static str,
    pub(super) plus_minus: &'static str,
}

/// Box drawing and block elements.
pub(super) const UNICODE: Style = Style {
    branch: "├ ",
    last_branch: "└ ",
    line: "│ ",
    bar: '█',
    short_bar: '▏',
    several: '░',
    inferred: '╌',
    more: '…',
    edge: '│',
    separator: " · ",
    plus_minus: "±",
};

/// For terminals that can show nothing else.
pub(super) const ASCII: Style = Style {
    branch: "+ ",
    last_branch: "+ ",
    line: "| ",
    bar: '#',
    short_bar: '\'',
    several: '=',
    inferred: '-',
    more: '~',
    edge: '|',
    separator: ", ",
    plus_minus: "+-",
};

/// As much is shown of the end of a name: a hyphen and five characters in those of pods.
const NAME_END: usize = 6;

/// Where the waterfall is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) style: Style,
    pub(super) color: bool,
    pub(super) terminal: bool,
}

impl Screen {
    /// What standard output is connected to.
    pub(super) fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let terminal = stdout.is_terminal();
        let (width, height) = if terminal { size(&stdout) } else { (0, 0) };
        Self {
            width: if width == 0 { WIDTH } else { width.max(NARROWEST) },
            height: if height == 0 { 24 } else { height },
            style: style(&variable("TERM"), &[variable("LC_ALL"), variable("LC_CTYPE"), variable("LANG")]),
            color: terminal && variable("NO_COLOR").is_empty() && variable("TERM") != "dumb",
            terminal: terminal && variable("TERM") != "dumb",
        }
    }
}

/// The style for a kind of terminal and a locale: the first of the variables that is set counts.
fn style(term: &str, locales: &[String]) -> Style {
    let locale = locales.iter().find(|locale| !locale.is_empty()).map_or("", String::as_str);
    if term == "dumb" || matches!(locale, "C" | "POSIX") { ASCII } else { UNICODE }
}

/// Columns and rows of a terminal, 0 if they are not known.
fn size(terminal: &impl AsFd) -> (usize, usize) {
    use std::os::fd::AsRawFd as _;
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes one `winsize` to the address of one.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    if result == 0 { (size.ws_col.into(), size.ws_row.into()) } else { (0, 0) }
}

/// Characters of a text.
pub(super) fn length(text: &str) -> usize {
    text.chars().count()
}

/// A text that is not longer than `width`; the last character shows that it was cut.
pub(super) fn cut(text: &str, width: usize, style: Style) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(1) else { return String::new() };
    text.chars().take(room).chain([style.more]).collect()
}

/// A text that ends with a name, cut in the middle: names that were generated differ at their end.
pub(super) fn cut_name(text: &str, width: usize, style: Style) -> String {
    let all = length(text);
    if all <= width || width < 3 * NAME_END {
        return cut(text, width, style);
    }
    let (begin, end) = (text.chars().take(width - NAME_END - 1), text.chars().skip(all - NAME_END));
    begin.chain([style.more]).chain(end).collect()
}

/// A text in lines that are not longer than `width` if words allow it; lines after the first are indented.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if line.is_empty() {
            line.push_str(word);
        } else if length(&line) + 1 + length(word) > width {
            lines.push(std::mem::replace(&mut line, format!("  {word}")));
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.push(line);
    lines
}

/// Pieces in lines that are not longer than `width` if pieces allow it, with a separator between those of one line.
pub(super) fn join(pieces: &[String], separator: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if length(line) + length(separator) + length(piece) <= width => {
                line.push_str(separator);
                line.push_str(piece);
            }
            _ => lines.push(piece.clone()),
        }
    }
    lines
}

/// A text from the server without control characters, which could move the cursor or change the title of a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit() {
        assert_eq!(cut("readiness", 9, UNICODE), "readiness");
        assert_eq!(cut("readiness", 5, UNICODE), "read…");
        assert_eq!(cut("readiness", 5, ASCII), "read~");
        assert_eq!(cut("readiness", 0, ASCII), "");
        let name = "create pod/web-7d9f8c6b5-2xk4p";
        assert_eq!(cut_name(name, 30, UNICODE), name);
        assert_eq!(cut_name(name, 24, UNICODE), "create pod/web-7d…-2xk4p");
        assert_eq!(cut_name(name, 10, ASCII), "create po~");
        assert_eq!(wrap("one two three", 8), ["one two", "  three"]);
        assert_eq!(wrap("", 8), [""]);
        let pieces = ["a 1".to_owned(), "b 2".to_owned(), "c 3".to_owned()];
        assert_eq!(join(&pieces, " · ", 9), ["a 1 · b 2", "c 3"]);
    }

    #[test]
    fn characters_by_locale() {
        let locales = |all: &str, ctype: &str| [all.to_owned(), ctype.to_owned()];
        assert_eq!(style("xterm", &locales("", "en_US.UTF-8")), UNICODE);
        assert_eq!(style("xterm", &locales("", "")), UNICODE);
        assert_eq!(style("xterm", &locales("C", "en_US.UTF-8")), ASCII);
        assert_eq!(style("dumb", &locales("", "")), ASCII);
    }

    #[test]
    fn escape_sequences_are_not_printed() {
        assert_eq!(printable("a\u{1b}]0;x\u{7}b"), "a ]0;x b");
    }
}
