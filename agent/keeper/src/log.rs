//! Container output in the CRI log format: `<RFC 3339 with nanoseconds> <stream> <F|P> <text>`.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use coracle_host_dir::HostDir;
use jiff::Timestamp;
use memchr::memchr;

/// Longer lines are cut into partial ones.
const MAX_LINE: usize = 16 << 10;
/// Lines are written to the file when there are so many bytes of them: short lines grow a lot with their headers.
const MAX_WRITE: usize = 256 << 10;

/// Source of log bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Length of a header.
const HEADER: usize = "2016-10-06T00:17:09.669794202Z stdout F ".len();
/// Where the tag is in a header.
const TAG: usize = HEADER - " ".len() - 1;

/// What stands before the text of a full line. Made once for all lines of a read, whose times are a nanosecond apart: clients ask
/// for lines since the time of one, and collectors drop equal lines of one time.
#[derive(Debug, Clone, Copy)]
pub struct Header([u8; HEADER]);

impl Header {
    /// For bytes that were read at this time.
    pub fn new(stream: Stream, now: Timestamp) -> Self {
        let mut header = *match stream {
            Stream::Stdout => b"1970-01-01T00:00:00.000000000Z stdout F ",
            Stream::Stderr => b"1970-01-01T00:00:00.000000000Z stderr F ",
        };
        // Years before 0 do not fit; a clock before 1970 is wrong anyway.
        if now >= Timestamp::UNIX_EPOCH {
            let mut time = &mut header[..HEADER - " stdout F ".len()];
            let _ = write!(time, "{now:.9}");
        }
        Self(header)
    }

    /// For the next line. The last nanosecond of a second has no next one.
    fn advance(&mut self) {
        let end = HEADER - "Z stdout F ".len();
        let fraction = &mut self.0[end - 9..end];
        if let Some(at) = fraction.iter().rposition(|digit| *digit != b'9') {
            fraction[at] += 1;
            fraction[at + 1..].fill(b'0');
        }
    }
}

/// Cuts a stream of bytes into log lines.
#[derive(Debug, Default)]
pub struct Lines {
    /// Bytes of an incomplete line, at most [`MAX_LINE`].
    rest: Vec<u8>,
}

impl Lines {
    /// Appends lines that `data` completes to `out`, until that has [`MAX_WRITE`] bytes. Returns how much of `data` is used.
    pub fn push(&mut self, header: &mut Header, data: &[u8], out: &mut Vec<u8>) -> usize {
        let mut left = data;
        while !left.is_empty() && out.len() < MAX_WRITE {
            let room = MAX_LINE - self.rest.len();
            let window = &left[..left.len().min(room + 1)];
            let taken = match memchr(b'\n', window) {
                Some(end) => {
                    self.write(header, b'F', &left[..=end], out);
                    end + 1
                }
                None if window.len() > room => {
                    self.write(header, b'P', &left[..room], out);
                    out.push(b'\n');
                    room
                }
                None => {
                    self.rest.extend_from_slice(left);
                    left.len()
                }
            };
            left = &left[taken..];
        }
        data.len() - left.len()
    }

    /// Ends the stream: remaining bytes become a partial line.
    pub fn finish(&mut self, header: &mut Header, out: &mut Vec<u8>) {
        if !self.rest.is_empty() {
            self.write(header, b'P', b"\n", out);
        }
    }

    /// Appends a line. Its newline is in `text`, or the caller appends it.
    fn write(&mut self, header: &mut Header, tag: u8, text: &[u8], out: &mut Vec<u8>) {
        let tag_at = out.len() + TAG;
        out.extend_from_slice(&header.0);
        out[tag_at] = tag;
        header.advance();
        if !self.rest.is_empty() {
            out.extend_from_slice(&self.rest);
            // Most containers are idle: nothing is kept for them.
            self.rest = Vec::new();
        }
        out.extend_from_slice(text);
    }
}

/// The log file of one container.
///
/// If a write fails (full disk), those lines are dropped: a container must not stop because its log cannot be written.
#[derive(Debug)]
pub struct ContainerLog {
    path: PathBuf,
    file: File,
    /// The file ends within a line.
    torn: bool,
    stdout: Lines,
    stderr: Lines,
}

impl ContainerLog {
    /// Opens the log for appending, with its directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (file, torn) = open(path)?;
        Ok(Self { path: path.to_owned(), file, torn, stdout: Lines::default(), stderr: Lines::default() })
    }

    /// Opens the path again after a rotation; on failure writes continue to the old file.
    pub fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.torn) = open(&self.path)?;
        Ok(())
    }

    /// Writes the lines that `data` completes. What `out` holds is replaced; it is passed to be used again.
    pub fn push(&mut self, stream: Stream, data: &[u8], out: &mut Vec<u8>) {
        let mut header = Header::new(stream, Timestamp::now());
        let mut left = data;
        while !left.is_empty() {
            out.clear();
            let used = self.lines(stream).push(&mut header, left, out);
            left = &left[used..];
            write_lines(&mut self.file, &mut self.torn, out);
        }
    }

    /// Writes what is left of an ended stream.
    pub fn finish(&mut self, stream: Stream, out: &mut Vec<u8>) {
        out.clear();
        self.lines(stream).finish(&mut Header::new(stream, Timestamp::now()), out);
        write_lines(&mut self.file, &mut self.torn, out);
    }

    fn lines(&mut self, stream: Stream) -> &mut Lines {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// Appends lines to a file. If a write fails, the rest of them is dropped; the next lines do not continue a torn one.
fn write_lines(file: &mut impl Write, torn: &mut bool, lines: &[u8]) {
    if lines.is_empty() {
        return;
    }
    if *torn {
        if file.write_all(b"\n").is_err() {
            return;
        }
        *torn = false;
    }
    let mut left = lines;
    while !left.is_empty() {
        match file.write(left) {
            Ok(written @ 1..) => left = &left[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => break,
        }
    }
    let written = &lines[..lines.len() - left.len()];
    *torn = written.last().is_some_and(|byte| *byte != b'\n');
}

/// The file, and whether it ends within a line: a keeper may have been killed, or a machine lost power, while it was written.
///
/// Refuses symbolic links in the path: pods that collect logs may write into these directories.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let (dir, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    let dir = HostDir::create(dir)?;
    let file = dir.append(name, 0o640)?;
    // A log that cannot be read is written nevertheless.
    let torn = dir.open_file(name).and_then(|file| ends_within_line(&file)).unwrap_or(false);
    Ok((file, torn))
}

fn ends_within_line(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// With `T` for the time, after a check that times are in order.
    fn lines(chunks: &[&[u8]]) -> String {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        let mut header = Header::new(Stream::Stdout, Timestamp::UNIX_EPOCH);
        for chunk in chunks {
            let mut left = *chunk;
            while !left.is_empty() {
                let mut some = Vec::new();
                left = &left[lines.push(&mut header, left, &mut some)..];
                assert!(some.len() < MAX_WRITE + HEADER + MAX_LINE + 1);
                out.extend(some);
            }
        }
        lines.finish(&mut header, &mut out);
        let (text, mut before) = (String::from_utf8(out).unwrap(), "");
        let mut timeless = String::new();
        for line in text.lines() {
            let (time, rest) = line.split_once(' ').unwrap();
            assert!(before < time && time.parse::<Timestamp>().is_ok(), "{before} {time}");
            before = time;
            timeless.push_str(&format!("T {rest}\n"));
        }
        timeless
    }

    /// What `lines` should do, byte by byte.
    fn reference(data: &[u8]) -> String {
        let (mut out, mut line) = (String::new(), String::new());
        for byte in data {
            if *byte == b'\n' {
                out.push_str(&format!("T stdout F {line}\n"));
                line.clear();
                continue;
            }
            if line.len() == MAX_LINE {
                out.push_str(&format!("T stdout P {line}\n"));
                line.clear();
            }
            line.push(char::from(*byte));
        }
        if !line.is_empty() {
            out.push_str(&format!("T stdout P {line}\n"));
        }
        out
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

    /// Runs of letters that are often about as long as a line may be, and newlines.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![0usize..200, MAX_LINE - 2..MAX_LINE + 3, 2 * MAX_LINE - 2..2 * MAX_LINE + 3];
        let part = (length, any::<bool>()).prop_map(|(length, end)| {
            let mut part = vec![b'a'; length];
            part.extend(end.then_some(b'\n'));
            part
        });
        proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(data in output(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6)) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(data.len() + 1)).collect();
            cuts.sort_unstable();
            let (mut chunks, mut begin) = (Vec::new(), 0);
            for cut in cuts.into_iter().chain([data.len()]) {
                chunks.push(&data[begin..cut]);
                begin = cut;
            }
            prop_assert_eq!(lines(&chunks), reference(&data));
        }
    }

    #[test]
    fn many_empty_lines_are_written_in_parts() {
        let data = vec![b'\n'; 128 << 10];
        assert_eq!(lines(&[&data]), "T stdout F \n".repeat(data.len()));
    }

    #[test]
    fn a_header_has_the_time_and_the_stream() {
        let header = |stream, time: &str| {
            String::from_utf8(Header::new(stream, time.parse().unwrap()).0.to_vec()).unwrap()
        };
        let time = "2016-10-06T00:17:09.669794202Z";
        assert_eq!(header(Stream::Stdout, time), format!("{time} stdout F "));
        assert_eq!(header(Stream::Stderr, time), format!("{time} stderr F "));
        let next = |time: &str| {
            let mut header = Header::new(Stream::Stdout, time.parse().unwrap());
            header.advance();
            String::from_utf8(header.0[..time.len()].to_vec()).unwrap()
        };
        assert_eq!(next("2016-10-06T00:17:09.000000000Z"), "2016-10-06T00:17:09.000000001Z");
        assert_eq!(next("2016-10-06T00:17:09.120999999Z"), "2016-10-06T00:17:09.121000000Z");
        assert_eq!(next("2016-10-06T00:17:09.999999999Z"), "2016-10-06T00:17:09.999999999Z");
        let epoch = "1970-01-01T00:00:00.000000000Z";
        assert_eq!(header(Stream::Stdout, "-000001-01-01T00:00:00Z"), format!("{epoch} stdout F "));
    }

    /// A disk with room for so many bytes.
    struct Disk {
        room: usize,
        bytes: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            let fits = data.len().min(self.room);
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= fits;
            self.bytes.extend_from_slice(&data[..fits]);
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_after_a_full_disk_are_whole() {
        let (mut disk, mut torn) = (Disk { room: 6, bytes: Vec::new() }, false);
        write_lines(&mut disk, &mut torn, b"one\ntwo\n");
        write_lines(&mut disk, &mut torn, b"lost\n");
        disk.room = 100;
        write_lines(&mut disk, &mut torn, b"three\n");
        write_lines(&mut disk, &mut torn, b"four\n");
        assert_eq!(disk.bytes, b"one\ntw\nthree\nfour\n");
        // Nothing is torn if it was full between lines.
        disk = Disk { room: 4, bytes: Vec::new() };
        write_lines(&mut disk, &mut torn, b"one\ntwo\n");
        disk.room = 100;
        write_lines(&mut disk, &mut torn, b"three\n");
        assert_eq!(disk.bytes, b"one\nthree\n");
    }

    #[test]
    fn a_line_that_another_keeper_left_torn_is_not_continued() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        for (before, ended) in [("", ""), ("T stdout F whole\n", ""), ("T stdout F to", "\n")] {
            std::fs::write(&path, before).unwrap();
            ContainerLog::open(&path).unwrap().push(Stream::Stdout, b"next\n", &mut Vec::new());
            let text = std::fs::read_to_string(&path).unwrap();
            let added = text.strip_prefix(before).and_then(|text| text.strip_prefix(ended)).unwrap();
            assert!(added.ends_with(" stdout F next\n") && !added.starts_with('\n'), "{text}");
            assert_eq!(added.lines().count(), 1, "{text}");
        }
    }

    #[test]
    fn a_rotated_log_goes_on_in_the_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pod/c/0.log");
        let (mut log, mut out) = (ContainerLog::open(&path).unwrap(), Vec::new());
        log.push(Stream::Stdout, b"before\n", &mut out);
        let old = dir.path().join("old");
        std::fs::rename(&path, &old).unwrap();
        log.push(Stream::Stderr, b"between\n", &mut out);
        log.reopen().unwrap();
        log.push(Stream::Stdout, b"after\n", &mut out);
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
