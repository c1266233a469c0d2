#![allow(clippy::unwrap_used)]

// Disks that fail.
mod faults;
// Crashes that leave the end of a journal torn.
mod torn;

use super::*;
use crate::{
    Durability, WatchItem,
    conformance_tests::{self, delete, next_change, put, show},
};
use coracle_trace::Stage;
use futures::StreamExt;

async fn lazy(store: &dyn Store, key: &str, expect: Revision, value: &str) -> Revision {
    let value = Some(value.to_owned().into());
    store
        .write(Write { key: key.to_owned(), expect, value, durability: Durability::Lazy, fence: None })
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_reads_it() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    drop(Embedded::open(&path).unwrap());
    assert_eq!(mode(), 0o700);
    // One that an earlier version made.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    drop(Embedded::open(&path).unwrap());
    assert_eq!(mode(), 0o700);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behaves() {
    let dir = tempfile::tempdir().unwrap();
    conformance_tests::check(Arc::new(Embedded::open(dir.path()).unwrap())).await;
    // And still knows it all.
    behaviour_after_reopen(dir.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_with_synced_writes_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::for_tests();
    let store = Embedded::recording(dir.path(), recorder).unwrap();
    lazy(&store, "/registry/leases/a", 0, "1").await;
    let revision = put(&store, "/registry/pods/a", 0, "1").await.unwrap();
    put(&store, "/registry/pods/a", 0, "1").await.unwrap_err();
    let mut found = Vec::new();
    let read = recorder.read(&mut |record, details, _| found.push((*record, details.copied())));
    recorder.release(read);
    let [(batch, Some(times))] = found.as_slice() else { panic!("one batch: {found:?}") };
    assert_eq!((batch.stage, batch.revision), (Stage::StoreBatch, revision));
    assert!(times.mark(0).is_some() && times.mark(0) <= times.mark(1), "{times:?}");
}

async fn behaviour_after_reopen(path: &Path) {
    let store = Embedded::open(path).unwrap();
    let prefix = "/registry/compact/";
    assert_eq!(show(&store.range(prefix, None).await.unwrap().0, prefix), "a=4");
}

#[tokio::test]
async fn revisions_go_on_after_a_restart_also_when_the_last_write_was_a_compacted_delete() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let a = put(&store, "/registry/a", 0, "1").await.unwrap();
    let gone = delete(&store, "/registry/a", a).await.unwrap();
    store.compact(gone).await.unwrap();
    drop(store);
    let store = Embedded::open(dir.path()).unwrap();
    assert_eq!(store.revision().await.unwrap(), gone);
    assert_eq!(store.range("/", None).await.unwrap(), (vec![], gone));
    assert!(put(&store, "/registry/a", 0, "2").await.unwrap() > gone);
}

#[tokio::test]
async fn history_outlives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let a = put(&store, "/registry/a", 0, "1").await.unwrap();
    let a2 = lazy(&store, "/registry/a", a, "2").await;
    drop(store);
    let store = Embedded::open(dir.path()).unwrap();
    // A clean stop takes no revisions.
    assert_eq!(store.revision().await.unwrap(), a2);
    let mut watch = store.watch("/registry/", a).await.unwrap();
    assert_eq!(next_change(&mut watch).await.revision, a2);
    assert_eq!(show(&store.range("/registry/", Some(a)).await.unwrap().0, "/registry/"), "a=1");
    let a3 = put(&store, "/registry/a", a2, "3").await.unwrap();
    assert_eq!(next_change(&mut watch).await.revision, a3);
}

#[tokio::test]
async fn history_is_bounded_and_old_values_leave_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let mut at = put(&store, "/registry/still", 0, "here").await.unwrap();
    let (first, big) = (at, "x".repeat(64 << 10));
    at = 0;
    for _ in 0..2000 {
        at = lazy(&store, "/registry/big", at, &big).await;
    }
    assert!(matches!(store.range("/", Some(first)).await, Err(StoreError::Compacted(_))));
    let log = store.disk.view().unwrap().changes(0, usize::MAX).unwrap();
    assert!(log.len() < 600, "{}", log.len());
    assert_eq!(log[0].revision, first, "what is still there stays in the log");
    assert_eq!(store.range("/registry/still", None).await.unwrap().0.len(), 1);
}

#[tokio::test]
async fn a_slow_watcher_goes_back_to_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(dir.path()).unwrap());
    let mut watch = store.watch("/registry/", 0).await.unwrap();
    let mut first = put(&*store, "/registry/first", 0, "1").await.unwrap();
    assert_eq!(next_change(&mut watch).await.revision, first);
    for n in 0..3000 {
        lazy(&*store, &format!("/registry/{n}"), 0, "1").await;
    }
    for _ in 0..3000 {
        first += 1;
        assert_eq!(next_change(&mut watch).await.revision, first);
    }
}

#[tokio::test]
async fn a_crash_never_gives_a_seen_revision_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let kept = put(&store, "/registry/a", 0, "1").await.unwrap();
    // The lazy write reserves a range; as if it and its journal had been lost, only the mark is left.
    let marks = Marks { reserved: 500, ..Marks::default() };
    let mut batch = store.disk.batch().unwrap();
    batch.put_marks(&marks);
    batch.commit(true).unwrap();
    drop(store);
    for round in 0..3 {
        let store = Embedded::open(dir.path()).unwrap();
        assert_eq!(store.revision().await.unwrap(), 500 + round.min(1));
        assert!(matches!(store.watch("/", kept + 1).await.err(), Some(StoreError::Compacted(_))));
        assert!(matches!(store.range("/", Some(499)).await, Err(StoreError::Compacted(_))));
        let mut watch = store.watch("/", kept).await.unwrap();
        if round == 0 {
            // Nobody waits for revisions that are not there.
            assert!(matches!(watch.next().await, Some(Ok(WatchItem::Progress(500)))));
            assert_eq!(put(&store, "/registry/b", 0, "1").await.unwrap(), 501);
        }
        assert_eq!(next_change(&mut watch).await.revision, 501);
    }
}

#[test]
fn only_one_process_opens_it() {
    let dir = tempfile::tempdir().unwrap();
    let _store = Embedded::open(dir.path()).unwrap();
    let second = Embedded::open(dir.path()).err().unwrap();
    assert!(second.to_string().contains("open "), "{second}");
}

#[tokio::test]
async fn damage_that_is_met_while_it_serves_is_told() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let text: String = (1..2000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let tables = dir.path().join("keyspaces/2/tables");
    let mut n = 0;
    while store.disk.view().unwrap().files.log.table_count() == 0 {
        lazy(&store, &format!("/registry/{n:04}"), 0, &text).await;
        n += 1;
    }
    store.flush().await.unwrap();
    store.health().await.unwrap();
    // The engine may still merge tables, and keeps some blocks in memory.
    let mut read = store.range("/", None).await;
    for _ in 0..200 {
        for table in std::fs::read_dir(&tables).unwrap().flatten() {
            let file = std::fs::File::options().write(true).open(table.path()).unwrap();
            file.write_all_at(&[0; 64], 500_000).unwrap();
        }
        read = store.range("/", None).await;
        if read.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(matches!(read, Err(StoreError::Unavailable(Unhealthy::Damaged { .. }))), "{read:?}");
    let named =
        |why: &str| why.contains(&tables.display().to_string()) && why.contains(" is damaged at byte ");
    let why = store.health().await.unwrap_err().to_string();
    assert!(named(&why), "{why}");
    drop(store);
    let refused = Embedded::open(dir.path()).err().unwrap().to_string();
    assert!(named(&refused), "{refused}");
}
