//! Crashes in a row: lazy writes are lost, and then the first batch behind them is torn.

use super::*;
use crate::embedded::journal;
use std::{fs, path::PathBuf};

/// The newest journal, its bytes, and where each of its batches begins.
fn batches(dir: &Path) -> (PathBuf, Vec<u8>, Vec<usize>) {
    let path = journal::all(dir).unwrap().pop().unwrap().1;
    let bytes = journal::read(&path).unwrap();
    let (mut at, mut starts) = (0, Vec::new());
    while let Some(batch) = journal::batch(&bytes[at..]) {
        starts.push(at);
        at += batch.length;
    }
    (path, bytes, starts)
}

/// The files of a store that is open, as a killed process leaves them.
fn killed(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let from = format!("{}/.", dir.display());
    assert!(
        std::process::Command::new("cp").arg("-a").arg(from).arg(copy.path()).status().unwrap().success()
    );
    copy
}

/// A store that went on behind lazy writes that a crash took, with the revision it went on from.
async fn behind_lost_writes() -> (tempfile::TempDir, Revision) {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    put(&store, "/registry/kept", 0, "1").await.unwrap();
    let reserving = lazy(&store, "/registry/reserving", 0, "1").await;
    for n in 0..3 {
        lazy(&store, &format!("/registry/lost/{n}"), 0, "1").await;
    }
    let copy = killed(dir.path());
    drop(store);
    let (path, bytes, starts) = batches(copy.path());
    fs::write(path, &bytes[..starts[starts.len() - 3]]).unwrap();
    let again = Embedded::open(copy.path()).unwrap().revision().await.unwrap();
    assert!(again > reserving + 3, "{again} was not shown to anybody");
    (copy, again)
}

#[tokio::test]
async fn the_first_batch_behind_lost_writes_may_be_torn() {
    for (hole, durability) in [
        (false, Durability::Sync),
        (true, Durability::Sync),
        (false, Durability::Lazy),
        (true, Durability::Lazy),
    ] {
        let (dir, again) = behind_lost_writes().await;
        let mark = fs::read(dir.path().join("synced")).unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        let value = Some(
            (1..2000u64)
                .map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
                .collect::<String>()
                .into(),
        );
        let write = Write { key: "/registry/torn".to_owned(), expect: 0, value, durability, fence: None };
        assert_eq!(store.write(write).await.unwrap(), again + 1);
        let copy = killed(dir.path());
        drop(store);
        let (path, mut bytes, starts) = batches(copy.path());
        let last = *starts.last().unwrap();
        match hole {
            true => bytes[last / 512 * 512 + 512..last / 512 * 512 + 1024].fill(0),
            false => bytes.truncate(last + 20),
        }
        fs::write(&path, &bytes).unwrap();
        // It was acknowledged: then it must not be lost.
        let refused = Embedded::open(copy.path()).err().unwrap().to_string();
        assert!(refused.contains(&format!("at byte {last}: ")), "{refused}");
        assert!(refused.contains(&format!("revisions up to {} were acknowledged", again + 1)), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), bytes, "a store that is not opened is not changed");
        // The crash came before the sync.
        fs::write(copy.path().join("synced"), &mark).unwrap();
        let store = Embedded::open(copy.path()).unwrap();
        let found = store.range("/registry/", None).await.unwrap();
        assert_eq!((show(&found.0, "/registry/"), found.1), ("kept=1 reserving=1".to_owned(), again));
        assert_eq!(put(&store, "/registry/next", 0, "1").await.unwrap(), again + 1);
    }
}

#[tokio::test]
async fn damage_in_the_middle_is_refused_behind_lost_writes_too() {
    let (dir, _) = behind_lost_writes().await;
    let store = Embedded::open(dir.path()).unwrap();
    for n in 0..4 {
        put(&store, &format!("/registry/{n}"), 0, "1").await.unwrap();
    }
    drop(store);
    let (path, bytes, starts) = batches(dir.path());
    for batch in 0..starts.len() - 2 {
        let mut bytes = bytes.clone();
        bytes[starts[batch] + 30] ^= 4;
        fs::write(&path, &bytes).unwrap();
        fs::remove_file(dir.path().join("synced")).unwrap_or_default();
        let refused = Embedded::open(dir.path()).err().unwrap().to_string();
        assert!(refused.contains(&format!("at byte {}: ", starts[batch])), "{batch}: {refused}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_journal_that_only_removes_history_says_nothing_about_what_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let mut at = 0;
    for n in 0..3 {
        at = put(&store, "/registry/a", at, &n.to_string()).await.unwrap();
    }
    store.compact(at - 1).await.unwrap();
    drop(store);
    let (_, bytes, starts) = batches(dir.path());
    let compaction = journal::batch(&bytes[*starts.last().unwrap()..]).unwrap();
    assert_eq!((compaction.revision, compaction.reached), (0, at - 1));
}
