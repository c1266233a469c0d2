#![allow(clippy::unwrap_used)]
use super::*;
use bytes::Bytes;
use coracle_store::KeyValue;

fn header() -> Header {
    Header {
        made_by: "coracle 0.1.0".to_owned(),
        time: "2026-11-17T12:00:00Z".parse().unwrap(),
        revision: 77,
        datastore: "embedded".to_owned(),
        cluster: Cluster { ca_hash: "sha256:00".to_owned(), uid: "u".to_owned() },
    }
}

fn keys(count: u64, size: usize) -> Vec<KeyValue> {
    // Not all alike, so that they do not shrink to nothing.
    let value = |n: u64| (0..size).map(|at| (n as usize * 31 + at * at) as u8).collect::<Vec<_>>();
    let one = |n| KeyValue {
        key: format!("/registry/{n:05}"),
        value: Bytes::from(value(n)),
        created: n,
        modified: n + 1,
    };
    (1..=count).map(one).collect()
}

fn files() -> Vec<File> {
    [("ca.crt", "certificate"), ("ca.key", "key")]
        .map(|(name, text)| File { name: name.to_owned(), bytes: text.into() })
        .into()
}

fn written(keys: &[KeyValue], files: &[File], version: u32) -> Vec<u8> {
    let (mut encoder, begin) = Encoder::with_version(&header(), version).unwrap();
    let mut out = Vec::from(begin);
    out.extend(encoder.files(files).unwrap());
    for one in keys {
        if encoder.is_full(one) {
            out.extend(encoder.close_chunk().unwrap());
        }
        encoder.key(one).unwrap();
    }
    out.extend(encoder.finish().unwrap().0);
    out
}

fn read(bytes: &[u8]) -> Result<(Vec<File>, Vec<KeyValue>, usize), FormatError> {
    let mut reader = Reader::open(bytes)?;
    let (mut files, mut keys, mut chunks) = (Vec::new(), Vec::new(), 0);
    while let Some(part) = reader.next_part()? {
        chunks += 1;
        match part {
            Part::Files(more) => files.extend(more),
            Part::Keys(more) => keys.extend(more),
        }
    }
    assert_eq!(reader.counts().keys, keys.len() as u64);
    Ok((files, keys, chunks))
}

#[test]
fn what_was_written_is_read() {
    for (count, size, chunks) in [(0, 0, 1), (3, 10, 2), (5, 900_000, 6), (2, 3 << 20, 3)] {
        let keys = keys(count, size);
        let bytes = written(&keys, &files(), VERSION);
        let found = read(&bytes).unwrap();
        assert_eq!((found.0, found.1, found.2), (files(), keys, chunks));
        assert_eq!(Reader::open(&bytes[..]).unwrap().header(), &header());
    }
}

#[test]
fn every_truncation_and_every_changed_byte_is_found() {
    let bytes = written(&keys(40, 50), &files(), VERSION);
    for end in 0..bytes.len() {
        match read(&bytes[..end]).unwrap_err() {
            FormatError::NotABackup => assert!(end < MAGIC.len()),
            FormatError::Truncated(at) => assert_eq!(at, end as u64),
            other => panic!("{end}: {other}"),
        }
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(read(&changed).is_err(), "byte {at}");
    }
    let more = [&bytes[..], b"x"].concat();
    assert!(matches!(
        read(&more),
        Err(FormatError::Damaged { what: "there is something behind the end", .. })
    ));
}

#[test]
fn a_newer_format_and_other_files_are_refused() {
    let newer = written(&keys(1, 1), &[], VERSION + 1);
    assert_eq!(
        read(&newer).unwrap_err().to_string(),
        "the backup has format 2; this program reads formats up to 1"
    );
    assert!(matches!(read(b""), Err(FormatError::NotABackup)));
    assert!(matches!(read(&[7; 4000]), Err(FormatError::NotABackup)));
}

#[test]
fn parts_that_cannot_be_in_a_backup_are_refused() {
    let (mut encoder, _) = Encoder::begin(&header()).unwrap();
    for name in ["", "../ca.key", "a/b", ".hidden", "CA.key", &"x".repeat(65)] {
        let file = File { name: name.to_owned(), bytes: Vec::new() };
        assert!(matches!(encoder.files(&[file]), Err(FormatError::FileName(_))), "{name}");
    }
    let large = &keys(1, MAX_CHUNK)[0];
    assert!(matches!(encoder.key(large), Err(FormatError::TooLarge(_))));
}

/// Lengths in a chunk that lead beyond it.
#[test]
fn records_that_leave_their_chunk_are_refused() {
    let mut plain = Vec::new();
    record::put_key(&keys(1, 10)[0], &mut plain).unwrap();
    assert_eq!(record::keys(plain.clone().into()).unwrap(), keys(1, 10));
    for at in 0..8 {
        let mut changed = plain.clone();
        changed[at] = 255;
        assert_eq!(record::keys(changed.into()), None, "{at}");
    }
    let mut plain = Vec::new();
    record::put_file(&files()[0], &mut plain).unwrap();
    for at in 0..8 {
        let mut changed = plain.clone();
        changed[at] = 255;
        assert_eq!(record::files(changed.into()), None, "{at}");
    }
}
