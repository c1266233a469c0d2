#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    Export, Store,
    conformance_tests::{delete, put, show},
    open,
};
use coracle_cli::supervise::Supervisor;
use coracle_trace::Recorder;
use futures::{TryStreamExt, stream};
use std::{convert::Infallible, path::Path, sync::Arc};

async fn into_embedded<E: std::error::Error + Send + Sync + 'static>(
    dir: &Path,
    keys: impl Stream<Item = Result<KeyValue, E>> + Send,
    loaded: Loaded,
) -> Result<Summary, StoreError> {
    let (datastore, supervisor) = (&Datastore::Embedded, &Supervisor::default());
    into(&Opening { datastore, data_dir: dir, supervisor, recorder: Recorder::OFF }, keys, loaded).await
}

async fn all(store: &dyn Store) -> Vec<KeyValue> {
    store.export("/").await.unwrap().keys.try_collect().await.unwrap()
}

/// A store with some history.
async fn filled(dir: &Path) -> Arc<dyn Store> {
    let store = open(&Datastore::Embedded, dir).await.unwrap();
    let a = put(&*store, "/registry/a", 0, "1").await.unwrap();
    let b = put(&*store, "/registry/b", 0, "1").await.unwrap();
    put(&*store, "/coracle/keys", 0, "sealed").await.unwrap();
    put(&*store, "/coracle/fences/leader", 0, "me").await.unwrap();
    put(&*store, "/registry/a", a, "2").await.unwrap();
    delete(&*store, "/registry/b", b).await.unwrap();
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_store_keeps_revisions_and_continues_behind_them() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = filled(old.path()).await;
    let Export { revision, keys } = store.export("/").await.unwrap();
    let summary = into_embedded(new.path(), keys, Loaded { revision, bump: RESTORE_BUMP }).await.unwrap();
    let mut want = all(&*store).await;
    want.retain(|one| one.key != "/coracle/fences/leader");
    assert_eq!(summary, Summary { keys: want.len() as u64, revision: revision + RESTORE_BUMP });
    // Opened twice: the second time its own check has to accept what is there.
    for _ in 0..2 {
        let loaded = open(&Datastore::Embedded, new.path()).await.unwrap();
        assert_eq!(all(&*loaded).await, want);
        assert_eq!(loaded.revision().await.unwrap(), summary.revision);
        let past = loaded.watch("/registry/", revision).await.err().unwrap();
        assert!(matches!(past, StoreError::Compacted(_)), "{past:?}");
        assert_eq!(loaded.history_start(1000).await.unwrap().from, summary.revision);
    }
    let loaded = open(&Datastore::Embedded, new.path()).await.unwrap();
    let at = loaded.get("/registry/a").await.unwrap().unwrap().modified;
    assert_eq!(put(&*loaded, "/registry/a", at, "3").await.unwrap(), summary.revision + 1);
    drop(loaded);
    let loaded = open(&Datastore::Embedded, new.path()).await.unwrap();
    assert_eq!(show(&loaded.range("/registry/", None).await.unwrap().0, "/registry/"), "a=3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_leaves_nothing_behind() {
    let good = |key: &str, revision| KeyValue {
        key: key.to_owned(),
        value: "x".into(),
        created: revision,
        modified: revision,
    };
    let newer = KeyValue {
        value: r#"{"version":9,"oldestReader":9,"writtenBy":"coracle 4"}"#.into(),
        ..good(format::FORMAT_KEY, 1)
    };
    let dir = tempfile::tempdir().unwrap();
    for (keys, want) in [
        (vec![good("/a", 1), good("/b", 1)], "/b has the revision of another key"),
        (vec![good("/b", 1), good("/a", 2)], "key \"/a\" cannot be loaded: it is not behind"),
        (vec![good("/a", 1), good("/a", 2)], "key \"/a\" cannot be loaded: it is not behind"),
        (vec![good("!marks", 1)], "key \"!marks\" cannot be loaded"),
        (vec![good(&format!("/{}", "x".repeat(5000)), 1)], "is too long"),
        (vec![good("/a", 6)], "/a: created at revision 6, modified at 6, exported at 5"),
        (vec![good("/a", 0)], "/a: created at revision 0"),
        (vec![newer], "the store has format 9, written by coracle 4"),
    ] {
        let keys = stream::iter(keys.into_iter().map(Ok::<_, Infallible>));
        let error = into_embedded(dir.path(), keys, Loaded { revision: 5, bump: 0 }).await.unwrap_err();
        assert!(error.to_string().contains(want), "{error} instead of {want}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{want}");
    }
    let broken = stream::iter([Ok(good("/a", 1)), Err(std::io::Error::other("the file ends here"))]);
    let error = into_embedded(dir.path(), broken, Loaded { revision: 5, bump: 0 }).await.unwrap_err();
    assert!(matches!(error, StoreError::Load(LoadError::Source(_))), "{error:?}");
    let none = || stream::empty::<Result<KeyValue, Infallible>>();
    let huge = into_embedded(dir.path(), none(), Loaded { revision: u64::MAX, bump: 1 }).await.unwrap_err();
    assert!(matches!(huge, StoreError::Load(LoadError::TooGreat(_))), "{huge:?}");
    drop(filled(dir.path()).await);
    let full = into_embedded(dir.path(), none(), Loaded { revision: 5, bump: 0 }).await.unwrap_err();
    let path = dir.path().join("store").display().to_string();
    assert_eq!(full.to_string(), format!("{path} is not empty"));
}
