//! One line of a log file: `<time> <stream> <tags> <text>`. Lines in another form are skipped.

use jiff::Timestamp;
use memchr::memchr;

use super::options::{LogOptions, LogStream};

/// A line taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    time: &'a [u8],
    stream: &'a [u8],
    /// The text goes on in the next line.
    partial: bool,
    text: &'a [u8],
}

/// Takes a line apart, without its newline.
fn parse(line: &[u8]) -> Option<Line<'_>> {
    let (time, rest) = word(line)?;
    let (stream, rest) = word(rest)?;
    let (tags, text) = word(rest).unwrap_or_else(|| rest.split_at(rest.len()));
    if !matches!(stream, b"stdout" | b"stderr") {
        return None;
    }
    let partial = tags == b"P" || tags.starts_with(b"P:");
    Some(Line { time, stream, partial, text })
}

/// What stands before the first space and behind it.
fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr(b' ', line)?;
    Some((&line[..end], &line[end + 1..]))
}

/// Turns lines of files into what the client sees.
#[derive(Debug)]
pub struct Printer {
    timestamps: bool,
    since: Option<Timestamp>,
    wanted: LogStream,
    /// Bytes that may still be sent.
    left: u64,
    /// The next line begins one of the client's.
    fresh: bool,
}

impl Printer {
    /// For one request.
    pub fn new(options: &LogOptions) -> Self {
        Self {
            timestamps: options.timestamps,
            since: options.since,
            wanted: options.wanted,
            left: options.limit.unwrap_or(u64::MAX),
            fresh: true,
        }
    }

    /// Nothing more may be sent.
    pub fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Appends what the client sees of one line.
    pub fn print(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let Some(line) = parse(line) else { return };
        let (wanted, stream) = (self.wanted, line.stream);
        if (wanted == LogStream::Stdout && stream != b"stdout")
            || (wanted == LogStream::Stderr && stream != b"stderr")
        {
            return;
        }
        if let Some(since) = self.since {
            let time = std::str::from_utf8(line.time).ok().and_then(|time| time.parse::<Timestamp>().ok());
            if time.is_none_or(|time| time < since) {
                return;
            }
            // Lines are in order: what follows is newer.
            self.since = None;
        }
        let begun = out.len();
        if self.timestamps && self.fresh {
            out.extend_from_slice(line.time);
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        if !line.partial {
            out.push(b'\n');
        }
        self.fresh = !line.partial;
        let made = (out.len() - begun) as u64;
        if made > self.left {
            out.truncate(begun + usize::try_from(self.left).unwrap_or(usize::MAX));
        }
        self.left = self.left.saturating_sub(made);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LOG: [&str; 5] = [
        "2026-01-01T00:00:01.000000001Z stdout F one",
        "2026-01-01T00:00:02.000000001Z stderr P tw",
        "2026-01-01T00:00:02.000000002Z stderr F o",
        "rubbish",
        "2026-01-01T00:00:03.000000001Z stdout F ",
    ];

    fn print(options: &LogOptions) -> String {
        let (mut printer, mut out) = (Printer::new(options), Vec::new());
        LOG.iter().for_each(|line| printer.print(line.as_bytes(), &mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn takes_lines_apart() {
        let line = |partial, text: &'static str| {
            Some(Line { time: b"T", stream: b"stdout", partial, text: text.as_bytes() })
        };
        assert_eq!(parse(b"T stdout F a b"), line(false, "a b"));
        assert_eq!(parse(b"T stdout F"), line(false, ""));
        assert_eq!(parse(b"T stdout P:x a"), line(true, "a"));
        assert_eq!(parse(b"T stdout Pa a"), line(false, "a"));
        assert_eq!(parse(b"T stdout "), line(false, ""));
        for bad in ["", "T", "T stdout", "T stdin F a"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn prints_what_is_wanted() {
        assert_eq!(print(&LogOptions::default()), "one\ntwo\n\n");
        let with = LogOptions { timestamps: true, ..LogOptions::default() };
        let times: Vec<String> = print(&with).lines().map(|line| line[18..].to_owned()).collect();
        assert_eq!(times, ["1.000000001Z one", "2.000000001Z two", "3.000000001Z "], "one time per line");
        let since =
            LogOptions { since: Some("2026-01-01T00:00:02Z".parse().unwrap()), ..LogOptions::default() };
        assert_eq!(print(&since), "two\n\n");
        let stderr = LogOptions { wanted: LogStream::Stderr, ..LogOptions::default() };
        assert_eq!(print(&stderr), "two\n");
        let limited = LogOptions { limit: Some(5), ..LogOptions::default() };
        assert_eq!(print(&limited), "one\nt");
    }
}
