//! Disks that fail under the writer, and what earlier versions left in the files.

use super::*;
use crate::conformance_tests::HANGS;
use std::{
    fs::File,
    ops::Range,
    os::{fd::AsRawFd, unix::fs::FileExt},
    time::Instant,
};

fn writer(path: &Path) -> Writer {
    let (disk, orphans) = Disk::open(path).unwrap();
    let (marks, revision) = recover(&disk, &orphans).unwrap();
    Writer::new(disk, marks, revision)
}

/// Creates the keys in one batch.
fn commit(writer: &mut Writer, keys: Range<u32>, value: &str) -> Vec<Result<Revision, StoreError>> {
    let (mut writes, mut answers) = (Vec::new(), Vec::new());
    for n in keys {
        let (answer, result) = oneshot::channel();
        let (key, value) = (format!("/registry/{n}"), Some(value.to_owned().into()));
        writes.push((Write { key, expect: 0, value, durability: Durability::Sync, fence: None }, answer));
        answers.push(result);
    }
    writer.commit(writes);
    answers.iter_mut().map(|answer| answer.try_recv().unwrap()).collect()
}

/// Makes writes to the open journal fail as on a full disk, until it is opened again.
fn fill(store: &Path) {
    let store = store.canonicalize().unwrap();
    let full = File::options().read(true).write(true).open("/dev/full").unwrap();
    let mut journals = 0;
    for fd in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let path = std::fs::read_link(fd.path()).unwrap_or_default();
        if path.parent() == Some(store.as_path()) && path.extension().is_some_and(|end| end == "jnl") {
            let number: i32 = fd.file_name().to_str().unwrap().parse().unwrap();
            // SAFETY: both descriptors are open, and the engine keeps and closes its own as before; no memory depends on
            // which file is behind it.
            #[allow(unsafe_code)]
            let done = unsafe { libc::dup3(full.as_raw_fd(), number, libc::O_CLOEXEC) };
            assert_eq!(done, number);
            journals += 1;
        }
    }
    assert!(journals > 0, "the engine keeps its journal open");
}

/// Attempts the recovery once.
fn try_again(writer: &mut Writer) {
    let left = writer.recovery.as_ref().map_or(Duration::ZERO, |recovery| recovery.delay());
    std::thread::sleep(left + Duration::from_millis(1));
    writer.recover();
}

fn recovers(writer: &mut Writer) {
    let begun = Instant::now();
    while writer.recovery.is_some() {
        assert!(begun.elapsed() < HANGS, "it does not take writes again");
        try_again(writer);
    }
}

#[test]
fn a_batch_that_failed_is_no_history() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path());
    let first = commit(&mut writer, 0..1, "first").remove(0).unwrap();
    let big = "x".repeat(32 << 10);
    for _ in 0..3 {
        fill(dir.path());
        assert!(commit(&mut writer, 1..301, &big).iter().all(Result::is_err));
        recovers(&mut writer);
        assert_eq!(writer.state.revision, first);
    }
    assert_eq!(writer.state.history.excess(), None);
}

#[test]
fn nothing_is_compacted_beyond_the_newest_revision() {
    let dir = tempfile::tempdir().unwrap();
    let writer = writer(dir.path());
    let (mut marks, mut batch) = (Marks::default(), writer.state.disk.batch().unwrap());
    marks.compact(&mut batch, 99, 5).unwrap();
    assert_eq!(marks.compacted, 5);
}

#[tokio::test]
async fn values_without_a_key_are_removed_if_an_earlier_version_left_them() {
    for no_orphans in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        let a = put(&store, "/registry/a", 0, "1").await.unwrap();
        let a2 = put(&store, "/registry/a", a, "2").await.unwrap();
        let gone = delete(&store, "/registry/a", a2).await.unwrap();
        // As if it had been compacted up to the second put before that was made, and up to the deletion afterwards.
        let mut batch = store.disk.batch().unwrap();
        batch.forget(a2);
        batch.forget(gone);
        batch.put_marks(&Marks { compacted: gone, no_orphans, ..Marks::default() });
        batch.commit(true).unwrap();
        drop(store);
        let opened = Embedded::open(dir.path());
        if no_orphans {
            let refused = opened.err().unwrap().to_string();
            assert!(refused.contains("1 keys are missing in the index"), "{refused}");
            continue;
        }
        let store = opened.unwrap();
        assert!(store.disk.view().unwrap().changes(0, usize::MAX).unwrap().is_empty());
        assert!(store.disk.view().unwrap().marks().unwrap().no_orphans);
        assert_eq!(store.revision().await.unwrap(), gone);
    }
}

/// The log is read in two halves: in either, and where they meet.
#[tokio::test]
async fn a_missing_revision_is_named_wherever_it_was() {
    for missing in [None, Some(1), Some(2), Some(3), Some(4)] {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        let a = put(&store, "/registry/a", 0, "1").await.unwrap();
        let b = put(&store, "/registry/b", 0, "1").await.unwrap();
        let again = put(&store, "/registry/a", a, "2").await.unwrap();
        let gone = delete(&store, "/registry/b", b).await.unwrap();
        let back = put(&store, "/registry/b", 0, "2").await.unwrap();
        put(&store, "/registry/c", 0, "1").await.unwrap();
        let mut batch = store.disk.batch().unwrap();
        let missing = missing.map(|number: usize| [a, b, again, gone, back][number]);
        missing.iter().for_each(|revision| batch.forget(*revision));
        batch.commit(true).unwrap();
        drop(store);
        match (missing, Embedded::open(dir.path())) {
            (None, store) => {
                assert_eq!(store.unwrap().range("/registry/", None).await.unwrap().0.len(), 3);
            }
            (Some(revision), opened) => {
                let refused = opened.err().unwrap().to_string();
                assert!(refused.contains(&format!("revision {revision} is missing")), "{refused}");
            }
        }
    }
}

/// Both are checked at the same time: a table that is damaged, and a journal whose end would be cut off.
#[tokio::test]
async fn a_store_that_is_refused_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    put(&store, "/registry/a", 0, "1").await.unwrap();
    drop(store);
    let journal = journal::all(dir.path()).unwrap().pop().unwrap().1;
    let end = journal::read(&journal).unwrap().len() as u64;
    File::options().write(true).open(&journal).unwrap().write_all_at(b"\x01torn", end).unwrap();
    // As an earlier version left it.
    let mark = dir.path().join("synced");
    std::fs::remove_file(&mark).unwrap();
    let before = std::fs::read(&journal).unwrap();
    let mut tables = std::fs::read_dir(dir.path().join("keyspaces/0/tables")).unwrap();
    let table = tables.next().unwrap().unwrap().path();
    let whole = std::fs::read(&table).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(&table, damaged).unwrap();
    let refused = Embedded::open(dir.path()).err().unwrap().to_string();
    assert!(refused.contains(&format!("{} is damaged at byte ", table.display())), "{refused}");
    assert!(std::fs::read(&journal).unwrap() == before, "the journal is cut");
    assert!(!mark.exists(), "there is a mark of a store that was not opened");
    std::fs::write(&table, whole).unwrap();
    assert!(Embedded::open(dir.path()).unwrap().get("/registry/a").await.unwrap().is_some());
    assert!(mark.exists());
}

#[test]
fn a_full_disk_gets_back_what_a_failed_batch_took() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path());
    let first = commit(&mut writer, 0..1, "first").remove(0).unwrap();
    fill(dir.path());
    assert!(commit(&mut writer, 1..2, "second")[0].is_err());
    let why = writer.recovery.as_ref().map(|recovery| recovery.why.clone());
    assert!(matches!(why, Some(Unhealthy::DiskFull { .. })), "{why:?}");
    // A part of the batch is in the journal, and no other file can be written.
    let journal = journal::all(dir.path()).unwrap().pop().unwrap().1;
    let whole = journal::read(&journal).unwrap();
    let file = File::options().write(true).open(&journal).unwrap();
    file.write_all_at(b"\x01torn", whole.len() as u64).unwrap();
    drop(file);
    let probe = dir.path().join("probe");
    std::fs::create_dir(&probe).unwrap();
    try_again(&mut writer);
    assert!(writer.recovery.is_some());
    assert_eq!(journal::read(&journal).unwrap(), whole, "the end of the journal is still there");
    // Reads go on meanwhile.
    assert_eq!(writer.state.disk.view().unwrap().known().unwrap(), first);
    std::fs::remove_dir(&probe).unwrap();
    recovers(&mut writer);
    assert_eq!(commit(&mut writer, 1..2, "second").remove(0).unwrap(), first + 1);
}

#[tokio::test]
async fn a_write_that_meets_damage_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let a = put(&store, "/registry/a", 0, "1").await.unwrap();
    store.health().await.unwrap();
    store.disk.view().unwrap().files.index.insert("/registry/a", [0u8; 3]).unwrap();
    let refused = put(&store, "/registry/a", a, "2").await;
    assert!(matches!(refused, Err(StoreError::Unavailable(Unhealthy::Damaged { .. }))), "{refused:?}");
    let health = store.health().await;
    assert!(matches!(health, Err(Unhealthy::Damaged { .. })), "{health:?}");
}

#[tokio::test]
async fn health_comes_back_after_an_error_of_the_disk_but_not_after_damage() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let fails = |why: Unhealthy| {
        let read: Result<(), _> = store.disk.read(|_| Err(StoreError::Unavailable(why)));
        assert!(read.is_err());
        assert!(store.disk.health.why().is_some());
    };
    let detail = || "Input/output error".to_owned();
    fails(Unhealthy::Io { detail: detail() });
    store.health().await.unwrap();
    // As long as the files cannot be read it stays.
    let (version, aside) = (dir.path().join("version"), dir.path().join("aside"));
    std::fs::rename(&version, &aside).unwrap();
    fails(Unhealthy::Io { detail: detail() });
    let health = store.health().await;
    assert!(matches!(health, Err(Unhealthy::Io { .. })), "{health:?}");
    std::fs::rename(&aside, &version).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    store.health().await.unwrap();
    fails(Unhealthy::Damaged { detail: detail() });
    for _ in 0..2 {
        let health = store.health().await;
        assert!(matches!(health, Err(Unhealthy::Damaged { .. })), "{health:?}");
    }
}
