//! Tests that every implementation of `Store` must pass.

#![allow(clippy::unwrap_used)]

use super::{
    Change, Durability, Export, Fence, KeyValue, Revision, Store, StoreError, Watch, WatchItem, Write,
};
use futures::{StreamExt, TryStreamExt};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// Runs all on an empty store.
pub(super) async fn check(store: Arc<dyn Store>) {
    compare_and_swap(&*store).await;
    fences(&*store).await;
    exports(&*store).await;
    ranges_at_a_revision(&*store).await;
    watches_in_order(&*store).await;
    concurrent_writers(store.clone()).await;
    compaction(&*store).await;
}

pub(super) async fn put(
    store: &dyn Store,
    key: &str,
    expect: Revision,
    value: &str,
) -> Result<Revision, StoreError> {
    let value = Some(value.to_owned().into());
    store.write(Write { key: key.to_owned(), expect, value, durability: Durability::Sync, fence: None }).await
}

pub(super) async fn delete(store: &dyn Store, key: &str, expect: Revision) -> Result<Revision, StoreError> {
    store
        .write(Write { key: key.to_owned(), expect, value: None, durability: Durability::Sync, fence: None })
        .await
}

/// `key=value` of each, without the prefix.
pub(super) fn show(found: &[KeyValue], prefix: &str) -> String {
    let one =
        |kv: &KeyValue| format!("{}={}", &kv.key[prefix.len()..], std::str::from_utf8(&kv.value).unwrap());
    found.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Ends a test that hangs: machines may be busy.
pub(super) const HANGS: Duration = Duration::from_secs(60);

pub(super) async fn next_change(watch: &mut Watch) -> Change {
    let next = async {
        loop {
            if let WatchItem::Change(change) = watch.next().await.unwrap().unwrap() {
                return change;
            }
        }
    };
    tokio::time::timeout(HANGS, next).await.expect("a change comes")
}

async fn compare_and_swap(store: &dyn Store) {
    let key = "/registry/cas/a";
    assert_eq!(store.get(key).await.unwrap(), None);
    assert!(matches!(delete(store, key, 0).await, Err(StoreError::Conflict(None))));
    assert!(matches!(put(store, key, 7, "x").await, Err(StoreError::Conflict(None))));
    let created = put(store, key, 0, "one").await.unwrap();
    let kv = |value: &str, modified| {
        Some(KeyValue { key: key.to_owned(), value: value.to_owned().into(), created, modified })
    };
    match put(store, key, 0, "two").await {
        Err(StoreError::Conflict(found)) => assert_eq!(found, kv("one", created)),
        other => panic!("{other:?}"),
    }
    let modified = put(store, key, created, "two").await.unwrap();
    assert!(modified > created);
    assert_eq!(store.get(key).await.unwrap(), kv("two", modified));
    assert!(matches!(delete(store, key, created).await, Err(StoreError::Conflict(Some(_)))));
    let deleted = delete(store, key, modified).await.unwrap();
    assert!(deleted > modified);
    assert_eq!(store.get(key).await.unwrap(), None);
    let again = put(store, key, 0, "three").await.unwrap();
    assert_eq!(store.get(key).await.unwrap().unwrap().created, again);
    assert!(again > deleted && store.revision().await.unwrap() >= again);
}

/// A write with a fence happens only while the fence is at its revision, whether or not the key itself is.
async fn fences(store: &dyn Store) {
    let write = |expect, modified| Write {
        key: "/registry/fenced".to_owned(),
        expect,
        value: Some("x".into()),
        durability: Durability::Sync,
        fence: Some(Fence { key: "/coracle/fences/a".to_owned(), modified }),
    };
    let none = store.write(write(0, 0)).await.unwrap();
    let first = put(store, "/coracle/fences/a", 0, "one").await.unwrap();
    let written = store.write(write(none, first)).await.unwrap();
    assert!(matches!(store.write(write(none, first)).await, Err(StoreError::Conflict(Some(_)))));
    let second = put(store, "/coracle/fences/a", first, "two").await.unwrap();
    for (expect, modified) in [(written, first), (none, first), (written, 0), (written, second + 7)] {
        let refused = store.write(write(expect, modified)).await;
        assert!(
            matches!(&refused, Err(StoreError::Fenced(key)) if key == "/coracle/fences/a"),
            "{refused:?}"
        );
    }
    let deletion = Write { value: None, ..write(written, first) };
    assert!(matches!(store.write(deletion).await, Err(StoreError::Fenced(_))));
    assert_eq!(store.get("/registry/fenced").await.unwrap().unwrap().modified, written);
    store.write(write(written, second)).await.unwrap();
    // Who follows objects does not wait for the revisions of other keys.
    let mut watch = store.watch("/registry/", second).await.unwrap();
    next_change(&mut watch).await;
    let third = put(store, "/coracle/fences/a", second, "three").await.unwrap();
    let told = tokio::time::timeout(HANGS, async {
        loop {
            if let WatchItem::Progress(revision) = watch.next().await.unwrap().unwrap() {
                return revision;
            }
        }
    });
    assert!(told.await.unwrap() >= third);
}

async fn exports(store: &dyn Store) {
    let before = put(store, "/registry/export/a", 0, "1").await.unwrap();
    put(store, "/registry/export/b", 0, "1").await.unwrap();
    let Export { revision, keys } = store.export("/registry/export/").await.unwrap();
    put(store, "/registry/export/a", before, "2").await.unwrap();
    put(store, "/registry/export/c", 0, "1").await.unwrap();
    let found: Vec<_> = keys.try_collect().await.unwrap();
    assert_eq!(show(&found, "/registry/export/"), "a=1 b=1");
    assert_eq!((found[0].created, found[0].modified, revision), (before, before, before + 1));
}

async fn ranges_at_a_revision(store: &dyn Store) {
    let prefix = "/registry/range/";
    let before = store.revision().await.unwrap();
    let b = put(store, "/registry/range/b", 0, "1").await.unwrap();
    let a = put(store, "/registry/range/a", 0, "1").await.unwrap();
    put(store, "/registry/range-not", 0, "1").await.unwrap();
    let b2 = put(store, "/registry/range/b", b, "2").await.unwrap();
    let a2 = delete(store, "/registry/range/a", a).await.unwrap();
    let a3 = put(store, "/registry/range/a", 0, "3").await.unwrap();
    for (at, want) in [
        (Some(before), ""),
        (Some(b), "b=1"),
        (Some(a), "a=1 b=1"),
        (Some(b2), "a=1 b=2"),
        (Some(a2), "b=2"),
        (Some(a3), "a=3 b=2"),
        (None, "a=3 b=2"),
    ] {
        let (found, revision) = store.range(prefix, at).await.unwrap();
        assert_eq!(show(&found, prefix), want, "{at:?}");
        assert_eq!(revision, at.unwrap_or(a3));
    }
    let (found, _) = store.range(prefix, Some(b2)).await.unwrap();
    let revisions: Vec<_> = found.iter().map(|kv| (kv.created, kv.modified)).collect();
    assert_eq!(revisions, [(a, a), (b, b2)]);
    assert!(matches!(store.range(prefix, Some(a3 + 1000)).await, Err(StoreError::Future(_))));
}

async fn watches_in_order(store: &dyn Store) {
    let prefix = "/registry/watch/";
    let before = store.revision().await.unwrap();
    let a = put(store, "/registry/watch/a", 0, "1").await.unwrap();
    put(store, "/registry/watch-not", 0, "1").await.unwrap();
    let mut all = store.watch(prefix, before).await.unwrap();
    let mut new = store.watch(prefix, a).await.unwrap();
    let a2 = put(store, "/registry/watch/a", a, "2").await.unwrap();
    let gone = delete(store, "/registry/watch/a", a2).await.unwrap();
    let again = put(store, "/registry/watch/a", 0, "3").await.unwrap();
    let want = [(a, Some("1"), a), (a2, Some("2"), a), (gone, None, a), (again, Some("3"), again)];
    for (watch, want) in [(&mut all, &want[..]), (&mut new, &want[1..])] {
        for (revision, value, created) in want {
            let change = next_change(watch).await;
            let seen = change.value.as_deref().map(|value| std::str::from_utf8(value).unwrap());
            assert_eq!((change.revision, seen, change.created), (*revision, *value, *created));
            assert_eq!(change.key, "/registry/watch/a");
        }
    }
}

/// Writers that count up one key each and one that they share; a watcher that must see all of it once and in order.
async fn concurrent_writers(store: Arc<dyn Store>) {
    const WRITERS: usize = 16;
    const EACH: u64 = 40;
    let prefix = "/registry/many/";
    let mut watch = store.watch(prefix, store.revision().await.unwrap()).await.unwrap();
    let write = |store: Arc<dyn Store>, writer: usize| async move {
        let own = format!("/registry/many/own-{writer:02}");
        let mut at = 0;
        for n in 0..EACH {
            let revision = put(&*store, &own, at, &n.to_string()).await.unwrap();
            assert!(revision > at);
            at = revision;
            let mut expect = 0;
            let mut value = 1;
            while let Err(error) = put(&*store, "/registry/many/shared", expect, &value.to_string()).await {
                let StoreError::Conflict(Some(now)) = error else { panic!("{error:?}") };
                expect = now.modified;
                value = std::str::from_utf8(&now.value).unwrap().parse::<u64>().unwrap() + 1;
            }
        }
    };
    let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer))).collect();
    let (mut last, mut counts) = (0, HashMap::<String, u64>::new());
    for _ in 0..WRITERS as u64 * EACH * 2 {
        let change = next_change(&mut watch).await;
        assert!(change.revision > last, "{} after {last}", change.revision);
        last = change.revision;
        *counts.entry(change.key).or_default() += 1;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(counts.len(), WRITERS + 1);
    assert_eq!(counts["/registry/many/shared"], WRITERS as u64 * EACH);
    let shared = store.get("/registry/many/shared").await.unwrap().unwrap();
    assert_eq!(shared.value, (WRITERS as u64 * EACH).to_string());
    assert_eq!(store.revision().await.unwrap(), last);
}

async fn compaction(store: &dyn Store) {
    let prefix = "/registry/compact/";
    let a = put(store, "/registry/compact/a", 0, "1").await.unwrap();
    let b = put(store, "/registry/compact/b", 0, "1").await.unwrap();
    let a2 = put(store, "/registry/compact/a", a, "2").await.unwrap();
    let gone = delete(store, "/registry/compact/b", b).await.unwrap();
    let a3 = put(store, "/registry/compact/a", a2, "3").await.unwrap();
    let mut old = store.watch(prefix, a2).await.unwrap();
    store.compact(a2).await.unwrap();
    assert!(matches!(store.range(prefix, Some(b)).await, Err(StoreError::Compacted(_))));
    for (at, want) in [(a2, "a=2 b=1"), (gone, "a=2"), (a3, "a=3")] {
        assert_eq!(show(&store.range(prefix, Some(at)).await.unwrap().0, prefix), want);
    }
    assert_eq!(next_change(&mut old).await.revision, gone);
    // Refused, or ends with the error.
    let refused = match store.watch(prefix, a).await {
        Err(error) => error,
        Ok(mut watch) => watch.next().await.unwrap().unwrap_err(),
    };
    assert!(matches!(refused, StoreError::Compacted(_)), "{refused:?}");
    store.compact(a3).await.unwrap();
    store.compact(a2).await.unwrap();
    let (found, revision) = store.range(prefix, None).await.unwrap();
    assert_eq!((show(&found, prefix).as_str(), revision), ("a=3", a3));
    assert!(matches!(store.compact(a3 + 1000).await, Err(StoreError::Future(_))));
    let mut live = store.watch(prefix, a3).await.unwrap();
    let a4 = put(store, "/registry/compact/a", a3, "4").await.unwrap();
    assert_eq!(next_change(&mut live).await.revision, a4);
}
