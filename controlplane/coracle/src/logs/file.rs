//! A log file: its end, and what is added to it.

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// How much is read at a time.
const PIECE: usize = 64 * 1024;

/// Prints a file, or its last lines. With `follow` it goes on until the reader has gone, and begins anew when the program
/// does.
pub(super) fn print(path: &Path, tail: Option<usize>, follow: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match print_to(&mut out, path, tail, follow) {
        // `coracle logs | head`
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn print_to(out: &mut impl Write, path: &Path, tail: Option<usize>, follow: bool) -> io::Result<()> {
    let mut file = File::open(path)?;
    let watch = if follow { Some(watch(path)?) } else { None };
    if let Some(lines) = tail {
        let start = start_of_last(&mut file, lines)?;
        file.seek(SeekFrom::Start(start))?;
    }
    loop {
        copy(&mut file, out)?;
        let Some(watch) = &watch else { return Ok(()) };
        watch.read_events()?;
        // The program was started again with an empty log.
        if file.metadata()?.len() < file.stream_position()? {
            file.seek(SeekFrom::Start(0))?;
        }
    }
}

fn watch(path: &Path) -> io::Result<Inotify> {
    let watch = Inotify::init(InitFlags::IN_CLOEXEC)?;
    watch.add_watch(path, AddWatchFlags::IN_MODIFY)?;
    Ok(watch)
}

fn copy(file: &mut File, out: &mut impl Write) -> io::Result<()> {
    io::copy(file, out)?;
    out.flush()
}

/// Where the last lines begin, searched from the end.
fn start_of_last(file: &mut (impl Read + Seek), lines: usize) -> io::Result<u64> {
    let length = file.seek(SeekFrom::End(0))?;
    let (mut at, mut found, mut piece) = (length, 0, vec![0; PIECE]);
    while at > 0 {
        let size = at.min(PIECE as u64);
        at -= size;
        file.seek(SeekFrom::Start(at))?;
        let piece = &mut piece[..size as usize];
        file.read_exact(piece)?;
        for (offset, _) in piece.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let after = at + offset as u64 + 1;
            // The newline at the end of the file ends the last line.
            if after < length {
                found += 1;
            }
            if found == lines && after <= length {
                return Ok(if lines == 0 { length } else { after });
            }
        }
    }
    Ok(if lines == 0 { length } else { 0 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Cursor;

    fn last(text: &str, lines: usize) -> String {
        let mut file = Cursor::new(text.as_bytes().to_vec());
        let start = start_of_last(&mut file, lines).unwrap();
        text[start as usize..].to_owned()
    }

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        for (text, lines, expected) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 2, "b\nc"),
            ("a\nb\nc\n", 3, "a\nb\nc\n"),
            ("a\nb\nc\n", 9, "a\nb\nc\n"),
            ("a\nb\nc\n", 0, ""),
            ("a\n\n\n", 2, "\n\n"),
            ("", 5, ""),
            ("a", 1, "a"),
        ] {
            assert_eq!(last(text, lines), expected, "{lines} of {text:?}");
        }
        let long: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
        assert_eq!(last(&long, 2), "line 19998\nline 19999\n");
        assert_eq!(last(&long, 15_000).lines().count(), 15_000, "more than a piece");
    }

    /// Ends the reading by a broken pipe, as a reader does that has seen enough.
    struct Until(&'static str, Vec<u8>, File);

    impl Write for Until {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.extend_from_slice(bytes);
            let text = String::from_utf8_lossy(&self.1).into_owned();
            if text.ends_with("first\n") {
                self.2.write_all(b"second\n")?;
            }
            if text.ends_with(self.0) { Err(ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_added_is_printed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.log");
        std::fs::write(&path, "zero\nfirst\n").unwrap();
        let added = File::options().append(true).open(&path).unwrap();
        let mut out = Until("second\n", Vec::new(), added);
        let error = print_to(&mut out, &path, Some(1), true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert_eq!(String::from_utf8(out.1).unwrap(), "first\nsecond\n");
    }
}
