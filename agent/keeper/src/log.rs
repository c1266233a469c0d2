//! Container output in the CRI log format: `<RFC 3339 with nanoseconds> <stream> <F|P> <text>`.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use coracle_host_dir::HostDir;

/// Longer lines are cut into partial ones.
const MAX_LINE: usize = 16 << 10;

/// Source of log bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Cuts a stream of bytes into log lines.
#[derive(Debug, Default)]
pub struct Lines {
    /// Bytes of an incomplete line.
    rest: Vec<u8>,
}

impl Lines {
    /// Appends the lines that `data` completes to `out`.
    pub fn push(&mut self, stream: Stream, now: &str, mut data: &[u8], out: &mut Vec<u8>) {
        while !data.is_empty() {
            let room = MAX_LINE - self.rest.len();
            let end = data.iter().take(room + 1).position(|b| *b == b'\n');
            let (tag, taken, skip) = match end {
                Some(end) => ("F", end, 1),
                None if data.len() > room => ("P", room, 0),
                None => {
                    self.rest.extend_from_slice(data);
                    return;
                }
            };
            self.write(stream, now, tag, &data[..taken], out);
            data = &data[taken + skip..];
        }
    }

    /// Ends the stream: remaining bytes become a partial line.
    pub fn finish(&mut self, stream: Stream, now: &str, out: &mut Vec<u8>) {
        if !self.rest.is_empty() {
            self.write(stream, now, "P", &[], out);
        }
        self.rest = Vec::new();
    }

    fn write(&mut self, stream: Stream, now: &str, tag: &str, text: &[u8], out: &mut Vec<u8>) {
        for part in [now.as_bytes(), b" ", stream.name().as_bytes(), b" ", tag.as_bytes(), b" "] {
            out.extend_from_slice(part);
        }
        out.extend_from_slice(&self.rest);
        out.extend_from_slice(text);
        out.push(b'\n');
        self.rest.clear();
    }
}

/// The log file of one container.
///
/// If a write fails (full disk), those lines are dropped: a container must not stop because its log cannot be written.
#[derive(Debug)]
pub struct ContainerLog {
    path: PathBuf,
    file: File,
    stdout: Lines,
    stderr: Lines,
}

impl ContainerLog {
    /// Opens the log for appending, with its directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: open(path)?,
            stdout: Lines::default(),
            stderr: Lines::default(),
        })
    }

    /// Opens the path again after a rotation; on failure writes continue to the old file.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        Ok(())
    }

    /// Writes the lines that `data` completes.
    pub fn push(&mut self, stream: Stream, data: &[u8]) {
        let mut out = Vec::with_capacity(data.len() + 64);
        self.lines(stream).push(stream, &now(), data, &mut out);
        let _ = self.file.write_all(&out);
    }

    /// Writes what is left of an ended stream.
    pub fn finish(&mut self, stream: Stream) {
        let mut out = Vec::new();
        self.lines(stream).finish(stream, &now(), &mut out);
        let _ = self.file.write_all(&out);
    }

    fn lines(&mut self, stream: Stream) -> &mut Lines {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// Refuses symbolic links in the path: pods that collect logs may write into these directories.
fn open(path: &Path) -> io::Result<File> {
    let (dir, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    HostDir::create(dir)?.append(name, 0o640)
}

fn now() -> String {
    format!("{:.9}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn lines(chunks: &[&[u8]]) -> String {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.push(Stream::Stdout, "T", chunk, &mut out);
        }
        lines.finish(Stream::Stdout, "T", &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cuts_bytes_into_lines() {
        assert_eq!(lines(&[b"one\ntwo\n"]), "T stdout F one\nT stdout F two\n");
        assert_eq!(lines(&[b"on", b"e\n"]), "T stdout F one\n");
        assert_eq!(lines(&[b"\n"]), "T stdout F \n");
        assert_eq!(lines(&[b"no end"]), "T stdout P no end\n");
        assert_eq!(lines(&[]), "");
    }

    #[test]
    fn a_long_line_is_partial_until_its_end() {
        let text = "x".repeat(MAX_LINE);
        assert_eq!(lines(&[text.as_bytes(), b"\n"]), format!("T stdout F {text}\n"));
        let longer = format!("{text}yz\n");
        assert_eq!(lines(&[longer.as_bytes()]), format!("T stdout P {text}\nT stdout F yz\n"));
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_and_chunks_do_not_matter(data in "[a\n]{0,200}", cut in 0usize..200) {
            let cut = cut.min(data.len());
            let cut_lines = lines(&[&data.as_bytes()[..cut], &data.as_bytes()[cut..]]);
            prop_assert_eq!(&cut_lines, &lines(&[data.as_bytes()]));
            let text: String = cut_lines.lines().map(|l| {
                let end = if l.starts_with("T stdout F") { "\n" } else { "" };
                format!("{}{end}", &l["T stdout F ".len()..])
            }).collect();
            prop_assert_eq!(text, data);
        }
    }

    #[test]
    fn a_rotated_log_goes_on_in_the_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pod/c/0.log");
        let mut log = ContainerLog::open(&path).unwrap();
        log.push(Stream::Stdout, b"before\n");
        let old = dir.path().join("old");
        std::fs::rename(&path, &old).unwrap();
        log.push(Stream::Stderr, b"between\n");
        log.reopen().unwrap();
        log.push(Stream::Stdout, b"after\n");
        let ends = |path: &Path| -> Vec<String> {
            let text = std::fs::read_to_string(path).unwrap();
            text.lines().map(|l| l.split_once(' ').unwrap().1.to_owned()).collect()
        };
        assert_eq!(ends(&old), ["stdout F before", "stderr F between"]);
        assert_eq!(ends(&path), ["stdout F after"]);
        let stamp = std::fs::read_to_string(&path).unwrap();
        let stamp = stamp.split(' ').next().unwrap();
        assert_eq!(stamp.len(), "2016-10-06T00:17:09.669794202Z".len(), "{stamp}");
    }

    #[test]
    fn a_link_in_the_place_of_a_log_or_its_directory_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("outside")).unwrap();
        std::fs::create_dir_all(at("pod/c")).unwrap();
        std::fs::write(at("outside/0.log"), "kept").unwrap();
        std::os::unix::fs::symlink(at("outside"), at("pod/d")).unwrap();
        std::os::unix::fs::symlink(at("outside/0.log"), at("pod/c/0.log")).unwrap();
        for path in ["pod/c/0.log", "pod/d/0.log", "pod/d/new.log"] {
            assert!(ContainerLog::open(&at(path)).is_err(), "{path}");
        }
        assert_eq!(std::fs::read_to_string(at("outside/0.log")).unwrap(), "kept");
        assert!(!at("outside/new.log").exists());
    }
}
