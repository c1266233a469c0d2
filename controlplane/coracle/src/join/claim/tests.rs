#![allow(clippy::unwrap_used)]
use super::*;
use coracle_pki::Pki;
use coracle_store::{Datastore, open};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

async fn store() -> (TempDir, Arc<dyn Store>) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&Datastore::Embedded, dir.path()).await.unwrap();
    (dir, store)
}

fn keys() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    Pki::ensure(dir.path(), &[], Duration::from_secs(3600)).unwrap();
    dir
}

fn claimer<'a>(store: &'a Arc<dyn Store>, dir: &'a TempDir) -> Claimer<'a> {
    Claimer { store: &**store, dir: dir.path(), encryption: None }
}

/// A server with the keys of another, and its sealing key.
fn copied(from: &TempDir) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

#[tokio::test]
async fn the_first_server_stores_its_keys_once() {
    let (_dir, store) = store().await;
    let first = keys();
    let sealing = claimer(&store, &first).publish().await.unwrap().unwrap();
    let stored = store.get(KEYS).await.unwrap().unwrap();
    assert_eq!(sealing.open(&stored.value).unwrap(), ClusterKeys::collect(first.path()).unwrap());
    let again = claimer(&store, &first);
    again.check_new().await.unwrap();
    again.check().await.unwrap();
    assert_eq!(again.publish().await.unwrap(), Some(sealing));
    assert_eq!(store.get(KEYS).await.unwrap().unwrap(), stored, "nothing is written again");
}

/// The files of a sealing key: the one of a cluster, and the pending one.
fn files(dir: &TempDir) -> (Option<SealingKey>, Option<SealingKey>) {
    (SealingKey::read(dir.path()).unwrap(), SealingKey::read_pending(dir.path()).unwrap())
}

/// What a first start that was killed has left: `store` begins empty.
async fn continues(store: &Arc<dyn Store>, dir: &TempDir) {
    let first = claimer(store, dir);
    first.check_new().await.unwrap();
    first.check().await.unwrap();
    let sealing = first.publish().await.unwrap().unwrap();
    let stored = store.get(KEYS).await.unwrap().unwrap();
    assert_eq!(sealing.open(&stored.value).unwrap(), ClusterKeys::collect(dir.path()).unwrap());
    assert_eq!(files(dir), (Some(sealing), None));
}

#[tokio::test]
async fn a_check_of_an_empty_store_writes_nothing() {
    let (_dir, store) = store().await;
    let first = keys();
    let (revision, checked) = (store.revision().await.unwrap(), claimer(&store, &first));
    checked.check().await.unwrap();
    assert_eq!(checked.encryption_of_cluster().await.unwrap(), ClusterEncryption::NoCluster);
    assert_eq!((files(&first), store.revision().await.unwrap()), ((None, None), revision));
    continues(&store, &first).await;
}

#[tokio::test]
async fn a_first_start_continues_with_its_pending_key() {
    let (_dir, store) = store().await;
    let first = keys();
    let pending = SealingKey::ensure_pending(first.path()).unwrap();
    claimer(&store, &first).check().await.unwrap();
    assert_eq!(files(&first), (None, Some(pending.clone())), "a check confirms nothing");
    continues(&store, &first).await;
    assert_eq!(files(&first).0, Some(pending), "the one that an answer that was lost may have stored");
}

#[tokio::test]
async fn a_first_start_that_stored_the_keys_only_confirms_the_sealing_key() {
    let (_dir, store) = store().await;
    let first = keys();
    let sealing = claimer(&store, &first).publish().await.unwrap().unwrap();
    // As it was before the rename.
    let (path, pending) = (first.path().join("sealing.key"), first.path().join("sealing.key.pending"));
    std::fs::rename(path, pending).unwrap();
    let (again, revision) = (claimer(&store, &first), store.revision().await.unwrap());
    assert_eq!(again.encryption_of_cluster().await.unwrap(), ClusterEncryption::Known(None));
    continues(&store, &first).await;
    assert_eq!(files(&first).0, Some(sealing));
    assert_eq!(store.revision().await.unwrap(), revision, "nothing is written again");
}

#[tokio::test]
async fn a_pending_key_that_did_not_seal_the_keys_is_not_confirmed() {
    let (_dir, store) = store().await;
    let first = keys();
    // Servers with the same keys that start together: the other one was faster.
    let second = copied(&first);
    let pending = SealingKey::ensure_pending(second.path()).unwrap();
    claimer(&store, &first).publish().await.unwrap();
    assert_eq!(claimer(&store, &second).publish().await.unwrap(), None);
    assert_eq!(files(&second), (None, Some(pending)));
}

#[tokio::test]
async fn servers_of_other_clusters_and_without_keys_are_refused() {
    let (_dir, store) = store().await;
    let (first, other, new) = (keys(), keys(), tempfile::tempdir().unwrap());
    claimer(&store, &new).check_new().await.unwrap();
    claimer(&store, &first).publish().await.unwrap();
    let stored = store.get(KEYS).await.unwrap();
    assert!(matches!(claimer(&store, &new).check_new().await, Err(ClaimError::NotJoined(_))));
    for _ in 0..2 {
        let other = claimer(&store, &other);
        assert!(matches!(other.check().await, Err(ClaimError::OtherCluster { .. })));
        assert!(matches!(other.publish().await, Err(ClaimError::OtherCluster { .. })));
        // With a sealing key of its own as well.
        SealingKey::generate().unwrap().write(other.dir).unwrap();
    }
    assert_eq!(store.get(KEYS).await.unwrap(), stored);
}

#[tokio::test]
async fn copied_keys_work_without_the_sealing_key() {
    let (_dir, store) = store().await;
    let first = keys();
    claimer(&store, &first).publish().await.unwrap();
    let second = copied(&first);
    assert!(claimer(&store, &second).publish().await.unwrap().is_some());
    std::fs::remove_file(second.path().join("sealing.key")).unwrap();
    assert_eq!(claimer(&store, &second).publish().await.unwrap(), None);
    assert!(!second.path().join("sealing.key").exists());
}

#[tokio::test]
async fn a_rotated_ca_is_stored_and_other_servers_take_it_over() {
    let (_dir, store) = store().await;
    let first = keys();
    claimer(&store, &first).publish().await.unwrap();
    // One that is there all the time, and one that comes back when it is over.
    let (second, late) = (copied(&first), copied(&first));
    let collected = |dir: &TempDir| ClusterKeys::collect(dir.path()).unwrap();
    let stored = async || SealedInfo::of(&store.get(KEYS).await.unwrap().unwrap().value).unwrap().ca_hash;
    for step in [
        (|keys: ClusterKeys| keys.prepare("coracle-ca-2").unwrap()) as fn(_) -> ClusterKeys,
        |keys| keys.switch().unwrap(),
        |keys| keys.finish().unwrap(),
    ] {
        step(collected(&first)).write_ca(first.path()).unwrap();
        claimer(&store, &first).publish().await.unwrap();
        assert_eq!(stored().await, collected(&first).ca_hash());
        claimer(&store, &second).publish().await.unwrap();
        assert_eq!(collected(&second), collected(&first));
    }
    claimer(&store, &late).check().await.unwrap();
    assert_eq!(collected(&late), collected(&first));
}

#[tokio::test]
async fn a_ca_that_does_not_trust_the_one_before_is_of_another_cluster() {
    let (_dir, store) = store().await;
    let first = keys();
    claimer(&store, &first).publish().await.unwrap();
    let stored = store.get(KEYS).await.unwrap();
    let new = keys();
    let rotated =
        ClusterKeys::collect(new.path()).unwrap().prepare("coracle-ca-2").unwrap().switch().unwrap();
    rotated.write_ca(new.path()).unwrap();
    for file in ["ca.crt", "ca.key"] {
        std::fs::copy(new.path().join(file), first.path().join(file)).unwrap();
    }
    assert!(matches!(claimer(&store, &first).publish().await, Err(ClaimError::OtherCluster { .. })));
    assert_eq!(store.get(KEYS).await.unwrap(), stored);
}

#[tokio::test]
async fn encryption_comes_from_the_server_with_the_flag() {
    let (_dir, store) = store().await;
    let first = keys();
    let flag = |contents: &str| Claimer {
        encryption: Some(Some(contents.as_bytes().to_vec())),
        ..claimer(&store, &first)
    };
    flag("one").publish().await.unwrap();
    let second = copied(&first);
    let file = || std::fs::read_to_string(second.path().join(ENCRYPTION)).ok();
    assert_eq!(file(), None, "the first server has it where the flag says");
    claimer(&store, &second).check().await.unwrap();
    assert_eq!(file().as_deref(), Some("one"));
    flag("two").publish().await.unwrap();
    claimer(&store, &second).publish().await.unwrap();
    assert_eq!(file().as_deref(), Some("two"), "the one without the flag changes nothing in the store");
    Claimer { encryption: Some(None), ..claimer(&store, &first) }.publish().await.unwrap();
    claimer(&store, &second).check().await.unwrap();
    assert_eq!(file(), None);
}
