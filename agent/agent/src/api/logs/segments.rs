//! The files of one container's log: `0.log.<time>[.gz]`, oldest first, then `0.log`.
//!
//! A pod that collects logs may write into their directories: a link in the place of a log is not read.

use flate2::read::GzDecoder;
use memchr::{memchr_iter, memrchr_iter};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use coracle_host_dir::HostDir;

const CHUNK: usize = 64 << 10;

/// One file, and where to begin in it.
#[derive(Debug, Clone)]
pub struct Segment {
    dir: Arc<HostDir>,
    name: OsString,
    /// Lines to skip; only in compressed files.
    skip_lines: u64,
    /// Bytes to skip.
    skip: u64,
}

impl Segment {
    /// All of a file.
    pub fn whole(dir: &Arc<HostDir>, name: impl Into<OsString>) -> Self {
        Self { dir: dir.clone(), name: name.into(), skip_lines: 0, skip: 0 }
    }

    fn is_compressed(&self) -> bool {
        is_compressed(&self.name)
    }

    /// A reader from where to begin.
    pub fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        let mut file = self.dir.open_file(&self.name)?;
        if !self.is_compressed() {
            file.seek(SeekFrom::Start(self.skip))?;
            return Ok(Box::new(file));
        }
        let mut reader = BufReader::with_capacity(CHUNK, GzDecoder::new(file));
        for _ in 0..self.skip_lines {
            reader.skip_until(b'\n')?;
        }
        Ok(Box::new(reader))
    }
}

fn is_compressed(name: &OsStr) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "gz")
}

/// Rotated files of a log, oldest first.
pub fn rotated(dir: &Arc<HostDir>, log: &OsStr) -> Vec<Segment> {
    let mut prefix = log.to_owned();
    prefix.push(".");
    let mut found: Vec<OsString> = dir
        .names()
        .into_iter()
        .flatten()
        .flatten()
        .filter(|name| {
            let rest = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
            // Half-written compressed files have another ending.
            rest.is_some_and(|rest| !rest.ends_with(b".tmp"))
        })
        .collect();
    found.sort();
    // While a file is being compressed both forms may be there.
    let kept = found.clone();
    found.retain(|name| !(is_compressed(name) && kept.contains(&Path::new(name).with_extension("").into())));
    found.into_iter().map(|name| Segment::whole(dir, name)).collect()
}

/// The segments that hold the last `lines` lines of these, or all of them.
pub fn tail(mut segments: Vec<Segment>, lines: Option<u64>) -> io::Result<Vec<Segment>> {
    let Some(mut wanted) = lines else { return Ok(segments) };
    for at in (0..segments.len()).rev() {
        if wanted == 0 && at + 1 < segments.len() {
            return Ok(segments.split_off(at + 1));
        }
        let segment = &mut segments[at];
        let has = if segment.is_compressed() {
            let has = count_lines(segment.open()?)?;
            segment.skip_lines = has.saturating_sub(wanted);
            has
        } else {
            let (skip, has) = last_lines(&mut segment.dir.open_file(&segment.name)?, wanted)?;
            segment.skip = skip;
            has
        };
        wanted = wanted.saturating_sub(has);
    }
    Ok(segments)
}

fn count_lines(mut from: impl Read) -> io::Result<u64> {
    let (mut buffer, mut lines) = (vec![0; CHUNK], 0);
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(lines),
            n => lines += memchr_iter(b'\n', &buffer[..n]).count() as u64,
        }
    }
}

/// Where the last `wanted` lines begin, and how many of them there are.
fn last_lines(file: &mut (impl Read + Seek), wanted: u64) -> io::Result<(u64, u64)> {
    let end = file.seek(SeekFrom::End(0))?;
    if wanted == 0 {
        return Ok((end, 0));
    }
    let (mut at, mut ends) = (end, 0);
    let mut buffer = vec![0; CHUNK];
    while at > 0 {
        let begin = at.saturating_sub(CHUNK as u64);
        let chunk = &mut buffer[..usize::try_from(at - begin).unwrap_or(CHUNK)];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(chunk)?;
        for index in memrchr_iter(b'\n', chunk) {
            // The newline before the first of the wanted lines.
            if ends == wanted {
                return Ok((begin + index as u64 + 1, wanted));
            }
            ends += 1;
        }
        at = begin;
    }
    Ok((0, ends))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::fs::File;
    use std::io::Cursor;
    use std::io::Write;

    proptest! {
        #[test]
        fn the_last_lines_are_found(lines in proptest::collection::vec("[a-z]{0,8}", 0..50), wanted in 0u64..60) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let (at, has) = last_lines(&mut Cursor::new(text.as_bytes()), wanted).unwrap();
            let keep = usize::try_from(wanted).unwrap().min(lines.len());
            let expected: String = lines[lines.len() - keep..].iter().map(|line| format!("{line}\n")).collect();
            prop_assert_eq!(&text[usize::try_from(at).unwrap()..], expected);
            prop_assert_eq!(has, keep as u64);
        }
    }

    #[test]
    fn chunks_do_not_matter() {
        let text = format!("{}\nlast\n", "x".repeat(3 * CHUNK));
        assert_eq!(last_lines(&mut Cursor::new(text.as_bytes()), 1).unwrap(), (3 * CHUNK as u64 + 1, 1));
        assert_eq!(last_lines(&mut Cursor::new(text.as_bytes()), 2).unwrap(), (0, 2));
    }

    #[test]
    fn rotated_files_are_read_before_the_current_one() {
        let dir = tempfile::tempdir().unwrap();
        let (held, log) = (Arc::new(HostDir::open(dir.path()).unwrap()), dir.path().join("0.log"));
        let mut packed = flate2::write::GzEncoder::new(
            File::create(dir.path().join("0.log.20260101-000000.gz")).unwrap(),
            flate2::Compression::fast(),
        );
        packed.write_all(b"a\nb\n").unwrap();
        packed.finish().unwrap();
        std::fs::write(dir.path().join("0.log.20260102-000000"), "c\nd\n").unwrap();
        std::fs::write(dir.path().join("0.log.20260103-000000.gz.tmp"), "?").unwrap();
        std::fs::write(dir.path().join("1.log.20260102-000000"), "other\n").unwrap();
        std::fs::write(&log, "e\n").unwrap();
        let read = |lines| {
            let mut all = rotated(&held, OsStr::new("0.log"));
            all.push(Segment::whole(&held, "0.log"));
            let mut text = String::new();
            for segment in tail(all, lines).unwrap() {
                segment.open().unwrap().read_to_string(&mut text).unwrap();
            }
            text.replace('\n', "")
        };
        assert_eq!(read(None), "abcde");
        assert_eq!(read(Some(0)), "");
        assert_eq!(read(Some(1)), "e");
        assert_eq!(read(Some(3)), "cde");
        assert_eq!(read(Some(4)), "bcde");
        assert_eq!(read(Some(9)), "abcde");
    }
}
