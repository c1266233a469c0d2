//! Requests of a load that arrive late.

use super::{super::load::Loading, *};
use etcd_client::GetOptions;

fn one(value: &str) -> KeyValue {
    KeyValue { key: "/registry/a".to_owned(), value: value.to_owned().into(), created: 1, modified: 1 }
}

const LOADED: Loaded = Loaded { revision: 7, bump: 0 };

async fn count(options: &EtcdOptions) -> i64 {
    let prefix = GetOptions::new().with_prefix().with_count_only();
    client(options).await.get("/", Some(prefix)).await.unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_arrives_after_its_load_was_given_up_is_refused() {
    let etcd = Cluster::plain();
    etcd.ready().await;
    let loading = Loading::open(&etcd.options()).await.unwrap();
    let (mark, _) = loading.begin(LOADED).await.unwrap();
    assert!(loading.clear(mark).await.unwrap());
    let refused = loading.put(one("1"), mark).await.unwrap_err();
    assert!(matches!(refused, StoreError::Load(LoadError::Unfinished(_))), "{refused:?}");
    assert_eq!(count(&etcd.options()).await, 0);
    // Neither does it reach the load that is begun next, nor does its end.
    let (next, _) = loading.begin(LOADED).await.unwrap();
    loading.put(one("2"), next).await.unwrap();
    assert!(loading.put(one("1"), mark).await.is_err());
    assert!(!loading.clear(mark).await.unwrap());
    assert!(loading.finish(mark).await.is_err());
    loading.finish(next).await.unwrap();
    assert_eq!(client(&etcd.options()).await.get("/registry/a", None).await.unwrap().kvs()[0].value(), b"2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_load_changes_a_store_that_is_in_use() {
    let etcd = Cluster::plain();
    etcd.ready().await;
    let loading = Loading::open(&etcd.options()).await.unwrap();
    let (mark, _) = loading.begin(LOADED).await.unwrap();
    loading.put(one("1"), mark).await.unwrap();
    loading.finish(mark).await.unwrap();
    let store = etcd.connect().await;
    let found = store.get("/registry/a").await.unwrap().unwrap();
    put(&*store, "/registry/a", found.modified, "2").await.unwrap();
    let refused = loading.put(one("1"), mark).await.unwrap_err();
    assert!(matches!(refused, StoreError::Load(LoadError::Unfinished(_))), "{refused:?}");
    assert!(!loading.clear(mark).await.unwrap());
    loading.finish(mark).await.expect("its first answer may have been lost");
    assert_eq!(store.get("/registry/a").await.unwrap().unwrap().value, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_loaded_is_removed() {
    let etcd = Cluster::plain();
    etcd.ready().await;
    let options = EtcdOptions { prefix: "/copy".to_owned(), ..etcd.options() };
    client(&options).await.put("/copy/registry/a", "theirs", None).await.unwrap();
    crate::etcd::remove(&options).await.unwrap();
    assert_eq!(count(&options).await, 1, "nobody has loaded it");
    client(&options).await.delete("/copy/registry/a", None).await.unwrap();
    client(&options).await.put("/other", "theirs", None).await.unwrap();
    load_into(&options, stream::iter([Ok(one("1"))]), LOADED).await.unwrap();
    assert!(count(&options).await > 1);
    crate::etcd::remove(&options).await.unwrap();
    assert_eq!(count(&options).await, 1);
}
