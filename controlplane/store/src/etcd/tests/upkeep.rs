//! Space, sizes, members.

use super::*;
use crate::{Engine, Unhealthy};

const BIG: usize = 256 << 10;

async fn etcd(options: &EtcdOptions) -> Etcd {
    Etcd::connect(options, &Supervisor::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reached_quota_is_reported_and_space_is_given_back() {
    let cluster = Cluster::start(1, "http", &["--quota-backend-bytes=6291456".to_owned()]);
    cluster.ready().await;
    let store = etcd(&cluster.options()).await;
    let (mut at, mut refused) = (0, None);
    for n in 0..100 {
        match put(&store, "/registry/a", at, &format!("{n}{}", "x".repeat(BIG))).await {
            Ok(revision) => at = revision,
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let refused = refused.expect("etcd gets full");
    assert!(matches!(refused, StoreError::Unavailable(Unhealthy::Quota { .. })), "{refused:?}");
    let why = store.health().await.unwrap_err().to_string();
    assert!(why.contains("NOSPACE"), "{why}");
    assert_eq!(store.status().await.unwrap().problems, [why]);
    // Reads still work. Etcd reports the alarm for the write that raised it, too, which is stored.
    let now = store.get("/registry/a").await.unwrap().unwrap().modified;
    assert!(now == at || now == at + 1, "{now} {at}");

    defragment::free_space(&store.shared).await.unwrap();
    store.health().await.unwrap();
    put(&store, "/registry/a", now, "small").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_is_defragmented_while_others_answer() {
    let cluster = Cluster::start(3, "http", &[]);
    cluster.ready().await;
    let store = etcd(&cluster.options()).await;
    let mut at = 0;
    for _ in 0..40 {
        at = put(&store, "/registry/a", at, &"x".repeat(BIG)).await.unwrap();
    }
    store.compact(at).await.unwrap();
    let wasted = || async {
        let status = store.status().await.unwrap();
        assert_eq!((status.engine, status.members.len()), (Engine::Etcd, 3));
        assert_eq!(status.members.iter().filter(|one| one.leader).count(), 1, "{status:?}");
        assert!(status.members.iter().all(|one| one.problem.is_none()), "{status:?}");
        status.members.iter().map(|one| one.size - one.in_use).min().unwrap()
    };
    until(|| async {
        // etcd counts pages as free when it has written something after them.
        let at = store.get("/registry/tick").await.unwrap().map_or(0, |tick| tick.modified);
        put(&store, "/registry/tick", at, "x").await.unwrap();
        wasted().await > 6 << 20
    })
    .await;
    let held = EtcdOptions {
        follow_members: true,
        endpoints: vec![cluster.members[2].url.clone(), cluster.members[1].url.clone()],
        ..EtcdOptions::default()
    };
    let writing = async {
        let other = etcd(&held).await;
        other.shared.follow_members().await.unwrap();
        let urls: Vec<String> = other.shared.endpoints.all().iter().map(|one| one.url.clone()).collect();
        assert_eq!(urls.len(), 3);
        assert_eq!(urls[..2], held.endpoints, "those that were configured come first, in their order");
        for n in 0..50 {
            put(&other, &format!("/registry/during/{n}"), 0, "x").await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (done, ()) = tokio::join!(defragment::defragment(&store.shared, 4 << 20), writing);
    done.unwrap();
    let status = store.status().await.unwrap();
    assert!(status.members.iter().all(|one| one.size < 4 << 20), "{status:?}");
    assert!(store.shared.find("/coracle/store/defragmentation").await.unwrap().is_none(), "the lock is gone");
    // What is not worth it is left alone.
    defragment::defragment(&store.shared, 4 << 20).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_servers_compacts_what_is_an_interval_old() {
    let cluster = Cluster::plain();
    cluster.ready().await;
    let store = etcd(&cluster.options()).await;
    let (mut one, mut two) = (maintenance::Compaction::default(), maintenance::Compaction::default());
    let first = put(&store, "/registry/a", 0, "1").await.unwrap();
    one.step(&store.shared).await.unwrap();
    two.step(&store.shared).await.unwrap();
    // The first claims the interval, the second sees that.
    one.step(&store.shared).await.unwrap();
    two.step(&store.shared).await.unwrap();
    let second = put(&store, "/registry/a", first, "2").await.unwrap();
    let third = put(&store, "/registry/a", second, "3").await.unwrap();
    store.range("/registry/", Some(first)).await.unwrap();
    two.step(&store.shared).await.unwrap();
    store.range("/registry/", Some(first)).await.unwrap();
    // Of the last interval; the one before it is forgotten only now.
    two.step(&store.shared).await.unwrap();
    assert!(matches!(store.range("/registry/", Some(second)).await, Err(StoreError::Compacted(_))));
    store.range("/registry/", Some(third)).await.unwrap();
    // The other server sees that it was done.
    let claimed = store.shared.newest().await.unwrap();
    one.step(&store.shared).await.unwrap();
    assert_eq!(store.shared.newest().await.unwrap(), claimed);
}
