#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;

use super::*;
use crate::search::{Question, find};
use crate::testing::{limits, write_record};

fn question(uid: u128) -> Question {
    Question { uid: Some(coracle_trace::Uid(uid)), last: 100, ..Question::default() }
}

/// The revisions of all writes of an object, in order.
fn revisions(keep: &Keep, uid: u128) -> Vec<u64> {
    let found = find(keep, &[], &question(uid)).unwrap();
    let records = found.groups.iter().flat_map(|group| &group.records);
    let mut revisions: Vec<u64> = records.map(|known| known.stored.record.revision).collect();
    revisions.sort_unstable();
    revisions
}

fn append(keep: &Keep, uid: u128, revision: u64) {
    keep.append_records(&[write_record(uid, revision, "update pods default/web")]).unwrap();
}

#[test]
fn blocks_before_a_crash_are_found_wherever_it_cut_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut ends = Vec::new();
    {
        let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
        for revision in 1..=6 {
            append(&keep, 7, revision);
            ends.push(keep.bytes());
        }
    }
    let path = dir.path().join(segment::file_name(1));
    let whole = fs::read(&path).unwrap();
    let end = *ends.last().unwrap() as usize;
    for cut in 0..=end {
        let complete = ends.iter().filter(|end| **end as usize <= cut).count() as u64;
        // As a file that ends there, and as one whose pages after it were not written.
        for rest in [0, 300] {
            let mut bytes = whole[..cut].to_vec();
            bytes.resize(cut + rest, 0);
            fs::write(&path, &bytes).unwrap();
            let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
            assert_eq!(revisions(&keep, 7), (1..=complete).collect::<Vec<_>>(), "cut at {cut}");
            append(&keep, 7, 100);
            let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
            assert_eq!(revisions(&keep, 7).last(), Some(&100), "cut at {cut}");
            assert_eq!(revisions(&keep, 7).len() as u64, complete + 1, "cut at {cut}");
        }
    }
}

#[test]
fn a_damaged_index_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    {
        let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
        (1..=20).for_each(|revision| append(&keep, 7, revision));
        keep.lock().seal().unwrap();
        append(&keep, 7, 21);
    }
    let path = dir.path().join(segment::file_name(1));
    let size = fs::metadata(&path).unwrap().len();
    for cut in [1, 10, 17, 40] {
        OpenOptions::new().write(true).open(&path).unwrap().set_len(size - cut).unwrap();
        let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
        assert_eq!(revisions(&keep, 7), (1..=21).collect::<Vec<_>>());
        assert_eq!(fs::metadata(&path).unwrap().len(), size);
    }
}

#[test]
fn the_oldest_segments_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let keep = Keep::open(dir.path(), limits(512 << 10)).unwrap();
    let text = format!("update pods default/{}", "x".repeat(100));
    for revision in 1..=4000 {
        let uid = u128::from(revision) << 64 | 1;
        keep.append_records(&[write_record(uid, revision, &text)]).unwrap();
        assert!(keep.bytes() <= 512 << 10);
    }
    let first = keep.oldest().unwrap();
    assert!(first > crate::testing::BEGIN + crate::testing::MS);
    let on_disk: u64 =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(on_disk <= (512 + 128) << 10, "{on_disk}");
    assert_eq!(revisions(&keep, 4000 << 64 | 1), [4000]);
    assert!(revisions(&keep, 1 << 64 | 1).is_empty());
}

#[test]
fn old_records_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
    append(&keep, 7, 1);
    keep.lock().seal().unwrap();
    drop(keep);
    let keep = Keep::open(dir.path(), Limits { bytes: 1 << 20, age: Duration::from_secs(3600) }).unwrap();
    assert_eq!(keep.oldest(), None);
    assert_eq!(keep.bytes(), 0);
}

#[test]
fn the_next_segment_that_has_its_age_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
    assert_eq!(keep.due(), None);
    append(&keep, 7, 1);
    assert!(keep.due().is_some_and(|due| due > Duration::from_secs(60) && due <= SEGMENT_AGE));
    keep.lock().seal().unwrap();
    // It is kept for ever.
    assert!(keep.due().is_some_and(|due| due > SEGMENT_AGE));
    let mut record = write_record(7, 2, "update pods default/web");
    record.start = now();
    let dir = tempfile::tempdir().unwrap();
    let age = Duration::from_secs(7200);
    let keep = Keep::open(dir.path(), Limits { bytes: 1 << 20, age }).unwrap();
    keep.append_records(&[record]).unwrap();
    keep.lock().seal().unwrap();
    assert!(keep.due().is_some_and(|due| due > SEGMENT_AGE && due <= age + Duration::from_secs(1)));
}

#[test]
fn a_directory_whose_positions_begin_anew_has_another_id() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Keep::open(dir.path(), limits(1 << 20)).unwrap();
    let empty = open().spool();
    assert_ne!(open().spool(), empty);
    let keep = open();
    append(&keep, 7, 1);
    assert_eq!(open().spool(), keep.spool());
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let error = Keep::open(&dir.path().join("file/spans"), Limits::default()).err().unwrap();
    assert!(error.to_string().contains("file/spans"), "{error}");
}

#[test]
fn after_a_reboot_positions_go_on_behind_those_that_were_lost() {
    let dir = tempfile::tempdir().unwrap();
    let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
    (1..=3).for_each(|revision| append(&keep, 7, revision));
    let delivered = keep.blocks_after(crate::spool::Position::default(), 1 << 20).unwrap().next;
    let spool = keep.spool();
    drop(keep);
    // The disk has only zeroes, and the boot id is another one.
    let path = dir.path().join(segment::file_name(1));
    fs::write(&path, [0; 1000]).unwrap();
    fs::write(dir.path().join("id"), [spool.to_le_bytes().as_slice(), &[1; 16]].concat()).unwrap();
    let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
    assert_eq!(keep.spool(), spool);
    append(&keep, 7, 4);
    let spooled = keep.blocks_after(delivered, 1 << 20).unwrap();
    assert!(!spooled.bytes.is_empty() && spooled.next > delivered);
}
