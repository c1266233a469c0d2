//! Copies a store to another one: a load while the source is written, then corrections of what changed since. The second step
//! compares all keys and values of both, so that it is a verification, too.

use crate::load::{self, Loaded, RESTORE_BUMP};
use crate::{
    Datastore, DatastoreError, Durability, Export, KeyValue, Opening, Revision, Store, StoreError, Write,
    embedded, etcd,
};
use futures::StreamExt;

/// Every key of a store begins with it.
const ALL: &str = "/";

/// What was loaded, and at which revision of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// Number of keys.
    pub keys: u64,
    /// The revision of the source.
    pub revision: Revision,
    /// The greatest revision that the source may have at the end: the target has to continue behind it.
    pub limit: Revision,
}

/// What a comparison found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compared {
    /// Number of keys of the source.
    pub keys: u64,
    /// Number of keys that were corrected in the target.
    pub corrected: u64,
}

/// Loads the newest state of `source` into the target, which must be empty. With `moving`, the source is written meanwhile:
/// the target then skips revisions, so that none is used twice, and watchers list again.
pub async fn load(source: &dyn Store, target: &Opening<'_>, moving: bool) -> Result<Begun, StoreError> {
    let Export { revision, keys } = source.export(ALL).await?;
    let bump = if moving { RESTORE_BUMP } else { 0 };
    let loaded = load::into(target, keys, Loaded { revision, bump }).await?;
    Ok(Begun { keys: loaded.keys, revision, limit: revision + bump })
}

/// Removes what [`load`] has loaded, if the copy is not finished: a server that is started on it would go on with old objects.
/// Nobody may have the target open.
pub async fn remove(target: &Opening<'_>) -> Result<(), StoreError> {
    match target.datastore {
        Datastore::Embedded => embedded::remove(&target.embedded_path()).await,
        Datastore::Etcd(options) => etcd::remove(options).await,
        Datastore::ManagedEtcd => Err(DatastoreError::NotStarted.into()),
    }
}

/// Makes the target hold what the source holds now. Neither may be written by anybody else meanwhile.
pub async fn correct(source: &dyn Store, target: &dyn Store) -> Result<Compared, StoreError> {
    let (mut from, mut to) = (source.export(ALL).await?.keys, target.export(ALL).await?.keys);
    let mut compared = Compared::default();
    let (mut left, mut right) = (next(&mut from).await?, next(&mut to).await?);
    loop {
        let order = match (&left, &right) {
            (None, None) => return Ok(compared),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(left), Some(right)) => left.key.cmp(&right.key),
        };
        let mut correction = None;
        if order.is_le() {
            compared.keys += 1;
        }
        match (order, &left, &right) {
            (std::cmp::Ordering::Less, Some(missing), _) => {
                correction = Some(put(missing, 0));
            }
            (std::cmp::Ordering::Greater, _, Some(removed)) => {
                correction = Some(Write { value: None, ..put(removed, removed.modified) });
            }
            (_, Some(wanted), Some(there)) if wanted.value != there.value => {
                correction = Some(put(wanted, there.modified));
            }
            _ => {}
        }
        if let Some(write) = correction {
            target.write(write).await?;
            compared.corrected += 1;
        }
        if order.is_le() {
            left = next(&mut from).await?;
        }
        if order.is_ge() {
            right = next(&mut to).await?;
        }
    }
}

fn put(wanted: &KeyValue, expect: Revision) -> Write {
    Write {
        key: wanted.key.clone(),
        expect,
        value: Some(wanted.value.clone()),
        durability: Durability::Sync,
        fence: None,
    }
}

/// The next key that is about the cluster, and not about the store that holds it.
async fn next(
    keys: &mut (impl futures::Stream<Item = Result<KeyValue, StoreError>> + Unpin),
) -> Result<Option<KeyValue>, StoreError> {
    while let Some(one) = keys.next().await {
        let one = one?;
        if load::is_loaded(&one.key) {
            return Ok(Some(one));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Datastore, conformance_tests::put, open};
    use coracle_cli::supervise::Supervisor;
    use coracle_trace::Recorder;
    use futures::TryStreamExt;

    fn opening<'a>(dir: &'a std::path::Path, supervisor: &'a Supervisor) -> Opening<'a> {
        Opening { datastore: &Datastore::Embedded, data_dir: dir, supervisor, recorder: Recorder::OFF }
    }

    async fn all(store: &dyn Store) -> Vec<(String, Vec<u8>)> {
        let keys: Vec<_> = store.export("/registry/").await.unwrap().keys.try_collect().await.unwrap();
        keys.into_iter().map(|one| (one.key, one.value.to_vec())).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_changes_while_keys_are_loaded_is_corrected_afterwards() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let supervisor = Supervisor::default();
        let source = open(&Datastore::Embedded, old.path()).await.unwrap();
        let kept = put(&*source, "/registry/kept", 0, "1").await.unwrap();
        let changed = put(&*source, "/registry/changed", 0, "1").await.unwrap();
        let removed = put(&*source, "/registry/removed", 0, "1").await.unwrap();
        let begun = load(&*source, &opening(new.path(), &supervisor), true).await.unwrap();
        assert_eq!(begun.revision, removed);
        put(&*source, "/registry/changed", changed, "2").await.unwrap();
        put(&*source, "/registry/added", 0, "1").await.unwrap();
        let gone = Write {
            key: "/registry/removed".into(),
            expect: removed,
            value: None,
            durability: Durability::Sync,
            fence: None,
        };
        let last = source.write(gone).await.unwrap();
        let target = open(&Datastore::Embedded, new.path()).await.unwrap();
        let compared = correct(&*source, &*target).await.unwrap();
        assert_eq!(compared.corrected, 3);
        assert_eq!(all(&*source).await, all(&*target).await);
        assert_eq!(correct(&*source, &*target).await.unwrap().corrected, 0, "they are the same now");
        assert_eq!(target.get("/registry/kept").await.unwrap().unwrap().modified, kept);
        assert!(target.revision().await.unwrap() > last, "no revision is used twice");
        let old = target.watch("/registry/", last).await;
        assert!(matches!(old.err(), Some(StoreError::Compacted(_))), "watchers list again");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_store_at_rest_keeps_its_revision_and_a_target_with_keys_is_refused() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let supervisor = Supervisor::default();
        let source = open(&Datastore::Embedded, old.path()).await.unwrap();
        let last = put(&*source, "/registry/a", 0, "1").await.unwrap();
        load(&*source, &opening(new.path(), &supervisor), false).await.unwrap();
        let again = load(&*source, &opening(new.path(), &supervisor), false).await.unwrap_err();
        assert!(matches!(again, StoreError::Load(load::LoadError::NotEmpty(_))), "{again:?}");
        let target = open(&Datastore::Embedded, new.path()).await.unwrap();
        assert_eq!(target.revision().await.unwrap(), last);
        assert_eq!(correct(&*source, &*target).await.unwrap().corrected, 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_left_of_a_copy_that_is_removed() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let supervisor = Supervisor::default();
        let source = open(&Datastore::Embedded, old.path()).await.unwrap();
        put(&*source, "/registry/a", 0, "1").await.unwrap();
        let opening = opening(new.path(), &supervisor);
        load(&*source, &opening, true).await.unwrap();
        drop(opening.open().await.unwrap());
        remove(&opening).await.unwrap();
        assert!(!new.path().join("store").exists());
        load(&*source, &opening, true).await.expect("the copy can be made again");
    }
}
