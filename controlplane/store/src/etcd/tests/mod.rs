#![allow(clippy::unwrap_used)]

// Members of etcd.
mod cluster;
// Members that die, hang or lose answers.
mod failover;
// Space, sizes, members.
mod upkeep;
// Requests of a load that arrive late.
mod loading;

use super::{keyspace::OFFSET, *};
use crate::{
    Datastore, Opening, WatchItem,
    conformance_tests::{self, HANGS, delete, next_change, put, show},
    load::{self, Loaded, RESTORE_BUMP},
    open,
};
use cluster::{Certificates, Cluster, connect, until};
use coracle_trace::Recorder;
use etcd_client::{Client, Permission, PermissionType};
use std::{convert::Infallible, path::Path};

async fn client(options: &EtcdOptions) -> Client {
    Client::connect(&options.endpoints, Some(options.connect_options().unwrap())).await.unwrap()
}

async fn load_into(
    options: &EtcdOptions,
    keys: impl futures::Stream<Item = Result<KeyValue, Infallible>> + Send,
    loaded: Loaded,
) -> Result<load::Summary, StoreError> {
    let (datastore, supervisor) = (&Datastore::Etcd(options.clone()), &Supervisor::default());
    let data_dir = Path::new("/nonexistent");
    load::into(&Opening { datastore, data_dir, supervisor, recorder: Recorder::OFF }, keys, loaded).await
}

async fn all(store: &dyn Store) -> Vec<KeyValue> {
    store.export("/").await.unwrap().keys.try_collect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behaves() {
    let etcd = Cluster::plain();
    etcd.ready().await;
    conformance_tests::check(etcd.connect().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behaves_with_certificates_a_user_and_a_prefix() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let etcd = Cluster::start(1, "https", &ours.server_args());
    etcd.ready().await;
    let password = ours.file("password");
    std::fs::write(&password, "secret\n").unwrap();
    let tls = EtcdOptions {
        ca: Some(ours.file("ca.crt")),
        cert: Some(ours.file("client.crt")),
        key: Some(ours.file("client.key")),
        ..etcd.options()
    };
    until(|| async { Shared::open(&tls).await.is_ok() }).await;
    let mut admin = client(&tls).await;
    admin.user_add("root", "root", None).await.unwrap();
    admin.user_grant_role("root", "root").await.unwrap();
    admin.role_add("one").await.unwrap();
    let own = Permission::new(PermissionType::Readwrite, "/one/").with_prefix();
    admin.role_grant_permission("one", own).await.unwrap();
    admin.user_add("coracle", "secret", None).await.unwrap();
    admin.user_grant_role("coracle", "one").await.unwrap();
    admin.put("/other", "theirs", None).await.unwrap();
    admin.auth_enable().await.unwrap();
    let user = EtcdOptions {
        user: Some("coracle".to_owned()),
        password_file: Some(password.clone()),
        prefix: "one".to_owned(),
        ..tls.clone()
    };
    let store = connect(&user).await.unwrap();
    conformance_tests::check(store.clone()).await;
    assert!(all(&*store).await.iter().all(|one| !one.key.contains("one")));

    // Whoever lacks one of them gets nothing.
    let wrong = [
        EtcdOptions { ca: Some(others.file("ca.crt")), ..user.clone() },
        EtcdOptions { cert: None, key: None, ..user.clone() },
        EtcdOptions {
            cert: Some(others.file("client.crt")),
            key: Some(others.file("client.key")),
            ..user.clone()
        },
        EtcdOptions { user: Some("nobody".to_owned()), ..user.clone() },
        EtcdOptions { prefix: "/two".to_owned(), ..user.clone() },
    ];
    for options in wrong {
        let error = connect(&options).await.err().unwrap();
        assert!(matches!(error, StoreError::Etcd(EtcdError::Client(_))), "{error:?}");
    }
    std::fs::write(&password, "wrong").unwrap();
    let error = connect(&user).await.err().unwrap();
    assert!(!error.to_string().contains("wrong"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_see_each_other_over_a_restart_of_etcd() {
    let mut etcd = Cluster::plain();
    etcd.ready().await;
    let (one, two) = (etcd.connect().await, etcd.connect().await);
    let mut watch = two.watch("/registry/", two.revision().await.unwrap()).await.unwrap();
    let a = put(&*one, "/registry/a", 0, "1").await.unwrap();
    assert_eq!(next_change(&mut watch).await.revision, a);
    // More keys than one answer holds.
    for n in 0..pages::MOST + 1 {
        put(&*one, &format!("/registry/many/{n:04}"), 0, "x").await.unwrap();
    }
    let (found, at) = two.range("/registry/many/", None).await.unwrap();
    assert_eq!((found.len() as i64, at), (pages::MOST + 1, one.revision().await.unwrap()));
    assert!(found.is_sorted_by(|a, b| a.key < b.key));
    assert_eq!(two.export("/registry/many/").await.unwrap().keys.count().await as i64, pages::MOST + 1);

    etcd.members[0].restart();
    let lost = loop {
        if let Err(error) = watch.next().await.unwrap() {
            break error;
        }
    };
    assert!(matches!(lost, StoreError::Etcd(_)), "{lost:?}");
    etcd.ready().await;
    // The old clients come back on their own.
    let deleted = delete(&*one, "/registry/a", a).await.unwrap();
    let mut watch = two.watch("/registry/", at).await.unwrap();
    let change = next_change(&mut watch).await;
    assert_eq!((change.revision, change.created, change.value), (deleted, a, None));
    assert_eq!(show(&two.range("/registry/a", None).await.unwrap().0, ""), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_do_not_wait_for_keys_of_others() {
    let etcd = Cluster::plain();
    etcd.ready().await;
    let store = connect(&EtcdOptions { prefix: "/one".to_owned(), ..etcd.options() }).await.unwrap();
    let mut watch = store.watch("/registry/", store.revision().await.unwrap()).await.unwrap();
    let mut others = client(&etcd.options()).await;
    for n in 0..20 {
        others.put("/others", n.to_string(), None).await.unwrap();
        let newest = store.revision().await.unwrap();
        let reached = async {
            loop {
                if let WatchItem::Progress(revision) = watch.next().await.unwrap().unwrap()
                    && revision >= newest
                {
                    break;
                }
            }
        };
        tokio::time::timeout(HANGS, reached).await.expect("the watch goes on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loaded_keys_continue_behind_the_revisions_of_the_old_store() {
    let (old, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let embedded = open(&Datastore::Embedded, old.path()).await.unwrap();
    for n in 0..200 {
        put(&*embedded, &format!("/registry/{n:03}"), 0, &n.to_string()).await.unwrap();
    }
    put(&*embedded, "/coracle/fences/leader", 0, "me").await.unwrap();
    let exported = embedded.revision().await.unwrap();
    let mut keys = all(&*embedded).await;
    let loaded = Loaded { revision: exported, bump: RESTORE_BUMP };
    let etcd = Cluster::plain();
    etcd.ready().await;
    let options = EtcdOptions { prefix: "/copy".to_owned(), ..etcd.options() };
    let stream = |keys: &[KeyValue]| stream::iter(keys.iter().cloned().map(Ok).collect::<Vec<_>>());

    // A failure half-way leaves nothing behind.
    let mut broken = keys.clone();
    broken[150].modified = exported + 1;
    let failed = load_into(&options, stream(&broken), loaded).await.unwrap_err();
    assert!(matches!(failed, StoreError::Load(LoadError::Revisions { .. })), "{failed:?}");

    let summary = load_into(&options, stream(&keys), loaded).await.unwrap();
    keys.retain(|one| one.key != "/coracle/fences/leader");
    assert_eq!(summary.keys, keys.len() as u64);
    let again = load_into(&options, stream(&keys), loaded).await.unwrap_err();
    assert!(matches!(again, StoreError::Load(LoadError::NotEmpty(_))), "{again:?}");

    let store = connect(&options).await.unwrap();
    assert!(store.revision().await.unwrap() > exported + RESTORE_BUMP);
    let found = store.range("/registry/", None).await.unwrap().0;
    let plain = |all: &[KeyValue]| -> Vec<_> {
        let objects = all.iter().filter(|one| one.key.starts_with("/registry/"));
        objects.map(|one| (one.key.clone(), one.value.clone())).collect()
    };
    assert_eq!(plain(&found), plain(&keys));
    assert!(found.iter().all(|one| one.modified > exported + RESTORE_BUMP));
    for past in [1, exported, exported + RESTORE_BUMP, found[0].modified] {
        let error = match store.watch("/registry/", past).await {
            Err(error) => error,
            Ok(mut watch) => watch.next().await.unwrap().unwrap_err(),
        };
        assert!(matches!(error, StoreError::Compacted(_)), "{past}: {error:?}");
        assert!(matches!(store.range("/", Some(past)).await, Err(StoreError::Compacted(_))), "{past}");
        let write = put(&*store, "/registry/000", past.min(exported), "x").await;
        assert!(matches!(write, Err(StoreError::Conflict(Some(_)))), "{past}");
    }
    // Where a reader begins is a revision of this etcd, although it may be compacted.
    let start = store.history_start(1000).await.unwrap().from;
    assert!(start > exported && matches!(store.range("/", Some(start)).await, Err(StoreError::Compacted(_))));
    conformance_tests::check(store.clone()).await;

    // And back into the embedded store, with the revisions of etcd.
    let Export { revision, keys } = store.export("/").await.unwrap();
    let (datastore, data_dir, supervisor) = (&Datastore::Embedded, back.path(), &Supervisor::default());
    let opening = Opening { datastore, data_dir, supervisor, recorder: Recorder::OFF };
    load::into(&opening, keys, Loaded { revision, bump: 0 }).await.unwrap();
    let copy = opening.open().await.unwrap();
    assert_eq!(copy.revision().await.unwrap(), revision);
    let objects = |all: Vec<KeyValue>| -> Vec<_> {
        all.into_iter().filter(|one| one.key.starts_with("/registry/")).collect()
    };
    assert_eq!(objects(all(&*copy).await), objects(all(&*store).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_half_loaded_is_not_opened() {
    let etcd = Cluster::plain();
    etcd.ready().await;
    let mut raw = client(&etcd.options()).await;
    raw.put(LOADING, "7", None).await.unwrap();
    let refused = connect(&etcd.options()).await.err().unwrap();
    assert!(matches!(refused, StoreError::Load(LoadError::Unfinished(_))), "{refused:?}");
    let none = stream::empty();
    let refused = load_into(&etcd.options(), none, Loaded { revision: 7, bump: 0 }).await.unwrap_err();
    assert!(matches!(refused, StoreError::Load(LoadError::Unfinished(_))), "{refused:?}");
    raw.delete(LOADING, None).await.unwrap();
    raw.put(OFFSET, "many", None).await.unwrap();
    let refused = connect(&etcd.options()).await.err().unwrap();
    assert_eq!(refused.to_string(), "etcd: /coracle/revision-offset is not a number");
}
