//! Reads log files: whole lines only, as the client sees them.

use memchr::memchr_iter;
use std::io::{self, Read};

use super::line::Printer;

/// Read at once.
const CHUNK: usize = 128 << 10;
/// Longer lines are skipped. The keeper and containerd cut lines into parts of 16 KiB, but others may write into these files.
const MAX_LINE: usize = 16 << 20;

/// A file of a log, from where to begin.
pub type LogFile = Box<dyn Read + Send>;

/// Cuts files into lines and prints those.
#[derive(Debug)]
pub struct LineReader {
    printer: Printer,
    /// Begins with an incomplete line.
    buffer: Vec<u8>,
    /// Bytes of the incomplete line.
    held: usize,
    /// The incomplete line is too long.
    skips: bool,
}

impl LineReader {
    /// Before the first file.
    pub fn new(printer: Printer) -> Self {
        Self { printer, buffer: vec![0; CHUNK], held: 0, skips: false }
    }

    /// Nothing more may be sent.
    pub fn is_full(&self) -> bool {
        self.printer.is_full()
    }

    /// Drops an incomplete line: another file follows, and its first line is not the rest of that one. Whoever writes the log
    /// ends a line before the log is rotated, unless it is killed or its disk is full. A line that is marked as partial is
    /// complete here, and the next file may have its other parts.
    pub fn end_file(&mut self) {
        (self.held, self.skips) = (0, false);
    }

    /// Reads once, and prints the lines that are complete then; `None` at the end of the file.
    pub fn read(&mut self, file: &mut LogFile) -> io::Result<Option<Vec<u8>>> {
        if self.held == self.buffer.len() {
            self.make_room();
        }
        let read = match file.read(&mut self.buffer[self.held..])? {
            0 => return Ok(None),
            read => read,
        };
        let (mut begin, end) = (0, self.held + read);
        let mut printed = Vec::with_capacity(end);
        for at in memchr_iter(b'\n', &self.buffer[self.held..end]) {
            let at = self.held + at;
            if !std::mem::take(&mut self.skips) {
                self.printer.print(&self.buffer[begin..at], &mut printed);
            }
            begin = at + 1;
            if self.printer.is_full() {
                break;
            }
        }
        self.buffer.copy_within(begin..end, 0);
        self.held = end - begin;
        Ok(Some(printed))
    }

    /// The buffer holds nothing but an incomplete line.
    fn make_room(&mut self) {
        let size = 2 * self.buffer.len();
        if size <= MAX_LINE && !self.skips {
            self.buffer.resize(size, 0);
        } else {
            (self.held, self.skips) = (0, true);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::options::LogOptions;
    use super::*;
    use proptest::prelude::*;

    /// Gives what it has in parts of so many bytes.
    struct Parts(Vec<u8>, usize);

    impl Read for Parts {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(self.1).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0.drain(..n);
            Ok(n)
        }
    }

    fn log(lines: &[String]) -> Vec<u8> {
        lines.iter().flat_map(|line| format!("2026-01-01T00:00:01Z stdout F {line}\n").into_bytes()).collect()
    }

    fn print(log: Vec<u8>, part: usize, options: &LogOptions) -> String {
        let (mut lines, mut file) =
            (LineReader::new(Printer::new(options)), Box::new(Parts(log, part)) as LogFile);
        let mut all = Vec::new();
        while let Some(printed) = lines.read(&mut file).unwrap() {
            all.extend(printed);
            if lines.is_full() {
                break;
            }
        }
        String::from_utf8(all).unwrap()
    }

    proptest! {
        #[test]
        fn parts_do_not_matter(lines in proptest::collection::vec("[a ]{0,80}", 0..30), part in 1usize..200) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            prop_assert_eq!(print(log(&lines), part, &LogOptions::default()), text);
        }
    }

    #[test]
    fn a_line_longer_than_the_buffer_is_whole() {
        let lines = ["a".repeat(3 * CHUNK), "b".to_owned()];
        assert!(print(log(&lines), CHUNK, &LogOptions::default()) == format!("{}\nb\n", lines[0]));
    }

    #[test]
    fn a_line_without_end_is_skipped() {
        let lines = ["a".to_owned(), "b".repeat(MAX_LINE + 2 * CHUNK), "c".to_owned()];
        assert!(print(log(&lines), usize::MAX, &LogOptions::default()) == "a\nc\n");
    }

    #[test]
    fn a_line_does_not_go_on_in_another_file_but_its_parts_do() {
        let mut lines = LineReader::new(Printer::new(&LogOptions::default()));
        let mut all = Vec::new();
        let torn = b"2026-01-01T00:00:01Z stdout P a\n2026-01-01T00:00:01Z stdout F to".to_vec();
        for log in [torn, log(&["b".to_owned(), "c".to_owned()])] {
            let mut file = Box::new(Parts(log, CHUNK)) as LogFile;
            while let Some(printed) = lines.read(&mut file).unwrap() {
                all.extend(printed);
            }
            lines.end_file();
        }
        assert_eq!(String::from_utf8(all).unwrap(), "ab\nc\n");
    }

    #[test]
    fn nothing_is_sent_beyond_the_limit() {
        let limited = LogOptions { limit: Some(3), ..LogOptions::default() };
        let lines = ["ab".to_owned(), "cd".to_owned()];
        assert_eq!(print(log(&lines), usize::MAX, &limited), "ab\n");
    }
}
